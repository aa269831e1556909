"""A number together with what produced it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, NamedTuple

from nnrs.registry import look_up

Curve = Mapping[
    str, Sequence[float | None]
]  # rows by name, a column for each step; None where nothing is known


class Family(NamedTuple):
    """What all scores of one kind have in common."""

    better: str  # higher | lower
    digits: int = 4  # behind the point, when printed
    least: float = -math.inf  # that a mean can be, where intervals end at it


# A metric is of the longest family that its name begins with: ppl-decile10 is a ppl.
FAMILIES = {
    "ppl": Family("lower", 2, least=1.0),
    "bleu": Family("higher", 2),  # of a translation, in percent
    "bleu4": Family("higher", 2),  # in percent, as in the paper
    "corpus-bleu4": Family("higher", 2),
    "self-bleu4": Family("lower", 2),  # the lower, the more diverse
    "wmd": Family("lower"),
    "wmd-similarity": Family("higher"),
    "wmd-scaled": Family("higher"),
    "self-wmd": Family("higher"),  # the higher, the more diverse
    "excess-nats": Family("lower"),
    "own-accuracy": Family("higher"),
    "recovery-nats": Family("lower"),
    "ex-acc-err": Family("lower", 2),  # in percent
    "rep-4": Family("lower"),
    "distinct-2": Family("higher"),
}
# The parts of a signature in which runs that are to be compared may differ: what the method is, and its seed.
METHOD_PARTS = {
    *(
        "policy",
        "eps",
        "ss",
        "gamma",
        "k",
        "tau",
        "granularity",
        "replace",
        "draw",
        "search",
        "transition_row",
    ),
    *("vectors", "config", "seed"),
}


def family_of(metric: str) -> Family:
    """The family that a metric is of, by its name."""
    names = [name for name in FAMILIES if f"{metric}-".startswith(f"{name}-")]
    return look_up(FAMILIES, max(names, key=len, default=metric), "metric")


def signature_parts(signature: str) -> dict[str, str]:
    """What a signature says, by name.

    >>> signature_parts("bleu4|n:1000|decode:sample|split:test")
    {'bleu4': '', 'n': '1000', 'decode': 'sample', 'split': 'test'}
    """
    return dict(part.partition(":")[::2] for part in signature.split("|"))


@dataclass(frozen=True)
class Score:
    """A value that travels with its signature, in sacreBLEU's manner, and with its interval where it has one.

    >>> print(Score("ppl", 81.204, "data:ptb|split:test|seed:7"))
    ppl|data:ptb|split:test|seed:7 = 81.20
    """

    metric: str
    value: float
    signature: str
    interval: tuple[float, float] | None = None  # the ends of 95%, by bootstrap
    curve: Curve | None = None  # what the value is a point of

    @property
    def family(self) -> Family:
        """Whether higher or lower is better, and how it is printed."""
        return family_of(self.metric)

    @property
    def parts(self) -> dict[str, str]:
        """What the signature says, by name."""
        return signature_parts(self.signature)

    def shown(self) -> str:
        """The value as it is printed."""
        return f"{self.value:z.{self.family.digits}f}"  # z: no minus before nothing

    def shown_interval(self) -> str:
        """The interval as it is printed; empty where there is none.

        >>> Score("ppl", 81.204, "seed:7", (80.1, 82.34)).shown_interval()
        '80.10 to 82.34'
        """
        return " to ".join(f"{end:.{self.family.digits}f}" for end in self.interval or ())

    def __str__(self) -> str:
        return f"{self.metric}|{self.signature} = {self.shown()}"

    def as_dict(self) -> dict[str, Any]:
        """The score as plain values, for JSON."""
        values = {"metric": self.metric, "value": self.value, "signature": f"{self.metric}|{self.signature}"}
        more = {"better": self.family.better, "interval": list(self.interval) if self.interval else None}
        return {**values, **more, **({"curve": self.curve} if self.curve else {})}


def common_signature(scores: Sequence[Score]) -> str:
    """What the signatures of scores have in common, in the order of the first.

    >>> common_signature([Score("ppl", 9.0, "n:5|split:test|v:1"), Score("bleu4", 8.0, "split:test|v:1")])
    'split:test|v:1'
    """
    every = [score.parts.items() for score in scores]
    return "|".join(
        f"{name}:{value}" for name, value in every[0] if all((name, value) in one for one in every)
    )


def differences(scores: Sequence[Score]) -> dict[str, list[str]]:
    """In which parts the signatures of scores differ, method and seed apart, and what stands there.

    >>> differences([Score("ppl", 9.0, "n:5|seed:1"), Score("ppl", 8.0, "n:7|seed:2")])
    {'n': ['5', '7']}
    """
    names = dict.fromkeys(name for score in scores for name in score.parts if name not in METHOD_PARTS)
    found = {name: list(dict.fromkeys(score.parts.get(name, "none") for score in scores)) for name in names}
    return {name: values for name, values in found.items() if len(values) > 1}


@dataclass(frozen=True)
class SeedMean:
    """Scores that differ in their seed alone, as one: the mean, and the standard deviation over the seeds."""

    scores: tuple[Score, ...]

    @property
    def value(self) -> float:
        """The mean."""
        return fmean(score.value for score in self.scores)

    @property
    def sd(self) -> float:
        """The standard deviation, of which a single seed has none."""
        return stdev(score.value for score in self.scores)

    @property
    def signature(self) -> str:
        """What the scores share, and all that they say of seed and number of sentences.

        >>> SeedMean((Score("ppl", 9.0, "n:5|seed:1"), Score("ppl", 8.0, "n:5|seed:2"))).signature
        'n:5|seed:1,2'
        """
        every = [score.parts for score in self.scores]
        told = {name: dict.fromkeys(parts[name] for parts in every) for name in every[0]}
        return "|".join(f"{name}:{','.join(values)}" for name, values in told.items())

    def shown(self) -> tuple[str, str]:
        """Mean and deviation as they are printed."""
        digits = self.scores[0].family.digits
        return f"{self.value:.{digits}f}", f"± {self.sd:.{digits}f} (sd)"

    def __str__(self) -> str:
        return f"{self.scores[0].metric}|{self.signature} = {' '.join(self.shown())}"

    def as_dict(self) -> dict[str, Any]:
        """The mean as plain values, for JSON."""
        first = self.scores[0]
        return {
            "metric": first.metric,
            "value": self.value,
            "signature": f"{first.metric}|{self.signature}",
            "better": first.family.better,
            "sd": self.sd,
            "seeds": [int(score.parts["seed"]) for score in self.scores],
        }


def over_seeds(scores: Sequence[Score]) -> list[SeedMean]:
    """The means of those scores that say the same of everything but their seed, no seed twice.

    >>> same, other = [Score("ppl", 9.0, "k:5|seed:1"), Score("ppl", 8.0, "k:5|seed:2")], "k:6|seed:3"
    >>> [(mean.value, mean.signature) for mean in over_seeds([*same, Score("ppl", 7.0, other)])]
    [(8.5, 'k:5|seed:1,2')]
    """
    return [SeedMean(tuple(group)) for group in _alike(scores) if len(group) > 1 and not _repeats(group)]


def seeds_at_odds(scores: Sequence[Score]) -> list[Score]:
    """Of those that have no mean because one seed has several values, the first."""
    return [group[0] for group in _alike(scores) if _repeats(group)]


def _alike(scores: Sequence[Score]) -> list[list[Score]]:
    """Scores that say the same of everything but their seed, together; that of a copy of a run counts once.

    How many sentences could be compared is an outcome, too, and may differ.
    """
    alike: dict[tuple[str, ...], dict[tuple[str, float], Score]] = {}
    for score in scores:
        told = (f"{name}:{value}" for name, value in score.parts.items() if name not in ("seed", "n"))
        alike.setdefault((score.metric, *told), {})[score.signature, score.value] = score
    return [list(group.values()) for group in alike.values()]


def _repeats(scores: Sequence[Score]) -> bool:
    """Whether a seed comes several times."""
    return len({score.parts.get("seed") for score in scores}) < len(scores)
