"""Table 1 filled with results: ours beside the paper's, the best of each group chosen on validation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from nnrs.experiments.groups import Group, grouped
from nnrs.experiments.paper import NO_SAMPLING, SCHEDULES, Row, configurations, published
from nnrs.experiments.store import Result

LEGEND = (
    "valid / test ± sd over seeds, then the paper's and our difference to it on test, then what was asked of "
    "predictions ε and neighbors γ over all epochs > what was really replaced up to the epoch that is scored. "
    "* best on validation of its group and schedule, ** of all"
)


class Printed(NamedTuple):
    """A table to be printed."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Entry:
    """A configuration of Table 1 under a schedule on a text."""

    row: Row
    schedule: str
    corpus: str
    group: Group
    mark: str = ""  # * or **

    @property
    def paper(self) -> dict[str, float]:
        """The printed values."""
        return published({"row": self.row.name, "schedule": self.schedule, "corpus": self.corpus})

    @property
    def difference(self) -> float | None:
        """Our mean test perplexity minus the paper's."""
        theirs = self.paper.get("ppl|test")
        return None if theirs is None else self.group.perplexity("test").mean - theirs


def entries(results: Sequence[Result]) -> list[Entry]:
    """Table 1 as far as there are results, line by line; teacher forcing stands under each schedule, as printed."""
    made = []
    for group in grouped(results):
        row = configurations().get(group.labels.get("row", ""))
        if row is not None and "model" not in group.labels:
            own = SCHEDULES if row.name == NO_SAMPLING else (group.labels["schedule"],)
            made += [Entry(row, schedule, group.labels["corpus"], group) for schedule in own]
    names = list(configurations())
    made.sort(key=lambda entry: (names.index(entry.row.name), SCHEDULES.index(entry.schedule)))
    return [replace(entry, mark=_mark(entry, made)) for entry in made]


def table1(results: Sequence[Result]) -> list[Printed]:
    """The paper's layout, a table for each text: configurations by schedules."""
    found = entries(results)
    return [
        _perplexities(place, [entry for entry in found if entry.group.place == place])
        for place in places(found)
    ]


def table1_lines(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The same as records: the columns of the paper's own table, then ours."""
    found = entries(results)
    return [_line(entry) for place in places(found) for entry in found if entry.group.place == place]


def places(found: Sequence[Entry]) -> list[str]:
    """The texts, each of which has a table."""
    return list(dict.fromkeys(entry.group.place for entry in found))


def _mark(entry: Entry, entries: Sequence[Entry]) -> str:
    """Whether it is the best on validation: of its group under its schedule, and of all on its text."""

    def is_best(others: Sequence[Entry]) -> bool:
        return min(others, key=_valid).group is entry.group

    of_text = [other for other in entries if other.group.place == entry.group.place]
    alike = [
        other for other in of_text if (other.row.family, other.schedule) == (entry.row.family, entry.schedule)
    ]
    if is_best(of_text):
        return "**"
    return "*" if len(alike) > 1 and is_best(alike) else ""


def _valid(entry: Entry) -> float:
    return entry.group.perplexity("valid").mean


def _perplexities(place: str, found: Sequence[Entry]) -> Printed:
    by_row: dict[Row, dict[str, str]] = {}
    for entry in found:
        by_row.setdefault(entry.row, {})[entry.schedule] = _cell(entry)
    columns = ("configuration", "ε", "γ", *SCHEDULES)
    lines = [
        (
            row.name,
            _arrow(row.prediction_rate),
            _arrow(row.neighbor_rate),
            *(cells.get(name, "-") for name in SCHEDULES),
        )
        for row, cells in by_row.items()
    ]
    return Printed(f"{place}. {LEGEND}", columns, lines)


def _cell(entry: Entry) -> str:
    group, theirs = entry.group, entry.paper
    valid, test = group.perplexity("valid"), group.perplexity("test")
    lines = [f"{valid.mean:.2f} / {test}{entry.mark}"]
    if entry.difference is not None:
        lines.append(f"{theirs['ppl|valid']:.2f} / {theirs['ppl|test']:.2f} {entry.difference:+.2f}")
    return "\n".join([*lines, *shown_rates(group)])


def _arrow(rate: str) -> str:
    return rate.replace(":", "→") if rate != "0:0" else "0"


def _line(entry: Entry) -> dict[str, Any]:
    group, theirs = entry.group, entry.paper
    valid, test = group.perplexity("valid"), group.perplexity("test")
    ends = [end for rate in (entry.row.prediction_rate, entry.row.neighbor_rate) for end in rate.split(":")]
    return {
        "configuration": entry.row.name,
        **dict(zip(("eps_start", "eps_end", "gamma_start", "gamma_end"), map(float, ends), strict=True)),
        "corpus": entry.corpus,
        "schedule": entry.schedule,
        "valid_ppl": theirs.get("ppl|valid"),
        "test_ppl": theirs.get("ppl|test"),
        "our_valid_ppl": valid.mean,
        "our_valid_sd": valid.sd,
        "our_test_ppl": test.mean,
        "our_test_sd": test.sd,
        "difference": entry.difference,
        "best": entry.mark,
        **rates(group),
        "best_epoch": " ".join(str(result.record["best_epoch"]) for result in group.results),
        "seeds": " ".join(map(str, group.seeds)),
        "signature": over_seeds(str(group.results[0].record["signature"]), group),
    }


def shown_rates(group: Group) -> list[str]:
    """What was asked for > what the scored model saw replaced, a line for each source that was asked for."""
    return [
        f"{letter} {group.rate('dose', source):.2f} > {group.rate('effective', source):.2f}"
        for letter, source in (("ε", "prediction"), ("γ", "neighbor"))
        if group.rate("dose", source) > 0
    ]


def rates(group: Group) -> dict[str, float]:
    """What was asked for over all epochs, and what was really replaced up to those that are scored."""
    asked = {f"dose_{source}": group.rate("dose", source) for source in ("prediction", "neighbor")}
    return asked | {
        f"effective_{source}": group.rate("effective", source) for source in ("prediction", "neighbor", "all")
    }


def over_seeds(signature: str, group: Group) -> str:
    """The signature of one of the runs, with the seeds of all."""
    seeds = ",".join(map(str, group.seeds))
    return "|".join(f"seed:{seeds}" if part.startswith("seed:") else part for part in signature.split("|"))
