"""Results that differ in nothing but the seed, taken together."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev

from nnrs.experiments.config import leaves
from nnrs.experiments.plan import is_bare
from nnrs.experiments.score_keys import ScoreKeys, version_of
from nnrs.experiments.store import Result
from nnrs.run_directory import Json


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
    keys: ScoreKeys
    apart: dict[str, str]  # labels that they have beside their own

    @cached_property
    def labels(self) -> dict[str, str]:
        """What a reader calls them."""
        return {**self.results[0].labels, **self.apart}

    @property
    def method(self) -> str:
        """How they were trained."""
        return self.labels["method"]

    @property
    def corpus(self) -> str:
        """The name of their text."""
        return self.results[0].corpus

    @property
    def kind(self) -> str:
        """Of their models: lstm, gru, ..."""
        return str(self.results[0].record["config"]["model"]["kind"])

    @property
    def place(self) -> str:
        """The text that they are of, and the version where there are several: what stands in one table."""
        text = self.labels.get("corpus", self.corpus)
        return ", ".join([text, *(f"{name} {value}" for name, value in self.apart.items())])

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
    def scored(self) -> dict[str, dict[int, Json]]:
        """The scores by key and seed; seeds whose scores were made in different ways are under different keys."""
        found: dict[str, dict[int, Json]] = {}
        for result in self.results:
            for key, score in self.keys.named(result):
                found.setdefault(key, {})[result.seed] = score
        return found

    @cached_property
    def scores(self) -> dict[str, dict[int, float]]:
        """Their values."""
        return {
            key: {seed: score["value"] for seed, score in by_seed.items()}
            for key, by_seed in self.scored.items()
        }

    def score(self, key: str) -> Spread:
        """Over the seeds that have it."""
        return Spread.of(list(self.scores.get(key, {}).values()))

    def rate(self, kind: str, source: str) -> float:
        """The mean over seeds of a `dose` (asked for) or `effective` rate (replaced up to the epoch scored)."""
        return fmean(result.record[kind][source] for result in self.results)


def grouped(results: Iterable[Result]) -> list[Group]:
    """The groups in the order of their first runs; of two results with one seed the first counts.

    Runs of different versions are different groups, which a label says.
    """
    every = list(results)
    members: dict[tuple[str, str], dict[int, Result]] = {}
    for result in every:
        place = result.group, version_of(str(result.record["signature"]))
        members.setdefault(place, {}).setdefault(result.seed, result)
    several, keys = len({version for _, version in members}) > 1, ScoreKeys(every)
    return [
        Group(tuple(by_seed.values()), keys, {"version": version} if several else {})
        for (_, version), by_seed in members.items()
    ]


def names_of(groups: Sequence[Group]) -> list[str]:
    """What each is called: the labels in which they differ, bare values with their names.

    Texts and models are told wherever they differ. Those that are still called the same are told apart by their
    settings, and then by their fingerprints.
    """
    varying = varying_labels(groups)
    names = [_name(group, varying) for group in groups]
    for label, values in (
        ("corpus", [group.corpus for group in groups]),
        ("model", [group.kind for group in groups]),
    ):
        if len({*values}) > 1:
            names = [
                name if label in group.labels else f"{name} · {value}"
                for name, group, value in zip(names, groups, values, strict=True)
            ]
    return _told_apart(_told_apart(names, groups, _differences), groups, _fingerprints)


def _told_apart(
    names: Sequence[str], groups: Sequence[Group], tell: Callable[[Sequence[Group]], list[str]]
) -> list[str]:
    """The names; behind one that several groups have, what tells these apart."""
    told = list(names)
    for name in [name for name, times in Counter(names).items() if times > 1]:
        places = [place for place, other in enumerate(names) if other == name]
        for place, text in zip(places, tell([groups[place] for place in places]), strict=True):
            told[place] = f"{name} · {text}" if text else name
    return told


def _differences(groups: Sequence[Group]) -> list[str]:
    """The settings in which groups differ; files apart, which have other names elsewhere."""
    configs = [dict(leaves(group.results[0].record["config"])) for group in groups]
    names = dict.fromkeys(
        name for config in configs for name in config if not name.endswith((".source", "seed"))
    )
    varying = [name for name in names if len({str(config.get(name)) for config in configs}) > 1]
    return [
        " · ".join(f"{name.split('.', 1)[1]} {config[name]}" for name in varying if name in config)
        for config in configs
    ]


def _fingerprints(groups: Sequence[Group]) -> list[str]:
    return [group.results[0].group for group in groups]


def varying_labels(groups: Sequence[Group]) -> list[str]:
    """The labels in which groups differ, or the method where they differ in none."""
    names = dict.fromkeys(name for group in groups for name in group.labels)
    varying = [name for name in names if len({group.labels.get(name) for group in groups}) > 1]
    if "row" in varying and "method" in varying:
        varying.remove("method")  # a row of the paper says its method
    return varying or ["method"]


def _name(group: Group, varying: Sequence[str]) -> str:
    told = [(name, group.labels[name]) for name in varying if name in group.labels]
    texts = [f"{name} {text}" if is_bare(text) else text for name, text in told]
    return " · ".join(texts) or group.method
