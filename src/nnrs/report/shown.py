"""Groups of runs as a page shows them: what they are called, their scores with intervals, their curves."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from nnrs.experiments.groups import Group, grouped, names_of
from nnrs.experiments.score_keys import version_of
from nnrs.experiments.store import Result
from nnrs.metrics.contrasts import t_interval
from nnrs.metrics.score import family_of, signature_parts
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
    head: str  # its signature, with {run} for what the run is

    @staticmethod
    def of(key: str, values: dict[int, float], interval: Sequence[float] | None, head: str) -> "Mean":
        """Student's interval over several seeds; of a single one the score's own, by bootstrap."""
        least = family_of(key.partition("|")[0]).least
        ends = t_interval(list(values.values()), least) if len(values) > 1 else interval
        low, high = ends or (None, None)
        return Mean(fmean(values.values()), low, high, values, head)


class Shown:
    """The runs of one setting, in order of their seeds, under a name of their own."""

    def __init__(self, group: Group, name: str) -> None:
        self.group, self.name, self.labels = group, name, group.labels
        self.records = [result.record for result in sorted(group.results, key=lambda result: result.seed)]
        self.first = self.records[0]
        self.seeds = [int(record["seed"]) for record in self.records]

    @property
    def corpus(self) -> str:
        """The text it was trained on."""
        return str(self.first["names"]["corpus"])

    @property
    def run(self) -> str:
        """What the runs are, as their signatures say it, with {seed} for the seed and without the version."""
        _, _, run = str(self.first["signature"]).partition("|data:")
        return f"data:{run.partition('|v:')[0]}".replace(f"|seed:{self.seeds[0]}", "|seed:{seed}")

    @cached_property
    def scores(self) -> dict[str, Mean]:
        """Every score by its key, the perplexities of the runs' own summaries first."""
        made = {}
        for split in ("valid", "test"):
            key, own = f"ppl|{split}", str(self.first["signature"]).replace("split:test", f"split:{split}")
            values = {int(record["seed"]): float(record[f"{split}_perplexity"]) for record in self.records}
            made[key] = Mean.of(key, values, _interval(self.group.scored.get(key, {})), head_of([own]))
        for key, by_seed in self.group.scored.items():
            if key not in made:
                values = {seed: float(score["value"]) for seed, score in by_seed.items()}
                head = head_of([str(score["signature"]) for score in by_seed.values()])
                made[key] = Mean.of(key, values, _interval(by_seed), head)
        return made

    def dose(self, key: str) -> dict[int, float]:
        """By seed, a rate that was asked for or carried out: `dose|neighbor`, `effective|all`."""
        kind, _, source = key.partition("|")
        return {int(record["seed"]): record[kind][source] for record in self.records}

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

    def exposure(self, key: str | None) -> Json | None:
        """The excess loss at each step on the model's own history, and how many of the last steps are gold again."""
        found = [score for score in self.group.scored.get(key or "", {}).values() if score.get("curve")]
        if not found:
            return None
        columns = list(zip(*(score["curve"]["excess_nats"] for score in found), strict=False))
        one = found[0]["curve"] if len(found) == 1 else None
        return {
            "excess": [fmean(column) for column in columns],
            "low": one["excess_low"] if one else [min(column) for column in columns],
            "high": one["excess_high"] if one else [max(column) for column in columns],
            "recovery": int(signature_parts(found[0]["signature"]).get("recovery", 0)),
        }


def head_of(signatures: Sequence[str]) -> str:
    """What signatures of one metric say of it, with {run} for what the runs are; all that they say where they differ.

    >>> head_of(["wmd|n:9|split:test|data:ptb|seed:1|v:0.1.0", "wmd|n:8|split:test|data:ptb|seed:2|v:0.1.0"])
    'wmd|n:9,8|split:test|{run}|v:0.1.0'
    """
    told = dict.fromkeys((one.partition("|data:")[0], version_of(one)) for one in signatures)
    heads = [f"{head}|{{run}}" + (f"|v:{version}" if version else "") for head, version in told]
    if len(heads) == 1:
        return heads[0]
    columns = (dict.fromkeys(parts) for parts in zip(*(head.split("|") for head in heads), strict=True))
    return "|".join(",".join([one, *(part.partition(":")[2] for part in more)]) for one, *more in columns)


def common_key(groups: Sequence[Shown], wanted: Collection[str]) -> str | None:
    """Of these keys the one that most groups have, on the test split if any is: what a plot can show of all alike."""
    times = Counter(key for group in groups for key in group.scores if key in wanted)
    return max(times, key=lambda key: (key.split("|")[1] == "test", times[key]), default=None)


def shown_groups(results: Iterable[Result]) -> list[Shown]:
    """The groups in the order in which they first appear, named by what tells them apart."""
    groups = grouped(results)
    return [Shown(group, name) for group, name in zip(groups, names_of(groups), strict=True)]


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


def _interval(by_seed: dict[int, Json]) -> Sequence[float] | None:
    """The interval of a score, where there is one."""
    return next((score.get("interval") for score in by_seed.values()), None)


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
