"""Scores of a run that translates: perplexity of the targets, and BLEU of what it makes of the sources."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

from nnrs.errors import ConfigError
from nnrs.evaluation.generate import Decoding, decoding_of
from nnrs.evaluation.translate import translate
from nnrs.experiments.config import TRANSLATE
from nnrs.experiments.generations import Continuations, kept_text
from nnrs.experiments.load import LoadedRun, config_of
from nnrs.experiments.subject import TEACHER_FORCED, Request, Subject
from nnrs.experiments.text import ParallelText
from nnrs.experiments.text_scores import Interval, corpus_interval
from nnrs.metrics.bleu import Overlap
from nnrs.metrics.packages import SACREBLEU
from nnrs.metrics.score import Score
from nnrs.metrics.significance import bootstrap_interval
from nnrs.models import Translator
from nnrs.models.base import SequenceModel
from nnrs.pairs import Sentences
from nnrs.run_directory import Json, RunDirectory

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

FOR_TEXT = ("sentences", "prefix", "length", "data", "vectors", "oracle")  # what a request says of other runs


def usual_decoding(path: Path) -> str:
    """How a run's text is made where nothing is said: a translation is to be the likeliest, other text is drawn."""
    translates = config_of(RunDirectory.open(path)).data.task == TRANSLATE
    return "greedy" if translates else Request().decodings[0]


def check_request(request: Request, run: str) -> None:
    """Refuse what only a language model can be asked."""
    plain = {item.name: item.default for item in fields(Request)}
    for name in FOR_TEXT:
        if getattr(request, name) != plain[name]:
            raise ConfigError(f"{run} is a translation, and {name} does not go with it: leave {name} out.")
    if TEACHER_FORCED in request.decodings:
        raise ConfigError(f"{run} is a translation, and {TEACHER_FORCED} is none. Use greedy or beam5.")


def translation_perplexity(subject: Subject, split: str) -> Iterator[Score]:
    """Teacher-forced perplexity of the targets given their sources, `<eos>` counted; its interval over sentences."""
    text = _text(subject)
    nats = subject.losses(split)
    rows = torch.stack([nats, text.targets[split].lengths.double()], dim=1)
    low, high = bootstrap_interval(rows, lambda means: (means[..., :1] / means[..., 1:]).exp())
    ends = (float(low[0]), float(high[0])) if len(rows) > 1 else None
    yield Score("ppl", text.perplexity_from(nats, split), subject.signature(split), ends)


def translation_bleu(subject: Subject, split: str) -> Iterator[Score]:
    """BLEU in percent by sacreBLEU, of the words as they stand in the text (`tok:none`); `<unk>` is none of them."""
    metric = sacrebleu_metric()  # before anything is translated, should it not be there
    for decoding in subject.request.decodings:
        gold, made = translations(subject, split, decoding)
        how = [f"n:{len(made)}", *_how(subject, decoding), "tok:none", f"smooth:{metric.smooth_method}"]
        signature = subject.signature(split, before=[*how, f"sacrebleu:{version('sacrebleu')}"])
        value, ends = bleu_with_interval(metric, made, gold)
        yield Score("bleu", value, signature, ends)


def sacrebleu_metric() -> "BLEU":
    """BLEU as sacreBLEU has it, of text that is words already."""
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError:
        raise SACREBLEU.error() from None
    return BLEU(tokenize="none", force=True)


def bleu_with_interval(
    metric: "BLEU", made: list[list[str]], gold: list[list[str]]
) -> tuple[float, Interval | None]:
    """The score of all sentences together, and the interval of that very score over sentences."""

    def score(pooled: Overlap) -> Float[np.ndarray, " n"]:
        rows = zip(*(part.tolist() for part in pooled), strict=True)
        scores = (
            metric.compute_bleu(matches, ngrams, length, closest, smooth_method=metric.smooth_method)
            for matches, ngrams, length, closest in rows
        )
        return np.array([each.score for each in scores])

    whole = metric.corpus_score([" ".join(line) for line in made], [[" ".join(line) for line in gold]])
    return whole.score, corpus_interval(made, gold, score)


def translations(subject: Subject, split: str, name: str) -> Continuations:
    """The stored translations of a split, made now where there are none of the present model."""
    key = "|".join(["task:translate", *_how(subject, name), f"split:{split}"])

    def made(model: SequenceModel) -> Iterator[Json]:
        assert isinstance(model, Translator)  # the configuration says so
        text, words = _text(subject), subject.vocabulary
        how, seed = decoding_of(name), subject.request.seed
        rows = translate(model, text.sources[split], eos_id=words.eos_id, decoding=how, seed=seed)
        lines = zip(text.source.lines(split), text.corpus.lines(split), rows, strict=True)
        for source, gold, row in lines:
            line = {"prefix": source, "gold": gold, "generated": words.decode(row)}
            yield {"key": key, **line, "text": text.fingerprint}

    return kept_text(subject, split, key, made)


def translate_words(
    loaded: LoadedRun, words: Sequence[str], count: int, decoding: Decoding, seed: int
) -> list[list[str]]:
    """So many translations of one sentence; they differ where they are drawn."""
    model, sources = loaded.model, loaded.source_vocabulary
    assert isinstance(model, Translator)  # it was loaded as one
    assert sources is not None
    ids = [*sources.encode(words), sources.eos_id]
    same = Sentences(torch.tensor(ids * count, dtype=torch.int32), torch.full((count,), len(ids)))
    rows = translate(model, same, eos_id=loaded.vocabulary.eos_id, decoding=decoding, seed=seed)
    return [loaded.vocabulary.decode(row) for row in rows]


def _how(subject: Subject, name: str) -> list[str]:
    """The decoding, and the seed where it draws."""
    how = decoding_of(name)
    drawn = [f"text-seed:{subject.request.seed}"] if how.width == 1 and how.temperature > 0.0 else []
    return [f"decode:{how.label()}", *drawn]


def _text(subject: Subject) -> ParallelText:
    text = subject.text
    assert isinstance(text, ParallelText)  # the configuration says so
    return text


TRANSLATION_METRICS: dict[str, Callable[[Subject, str], Iterator[Score]]] = {
    "perplexity": translation_perplexity,
    "bleu": translation_bleu,
}
