"""The columns of the page's table: which metrics stand in it, what each is called, and where better lies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt

from nnrs.metrics.score import family_of
from nnrs.report.shown import Shown, rounded
from nnrs.run_directory import Json

# metric -> the set that it stands in, what a reader calls it, and what it is, in a few words
TABLED = {
    "ppl": ("perplexity", "perplexity", "exp of the mean loss on gold histories"),
    "bleu": ("text", "BLEU", "of translations, by sacreBLEU"),
    "bleu4": ("text", "BLEU-4", "mean over sentences, against the gold continuation"),
    "corpus-bleu4": ("text", "corpus BLEU-4", "all sentences together"),
    "self-bleu4": ("text", "self-BLEU-4", "against other generated sentences: low is diverse"),
    "wmd-scaled": ("text", "WMD similarity", "to the gold continuation, scaled to [0, 1]"),
    "self-wmd": ("text", "self-WMD", "distance to other generated sentences: high is diverse"),
    "rep-4": ("text", "rep-4", "share of 4-grams said before"),
    "distinct-2": ("text", "distinct-2", "share of different 2-grams"),
    "excess-nats": ("own history", "excess nats", "what the model's own history costs"),
    "recovery-nats": ("own history", "after recovery", "the same, gold tokens later"),
    "own-accuracy": ("own history", "own accuracy", "gold token likeliest on its own history"),
    "ex-acc-err": ("own history", "%ExAccErr", "error that has accumulated, against a better model"),
}
DOSES = {
    "dose|prediction": ("ε dose", "mean rate of predictions that was asked for, over epochs and seeds"),
    "dose|neighbor": ("γ dose", "mean rate of neighbors that was asked for, over epochs and seeds"),
    "effective|all": (
        "replaced",
        "share of inputs really replaced up to the epoch that is scored, over seeds",
    ),
}
Published = Callable[[Mapping[str, str]], Mapping[str, float]]


@dataclass(frozen=True)
class Column:
    """A metric as it stands in the table."""

    key: str
    label: str
    shelf: str | None  # None: on all of them
    about: str
    better: str | None  # None where neither is
    digits: int


def columns_of(groups: Sequence[Shown]) -> list[Column]:
    """A column for each metric that some group has, in the order of `TABLED`, then the doses."""
    keys = dict.fromkeys(key for group in groups for key in group.scores if _tabled(key))
    order = list(TABLED)
    scored = sorted(keys, key=lambda key: (order.index(_tabled(key) or ""), _numbers(key)))
    return [*(_column(key, list(keys)) for key in scored), *_dose_columns()]


def column_values(column: Column, groups: Sequence[Shown], heads: dict[str, int]) -> Json:
    """The column by group: mean, ends and spread; and by run. `heads` numbers the beginnings of signatures."""
    if column.key in DOSES:
        return _dose_values([group.dose(column.key) for group in groups])
    means = [group.scores.get(column.key) for group in groups]
    named = [None if mean is None else heads.setdefault(mean.head, len(heads)) for mean in means]
    return {
        "mean": rounded([mean and mean.mean for mean in means]),
        "low": rounded([mean and mean.low for mean in means]),
        "high": rounded([mean and mean.high for mean in means]),
        "sd": rounded([_spread(list(mean.values.values())) if mean else None for mean in means]),
        "head": named[0] if len(set(named)) == 1 else named,
        "runs": rounded(
            [
                mean.values.get(seed) if mean else None
                for group, mean in zip(groups, means, strict=True)
                for seed in group.seeds
            ]
        ),
    }


def _dose_values(doses: Sequence[Mapping[int, float]]) -> Json:
    """Rates have a mean over the seeds; an interval would say nothing of a number that was asked for."""
    nothing: list[None] = [None] * len(doses)
    return {
        "mean": rounded([fsum(by_seed.values()) / len(by_seed) for by_seed in doses]),
        **dict.fromkeys(("low", "high", "sd"), nothing),
        "head": None,
        "runs": rounded([rate for by_seed in doses for rate in by_seed.values()]),
    }


def paper_columns(columns: Sequence[Column], groups: Sequence[Shown], published: Published) -> Json:
    """The paper's values by column and group, for the columns that have any."""
    found = [published(group.labels) for group in groups]
    made = {column.key: [_of_paper(values, column.key) for values in found] for column in columns}
    return {key: values for key, values in made.items() if any(value is not None for value in values)}


def _of_paper(values: Mapping[str, float], key: str) -> float | None:
    """The paper names no decoding."""
    return values.get(key, values.get("|".join(key.split("|")[:2])))


def _tabled(key: str) -> str | None:
    """The longest name in `TABLED` that the metric begins with, rare words and noise apart: those are plotted."""
    metric = key.partition("|")[0]
    if metric.startswith("ppl-"):
        return None
    return max((name for name in TABLED if f"{metric}-".startswith(f"{name}-")), key=len, default=None)


def _column(key: str, keys: Sequence[str]) -> Column:
    metric, split, *more = key.split("|")
    name = _tabled(key) or metric
    shelf, label, about = TABLED[name]
    family = family_of(metric)
    told = [metric.removeprefix(f"{name}-")] if metric != name else []
    of_metric = [other.split("|") for other in keys if other.partition("|")[0] == metric]
    if name == "ppl" or len({other[1] for other in of_metric}) > 1:
        told.append(split)
    if len({tuple(other[2:]) for other in of_metric}) > 1:
        told += more
    return Column(key, f"{label} {' '.join(told)}".strip(), shelf, about, family.better, family.digits)


def _dose_columns() -> list[Column]:
    return [Column(key, label, None, about, None, 3) for key, (label, about) in DOSES.items()]


def _spread(values: Sequence[float]) -> float | None:
    """The standard deviation; `statistics` would take most of the time that a page takes."""
    if len(values) < 2:
        return None
    mean = fsum(values) / len(values)
    return sqrt(fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _numbers(key: str) -> tuple[object, ...]:
    """So that h5 stands before h10 and valid before test."""
    metric, split = key.split("|")[:2]
    number = "".join(letter for letter in metric if letter.isdecimal())
    return (metric.rstrip("0123456789"), int(number or 0), ("train", "valid", "test").index(split), key)
