"""Tables 2 and 3 filled with results: each way of predicting by itself, ours beside the paper's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nnrs.experiments.groups import Group, Spread, grouped
from nnrs.experiments.paper import COLUMNS, METRICS, MODELS, TABLE_METRICS, published
from nnrs.experiments.replication import Printed, over_seeds, rates, shown_rates
from nnrs.experiments.store import Result
from nnrs.experiments.subject import TEACHER_FORCED
from nnrs.metrics.score import Family, family_of

DECODINGS = ("sample", TEACHER_FORCED)
SPLITS = ("valid", "test")
# The paper's scale of these is not known (docs/paper.md#quality), so that a difference would mean nothing.
OTHER_SCALE = ("self_wmd", "wmd")
LEGEND = (
    "valid / test ± sd over seeds; then the paper's, which does not say how it predicted, and our difference to it "
    "on test; then what was asked of predictions ε and neighbors γ over all epochs > what was really replaced up to "
    "the epoch that is scored. * best of its line on validation"
)


@dataclass(frozen=True, eq=False)
class TextEntry:
    """A metric of one group, predicted in one way."""

    group: Group
    metric: str  # as the paper's table calls it
    how: str  # the way of predicting, and in what else scores of this text differ
    mark: str = ""  # * where it is the best

    @property
    def line(self) -> tuple[str, str, str, str]:
        """What the methods that are compared with each other have in common."""
        return self.group.place, self.how, self.metric, self.group.labels["model"]

    @property
    def family(self) -> Family:
        """Where better lies, and how many digits are shown."""
        return family_of(METRICS[self.metric])

    def ours(self, split: str) -> Spread:
        """Our values over the seeds."""
        return self.group.score(f"{METRICS[self.metric]}|{split}|{self.how}")

    def theirs(self, split: str) -> float | None:
        """The paper's value."""
        return published(self.group.labels).get(f"{METRICS[self.metric]}|{split}")

    @property
    def difference(self) -> float | None:
        """Our mean on test minus the paper's, where the two have one scale."""
        ours, theirs = self.ours("test"), self.theirs("test")
        return None if theirs is None or not ours.count or self.metric in OTHER_SCALE else ours.mean - theirs

    def signature(self) -> str:
        """Of our score on test, with the seeds of all runs."""
        found = self.group.scored.get(f"{METRICS[self.metric]}|test|{self.how}", {})
        return next((over_seeds(str(score["signature"]), self.group) for score in found.values()), "")


def text_table(table: str, results: Sequence[Result]) -> list[Printed]:
    """Table 2 or 3, one for each text and each way of predicting: metrics and models by methods."""
    found = {(*entry.line, entry.group.labels["row"]): entry for entry in text_entries(table, results)}
    return [
        Printed(
            f"{place}, {how.replace('|', ', ')}. {LEGEND}",
            ("metric", "model", *COLUMNS),
            [
                (
                    f"{METRICS[metric]} ({family_of(METRICS[metric]).better} is better)",
                    model,
                    *(_cell(found.get((place, how, metric, model, column))) for column in COLUMNS),
                )
                for metric in TABLE_METRICS[table]
                for model in MODELS
            ],
        )
        for place, how in dict.fromkeys(key[:2] for key in found)
    ]


def text_lines(table: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    """The same as records: the columns of the paper's own table, then ours."""
    return [_line(entry) for entry in text_entries(table, results)]


def text_entries(table: str, results: Sequence[Result]) -> list[TextEntry]:
    """What the table is made of, the best of each line marked."""
    groups = [group for group in grouped(results) if {"row", "model"} <= group.labels.keys()]
    hows: dict[str, dict[str, None]] = {}
    for group in groups:
        hows.setdefault(group.place, {}).update(dict.fromkeys(_hows(group, table)))
    made = [
        TextEntry(group, metric, how)
        for group in groups
        for how in sorted(hows[group.place], key=lambda how: DECODINGS.index(how.split("|")[0]))
        for metric in TABLE_METRICS[table]
    ]
    best = _best(made)
    return [replace(entry, mark="*" if entry is best.get(entry.line) else "") for entry in made]


def _hows(group: Group, table: str) -> list[str]:
    """The ways in which the table's metrics were measured: what stands behind metric and split."""
    metrics = [METRICS[metric] for metric in TABLE_METRICS[table]]
    split_up = [key.split("|", 2) for key in group.scores]
    known = [parts[2] for parts in split_up if parts[0] in metrics and parts[1] in SPLITS]
    return [how for how in known if how.split("|")[0] in DECODINGS]


def _best(entries: Sequence[TextEntry]) -> dict[tuple[str, ...], TextEntry]:
    """The best of each line on validation; none where there is nothing else in it."""
    lines: dict[tuple[str, ...], list[TextEntry]] = {}
    for entry in entries:
        if entry.ours("valid").count:
            lines.setdefault(entry.line, []).append(entry)
    choose = {"lower": min, "higher": max}
    return {
        line: choose[some[0].family.better](some, key=lambda entry: entry.ours("valid").mean)
        for line, some in lines.items()
        if len(some) > 1
    }


def _cell(entry: TextEntry | None) -> str:
    if entry is None:
        return "-"
    digits, valid = entry.family.digits, replace(entry.ours("valid"), sd=None)  # room for one spread
    lines = [f"{valid.shown(digits)} / {entry.ours('test').shown(digits)}{entry.mark}"]
    if entry.theirs("test") is not None:
        difference = "" if entry.difference is None else f" {entry.difference:+.{digits}f}"
        lines.append(f"{entry.theirs('valid'):.2f} / {entry.theirs('test'):.2f}{difference}")
    return "\n".join([*lines, *shown_rates(entry.group)])


def _line(entry: TextEntry) -> dict[str, Any]:
    group, ours = entry.group, {split: entry.ours(split) for split in SPLITS}
    return {
        "metric": entry.metric,
        "model": group.labels["model"],
        "corpus": group.labels["corpus"],
        "method": group.labels["row"],
        **{split: entry.theirs(split) for split in SPLITS},
        "our_metric": METRICS[entry.metric],
        "decode": entry.how,
        **{f"our_{split}": ours[split].mean if ours[split].count else None for split in SPLITS},
        **{f"our_{split}_sd": ours[split].sd for split in SPLITS},
        "difference": entry.difference,
        "best": entry.mark,
        **rates(group),
        "seeds": " ".join(map(str, group.seeds)),
        "signature": entry.signature(),
    }
