"""Exposure bias as scores: curves over the steps h = 1, 2, ... on a model's own history, and points of them."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from nnrs.evaluation import exposure
from nnrs.evaluation.generate import decoding_of
from nnrs.experiments.generations import continuations, cut
from nnrs.experiments.oracle import Oracle, oracle_of
from nnrs.experiments.subject import TEACHER_FORCED, Request, Subject
from nnrs.experiments.text_scores import TooLittleTextError, interval, wmd_along
from nnrs.metrics.diversity import distinct, repetition
from nnrs.metrics.score import Curve, Score

RECOVERY = 5  # gold tokens after the model's own
MILESTONES = (1, 5, 10, 20)  # steps of a curve that are scores of their own, beside the last

Sign = Callable[[int, Sequence[str]], str]  # the number of sentences and a metric's own parts


def followed(request: Request) -> list[str]:
    """The decodings that write a history token by token, as exposure needs it."""
    return [name for name in request.decodings if name != TEACHER_FORCED and decoding_of(name).width == 1]


def exposure_lack(request: Request) -> str | None:
    """What such a request lacks for exposure, if anything."""
    if request.length < RECOVERY + 2:
        return (
            f"it needs a --length (in a grid file: length) of at least {RECOVERY + 2}, got {request.length}"
        )
    if not followed(request):
        return (
            "it follows its own history: add sample, greedy or top-p to --decode (in a grid file: decodings)"
        )
    return None


def exposure_scores(subject: Subject, split: str) -> Iterator[Score]:
    """How the model fares on its own history, step by step, and once the history is gold again."""
    oracle = subject.own.take(oracle_of, subject)
    for name in followed(subject.request):
        sign = partial(subject.sign, split, name)
        yield from _along(subject, split, name, sign)
        if oracle:
            yield from _accumulated(subject, split, name, oracle, sign)
        yield from _distances(subject, split, name, sign)
        yield from _variety(subject, split, name, sign)


def _along(subject: Subject, split: str, name: str, sign: Sign) -> Iterator[Score]:
    """What a model's own history costs the gold token, and how fast the model gets over it."""
    prefixes, gold = cut(subject.ids(split), subject.request)
    seen = exposure.evaluate(
        subject.loaded.model,
        prefixes,
        gold,
        decoding=decoding_of(name),
        recovery=RECOVERY + 1,  # the first of these columns still comes after nothing but its own tokens
        seed=subject.request.seed,
    )
    last = gold.shape[1] - RECOVERY
    signature = sign(len(gold), [f"recovery:{RECOVERY}"])
    excess = seen.own_nats - seen.gold_nats
    points = {f"excess-nats-h{h}": h for h in _milestones(last)}
    points |= {f"recovery-nats-{step}": last + step for step in range(1, RECOVERY + 1)}
    for metric, h in points.items():
        column = excess[:, h - 1 : h]
        whole = seen.curve() if metric == f"excess-nats-h{last}" else None
        yield Score(metric, float(column.mean()), signature, interval(column), whole)
    hits = seen.own_hits[:, :last].double().mean(dim=1, keepdim=True)
    yield Score("own-accuracy", float(hits.mean()), signature, interval(hits))


def _accumulated(subject: Subject, split: str, name: str, oracle: Oracle, sign: Sign) -> Iterator[Score]:
    """%ExAccErr: the regret that has accumulated on the model's own history, beyond what it would be without."""
    prefixes, gold = cut(subject.ids(split), subject.request)
    length, seed = gold.shape[1], subject.request.seed
    seen = exposure.accumulated_error(
        subject.loaded.model, oracle.model, prefixes, length=length, decoding=decoding_of(name), seed=seed
    )
    low, high = seen.interval()
    several = len(gold) > 1
    curve = {
        "excess_percent": seen.excess_percent().tolist(),
        "excess_low": low.tolist() if several else [None] * length,
        "excess_high": high.tolist() if several else [None] * length,
        "own_regret": seen.own.mean(0).tolist(),
        "oracle_regret": seen.oracle.mean(0).tolist(),
    }
    yield from _points("ex-acc-err", curve, sign(len(gold), [f"oracle:{oracle.name}"]))


def _distances(subject: Subject, split: str, name: str, sign: Sign) -> Iterator[Score]:
    """The word mover's distance of what was said up to each step to the gold text up to there."""
    if subject.no_distances:
        subject.note(f"{subject.directory.path}: wmd by step left out, for {subject.no_distances}")
        return
    space = subject.word_space
    gold, generated = continuations(subject, split, name)
    try:
        curve = wmd_along(space, generated, gold)
    except TooLittleTextError as error:
        subject.note(f"{subject.directory.path}: wmd by step ({split}, {name}) left out, for {error}")
        return
    compared = int(curve["compared"][-1] or 0)
    yield from _points("wmd", curve, sign(compared, [f"wmd-vectors:{space.name}"]))


def _points(metric: str, curve: Curve, signature: str) -> Iterator[Score]:
    """Some points of a curve, whose first three rows are values, lows and highs; the last one carries it whole."""
    values, lows, highs = list(curve.values())[:3]
    last = len(values)
    for h in _milestones(last):
        value, low, high = values[h - 1], lows[h - 1], highs[h - 1]
        if value is not None:
            ends = None if low is None or high is None else (low, high)
            yield Score(f"{metric}-h{h}", value, signature, ends, curve if h == last else None)


def _milestones(last: int) -> list[int]:
    return sorted({h for h in MILESTONES if h <= last} | {last})


def _variety(subject: Subject, split: str, name: str, sign: Sign) -> Iterator[Score]:
    """How much the generated text repeats itself."""
    words = continuations(subject, split, name).generated
    tokens = torch.tensor([subject.vocabulary.encode(line) for line in words])
    signature = sign(len(tokens), [])
    repeated = repetition(tokens, 4)[:, None]
    yield Score("rep-4", float(repeated.mean()), signature, interval(repeated))
    yield Score("distinct-2", distinct(tokens, 2), signature)
