"""A run directory becomes scores: the metrics by name, what each asks of a run, and how it signs."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch

from nnrs.errors import ConfigError, DataError
from nnrs.evaluation import exposure
from nnrs.evaluation.generate import DECODINGS
from nnrs.experiments.generations import continuations, cut, decoding_label
from nnrs.experiments.perplexity_scores import decile_scores, noise_scores, perplexity_scores
from nnrs.experiments.prepare import Shelf
from nnrs.experiments.subject import TEACHER_FORCED, Request, Subject
from nnrs.experiments.text_scores import TEXT_METRICS, Texts, TooLittleTextError, WordSpace, interval
from nnrs.metrics.diversity import distinct, repetition
from nnrs.metrics.score import Score
from nnrs.metrics.wmd import WordVectors
from nnrs.registry import look_up
from nnrs.vocabulary import EOS, PAD, UNK

RECOVERY = 5  # gold tokens after the model's own
MILESTONES = (1, 5, 10, 20)  # steps of the exposure curve that are scores of their own, beside the last


def evaluate_run(
    path: Path | str,
    device: torch.device,
    request: Request | None = None,
    note: Callable[[str], None] = lambda remark: None,
    shelf: Shelf | None = None,
) -> list[Score]:
    """The scores of a run's best model, which are kept in the run directory as well.

    `note` hears what was left out. A `shelf` serves several runs of one text.
    """
    request = request or Request()
    subject = Subject(Path(path), device, request, cache(note), shelf or Shelf())  # each remark once
    metrics = _chosen(subject)
    scores = []
    for split in request.splits:
        for name in metrics:
            made = list(METRICS[name](subject, split))
            records = [score.as_dict() for score in made]
            subject.store("scores", "signature", {record["signature"] for record in records}, records)
            scores += made
    if not scores:
        raise DataError(
            f"{path}: none of the metrics can be computed: {', '.join(metrics)}. See above for why."
        )
    return scores


def _chosen(subject: Subject) -> list[str]:
    """The metrics asked for; `all` are those that the run has the means for."""
    names = subject.request.metrics
    for name in names:
        look_up({**METRICS, "all": None}, name, "metric")
    if "all" not in names:
        return list(names)
    missing: dict[str, str] = {}
    if not subject.vectors_source:
        missing |= dict.fromkeys(("wmd", "self-wmd"), "the run has no word vectors (--vectors)")
    if not _followed(subject.request):
        missing["exposure"] = "no decoding follows the model's own history (--decode)"
    for name, reason in missing.items():
        subject.note(f"{subject.directory.path}: {name} left out, for {reason}")
    return [name for name in METRICS if name not in missing]


def text_scores(metric: str, subject: Subject, split: str) -> Iterator[Score]:
    """One of the text metrics, for each way of predicting that was asked for. None of them sees the model."""
    for decoding in subject.request.decodings:
        gold, generated = continuations(subject, split, decoding)
        sign = partial(_sign, subject, split, decoding)
        texts = Texts(generated, sign, gold, partial(subject.own.take, _word_space, subject))
        try:
            yield from TEXT_METRICS[metric](texts)
        except TooLittleTextError as error:  # a model that says next to nothing has other scores all the same
            subject.note(f"{subject.directory.path}: {metric} ({split}, {decoding}) left out, for {error}")


def exposure_scores(subject: Subject, split: str) -> Iterator[Score]:
    """How the model fares on its own history, step by step, and once the history is gold again."""
    request = subject.request
    if request.length < RECOVERY + 2:
        raise ConfigError(f"exposure needs a --length of at least {RECOVERY + 2}, got {request.length}.")
    followed = _followed(request)
    if not followed:
        raise ConfigError(
            "exposure follows the model's own history: add sample, greedy or top-p to --decode."
        )
    prefixes, gold = cut(subject.ids(split), request)
    for name in followed:
        seen = exposure.evaluate(
            subject.loaded.model,
            prefixes,
            gold,
            decoding=DECODINGS[name],
            recovery=RECOVERY + 1,  # the first of these columns still comes after nothing but its own tokens
            seed=request.seed,
        )
        yield from _along(seen, partial(_sign, subject, split, name))
        yield from _variety(subject, split, name)


METRICS: dict[str, Callable[[Subject, str], Iterator[Score]]] = {
    "perplexity": perplexity_scores,
    "deciles": decile_scores,
    "noise": noise_scores,
    **{name: partial(text_scores, name) for name in TEXT_METRICS},
    "exposure": exposure_scores,
}


def _followed(request: Request) -> list[str]:
    """The decodings that write a history token by token, as exposure needs it."""
    return [name for name in request.decodings if name in DECODINGS and DECODINGS[name].width == 1]


def _sign(subject: Subject, split: str, decoding: str, count: int, parts: Sequence[str]) -> str:
    asked = subject.request
    how = [
        f"n:{count}",
        f"len:{asked.length}",
        f"decode:{decoding_label(decoding)}",
        f"prefix:{asked.prefix}",
    ]
    drawn = [] if decoding == TEACHER_FORCED else [f"text-seed:{asked.seed}"]
    return subject.signature(split, before=[*how, *parts, *drawn])


def _word_space(subject: Subject) -> WordSpace:
    """Words of the training text that have a vector; `<eos>`, `<unk>` and `<pad>` are no words."""
    words, vectors = subject.vocabulary, subject.vectors
    allowed = np.array(words.counts) > 0
    allowed[[words.ids[mark] for mark in (EOS, UNK, PAD) if mark in words.ids]] = False
    return WordSpace(words.ids, WordVectors(vectors.vectors.numpy(), allowed), vectors.source)


def _along(seen: exposure.Exposure, sign: Callable[[int, Sequence[str]], str]) -> Iterator[Score]:
    count, steps = seen.own_nats.shape
    last = steps - RECOVERY
    signature = sign(count, [f"recovery:{RECOVERY}"])
    excess, curve = seen.own_nats - seen.gold_nats, seen.curve()
    points = {f"excess-nats-h{h}": h for h in sorted({*MILESTONES, last}) if h <= last}
    points |= {f"recovery-nats-{step}": last + step for step in range(1, RECOVERY + 1)}
    for name, h in points.items():
        column = excess[:, h - 1 : h]
        whole = curve if name == f"excess-nats-h{last}" else None
        yield Score(name, float(column.mean()), signature, interval(column), whole)
    hits = seen.own_hits[:, :last].double().mean(dim=1, keepdim=True)
    yield Score("own-accuracy", float(hits.mean()), signature, interval(hits))


def _variety(subject: Subject, split: str, decoding: str) -> Iterator[Score]:
    """How much the generated text repeats itself."""
    words = continuations(subject, split, decoding).generated
    tokens = torch.tensor([subject.vocabulary.encode(line) for line in words])
    signature = _sign(subject, split, decoding, len(tokens), [])
    repeated = repetition(tokens, 4)[:, None]
    yield Score("rep-4", float(repeated.mean()), signature, interval(repeated))
    yield Score("distinct-2", distinct(tokens, 2), signature)
