"""Results that differ in nothing but the seed, taken together."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import fmean, stdev

from nnrs.experiments.store import Result, signature_parts


@dataclass(frozen=True)
class Spread:
    """The mean of values, one a seed, and their standard deviation.

    >>> str(Spread.of([80.0, 82.0])), str(Spread.of([80.0])), str(Spread.of([]))
    ('81.00 ± 1.41', '80.00', '-')
    """

    mean: float
    sd: float | None  # None of a single value
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        """The spread of these values; of none it is not a number."""
        sd = stdev(values) if len(values) > 1 else None
        return Spread(fmean(values) if values else math.nan, sd, len(values))

    def shown(self, digits: int = 2) -> str:
        """As it is printed."""
        if not self.count:
            return "-"
        return f"{self.mean:.{digits}f}" + ("" if self.sd is None else f" ± {self.sd:.{digits}f}")

    def __str__(self) -> str:
        return self.shown()


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one configuration, one for each seed."""

    results: tuple[Result, ...]

    @property
    def labels(self) -> dict[str, str]:
        """What a reader calls them."""
        return self.results[0].labels

    @property
    def method(self) -> str:
        """How they were trained."""
        return self.labels["method"]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Theirs, rising."""
        return tuple(sorted(result.seed for result in self.results))

    def nats(self, split: str) -> dict[int, float]:
        """Nats per token by seed."""
        return {result.seed: float(result.record[f"{split}_nats"]) for result in self.results}

    def perplexity(self, split: str) -> Spread:
        """Over the seeds."""
        return Spread.of([result.record[f"{split}_perplexity"] for result in self.results])

    @cached_property
    def scores(self) -> dict[str, dict[int, float]]:
        """The scores by seed, under their metric, split and way of predicting: `bleu4|test|sample`."""
        found: dict[str, dict[int, float]] = {}
        for result in self.results:
            for score in result.scores:
                key = score_key(score["metric"], score["signature"])
                found.setdefault(key, {})[result.seed] = score["value"]
        return found

    def score(self, key: str) -> Spread:
        """Over the seeds that have it."""
        return Spread.of(list(self.scores.get(key, {}).values()))

    def rate(self, kind: str, source: str) -> float:
        """The mean over epochs and seeds of a `dose` (asked for) or `effective` rate (really replaced)."""
        return fmean(result.record[kind][source] for result in self.results)


def grouped(results: Iterable[Result]) -> list[Group]:
    """The groups in the order of their first runs; of two results with one seed the first counts."""
    members: dict[str, dict[int, Result]] = {}
    for result in results:
        members.setdefault(result.group, {}).setdefault(result.seed, result)
    return [Group(tuple(by_seed.values())) for by_seed in members.values()]


def score_key(metric: str, signature: str) -> str:
    """What tells a score of a run from its others.

    >>> score_key("bleu4", "bleu4|n:1000|decode:sample|split:test|seed:1")
    'bleu4|test|sample'
    """
    return _key(metric, signature.partition("|data:")[0])  # what the run is stands behind


@lru_cache(maxsize=4096)  # of thousands of runs a few dozen
def _key(metric: str, beginning: str) -> str:
    parts = signature_parts(beginning)
    return "|".join([metric, *(parts[name] for name in ("split", "decode") if name in parts)])
