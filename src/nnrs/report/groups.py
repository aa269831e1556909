"""Groups of runs as a page shows them: what they are called, their scores with intervals, their curves."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import fmean
from typing import Any

from nnrs.experiments.groups import Group, grouped, score_key
from nnrs.experiments.store import Result, signature_parts
from nnrs.metrics.contrasts import t_interval
from nnrs.run_directory import Json

SHOWN = 6  # groups that the plots show at first
DETAILED = 400  # groups whose curves, samples and trajectories are in the page
RATES = (
    "prediction_rate",
    "neighbor_rate",
    "effective_prediction_rate",
    "effective_neighbor_rate",
    "temperature",
    "effective_neighbors",
)


@dataclass(frozen=True)
class Mean:
    """One metric of one group: its mean over the seeds, how far they spread, and the ends of 95 %."""

    mean: float
    low: float | None
    high: float | None
    values: dict[int, float]  # by seed
    head: str  # of the signature: how the metric was computed

    @staticmethod
    def of(values: dict[int, float], interval: Sequence[float] | None, head: str) -> "Mean":
        """Student's interval over several seeds; of a single one the score's own, by bootstrap."""
        ends = t_interval(list(values.values())) if len(values) > 1 else interval
        low, high = ends or (None, None)
        return Mean(fmean(values.values()), low, high, values, head)


class Shown:
    """The runs of one setting, in order of their seeds, under a name of their own."""

    def __init__(self, group: Group, name: str) -> None:
        self.name = name
        self.records = [result.record for result in sorted(group.results, key=lambda result: result.seed)]
        self.first = self.records[0]
        self.labels: dict[str, str] = self.first["labels"]
        self.seeds = [int(record["seed"]) for record in self.records]

    @property
    def corpus(self) -> str:
        """The text it was trained on."""
        return str(self.first["names"]["corpus"])

    @cached_property
    def scores(self) -> dict[str, Mean]:
        """Every metric by `metric|split` or `metric|split|decode`; a perplexity of the summary is one, too."""
        values: dict[str, dict[int, float]] = defaultdict(dict)
        intervals: dict[str, Sequence[float] | None] = {}
        heads: dict[str, str] = {}
        for record in self.records:
            for key, value, interval, head in _scores_of(record):
                values[key][record["seed"]] = value
                intervals[key], heads[key] = interval, head
        return {key: Mean.of(values[key], intervals[key], heads[key]) for key in values}

    @cached_property
    def valid(self) -> float:
        """The mean validation perplexity, by which groups are chosen."""
        return fmean(float(record["valid_perplexity"]) for record in self.records)

    def curves(self) -> dict[str, list[float | None]]:
        """Means over the seeds at each epoch; of the validation perplexity the lowest and highest seed, too."""
        runs = [record["epochs"] for record in self.records]
        valid = [_at(runs, epoch, "valid_perplexity") for epoch in range(max(map(len, runs)))]
        made: dict[str, list[float | None]] = {
            "valid": [_mean(values) for values in valid],
            "low": [min(values, default=None) for values in valid],
            "high": [max(values, default=None) for values in valid],
        }
        for name in RATES:
            made[name] = [_mean(_at(runs, epoch, name)) for epoch in range(len(valid))]
        return made

    def exposure(self) -> Json | None:
        """The excess loss at each step on the model's own history, and how many of the last steps are gold again."""
        found = [
            (score["curve"], signature_parts(score["signature"]))
            for record in self.records
            for score in record["scores"]
            if score.get("curve") and score["metric"].startswith("excess-nats")
        ]
        if not found:
            return None
        alike = [curve for curve, parts in found if _how(parts) == _how(found[0][1])]
        columns = list(zip(*(curve["excess_nats"] for curve in alike), strict=False))
        one = alike[0] if len(alike) == 1 else None
        return {
            "excess": [fmean(column) for column in columns],
            "low": one["excess_low"] if one else [min(column) for column in columns],
            "high": one["excess_high"] if one else [max(column) for column in columns],
            "recovery": int(found[0][1].get("recovery", 0)),
        }


def shown_groups(results: Iterable[Result]) -> list[Shown]:
    """The groups in the order in which they first appear, named by what tells them apart."""
    groups = grouped(results)
    names = _names(groups)
    several = Counter(names)
    return [
        Shown(group, f"{name} · {group.results[0].group}" if several[name] > 1 else name)
        for group, name in zip(groups, names, strict=True)
    ]


def varying_labels(groups: Sequence[Group] | Sequence[Shown]) -> list[str]:
    """The labels in which groups differ, or the method where they differ in none."""
    names = dict.fromkeys(name for group in groups for name in group.labels)
    varying = [name for name in names if len({group.labels.get(name) for group in groups}) > 1]
    if "row" in varying and "method" in varying:
        varying.remove("method")  # a row of the paper says its method
    return varying or ["method"]


def detailed(groups: Sequence[Shown]) -> list[int]:
    """The groups to be shown in detail: all, or the best of each method and text first, then the best of the rest."""
    order = sorted(range(len(groups)), key=lambda index: groups[index].valid)
    firsts: dict[tuple[str, str], int] = {}
    for index in order:
        firsts.setdefault((groups[index].labels["method"], groups[index].corpus), index)
    return sorted(list(dict.fromkeys([*firsts.values(), *order]))[:DETAILED])


def shown_at_first(groups: Sequence[Shown], candidates: Sequence[int]) -> list[int]:
    """The best group of each method on the text that most groups are of, by validation; all where they are few."""
    corpus = Counter(groups[index].corpus for index in candidates).most_common(1)[0][0]
    there = [index for index in candidates if groups[index].corpus == corpus]
    if len(there) <= SHOWN:
        return there
    best: dict[str, int] = {}
    for index in sorted(there, key=lambda index: groups[index].valid):
        best.setdefault(groups[index].labels["method"], index)
    chosen = list(best.values())[:SHOWN]
    rest = [index for index in there if index not in chosen]
    return sorted([*chosen, *rest[: max(SHOWN - 2 - len(chosen), 0)]])


@cache  # the beginnings are few, however many runs there are
def _key(head: str) -> str:
    return score_key(head.partition("|")[0], head)


def _scores_of(record: Json) -> Iterator[tuple[str, float, Sequence[float] | None, str]]:
    """Key, value, interval and the signature's beginning of each score, the summary's perplexities first."""
    test = str(record["signature"]).partition("|data:")[0]
    for split in ("valid", "test"):
        head = test.replace("split:test", f"split:{split}")
        yield f"ppl|{split}", float(record[f"{split}_perplexity"]), None, head
    for score in record["scores"]:
        head = str(score["signature"]).partition("|data:")[0]
        yield _key(head), float(score["value"]), score.get("interval"), head


def _names(groups: Sequence[Group]) -> list[str]:
    """Each group's labels that vary; a number with what it counts."""
    varying = varying_labels(groups)
    made = []
    for group in groups:
        told = [(name, group.labels[name]) for name in varying if name in group.labels]
        texts = [f"{name} {text}" if text[:1].isdecimal() else text for name, text in told]
        made.append(" · ".join(texts) or group.method)
    return made


def _how(parts: dict[str, str]) -> tuple[str | None, str | None]:
    return parts.get("split"), parts.get("decode")


def _at(runs: Sequence[Sequence[Json]], epoch: int, name: str) -> list[float]:
    found = [run[epoch].get(name) for run in runs if epoch < len(run)]
    return [float(value) for value in found if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def rounded(value: Any, digits: int = 6) -> Any:
    """Numbers to so many significant digits, also within lists and tables; what JSON cannot say becomes null."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if value - value == 0 else None
    if isinstance(value, dict):
        return {name: rounded(item, digits) for name, item in value.items()}
    return [rounded(item, digits) for item in value] if isinstance(value, list | tuple) else value
