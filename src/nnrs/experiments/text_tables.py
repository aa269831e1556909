"""Tables 2 and 3 filled with results: each way of predicting by itself, ours beside the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nnrs.experiments.groups import Group, Spread, grouped
from nnrs.experiments.paper import COLUMNS, METRICS, MODELS, TABLE_METRICS, published
from nnrs.experiments.replication import Printed, over_seeds, rates
from nnrs.experiments.store import Result
from nnrs.experiments.subject import TEACHER_FORCED
from nnrs.metrics.score import Score

DECODINGS = ("sample", TEACHER_FORCED)
SPLITS = ("valid", "test")
# The paper's scale of these is not known (docs/paper.md#quality), so that a difference would mean nothing.
OTHER_SCALE = ("self_wmd", "wmd")
LEGEND = "valid / test ± sd over seeds; below it the paper's, which does not say how it predicted"


def text_table(table: str, results: Sequence[Result]) -> list[Printed]:
    """Table 2 or 3, one for each text and each way of predicting: metrics and models by methods."""
    found = {_place(group): group for group in grouped(results) if "model" in group.labels}
    corpora = dict.fromkeys(corpus for corpus, _, _ in found)
    return [
        Printed(
            f"{corpus}, {decoding}. {LEGEND}",
            ("metric", "model", *COLUMNS),
            [
                _text_row(metric, model, corpus, decoding, found)
                for metric in TABLE_METRICS[table]
                for model in MODELS
            ],
        )
        for corpus in corpora
        for decoding in DECODINGS
    ]


def text_lines(table: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    """The same as records: the columns of the paper's own table, then ours."""
    lines = []
    for group in grouped(results):
        if "model" not in group.labels:
            continue
        for metric in TABLE_METRICS[table]:
            for decoding in DECODINGS:
                lines.append(_text_line(group, metric, decoding))
    return lines


def _place(group: Group) -> tuple[str, str, str]:
    return group.labels["corpus"], group.labels["model"], group.labels["row"]


def _text_row(
    metric: str, model: str, corpus: str, decoding: str, found: Mapping[tuple[str, str, str], Group]
) -> tuple[str, ...]:
    cells = []
    for column in COLUMNS:
        group = found.get((corpus, model, column))
        cells.append(_text_cell(group, metric, decoding) if group else "-")
    family = Score(METRICS[metric], 0.0, "").family
    return (f"{METRICS[metric]} ({family.better} is better)", model, *cells)


def _text_cell(group: Group, metric: str, decoding: str) -> str:
    ours, theirs = _ours(group, metric, decoding), _theirs(group, metric)
    digits = Score(METRICS[metric], 0.0, "").family.digits
    valid = replace(ours["valid"], sd=None)  # room for one spread
    lines = [f"{valid.shown(digits)} / {ours['test'].shown(digits)}"]
    if theirs["test"] is not None:
        lines.append(f"{theirs['valid']:.2f} / {theirs['test']:.2f}")
    return "\n".join(lines)


def _text_line(group: Group, metric: str, decoding: str) -> dict[str, Any]:
    ours, theirs = _ours(group, metric, decoding), _theirs(group, metric)
    comparable = theirs["test"] is not None and ours["test"].count and metric not in OTHER_SCALE
    return {
        "metric": metric,
        "model": group.labels["model"],
        "corpus": group.labels["corpus"],
        "method": group.labels["row"],
        "valid": theirs["valid"],
        "test": theirs["test"],
        "our_metric": METRICS[metric],
        "decode": decoding,
        **{f"our_{split}": ours[split].mean if ours[split].count else None for split in SPLITS},
        **{f"our_{split}_sd": ours[split].sd for split in SPLITS},
        "difference": ours["test"].mean - float(theirs["test"] or 0.0) if comparable else None,
        **rates(group),
        "seeds": " ".join(map(str, group.seeds)),
        "signature": over_seeds(_score_signature(group, metric, decoding), group),
    }


def _ours(group: Group, metric: str, decoding: str) -> dict[str, Spread]:
    return {split: group.score(f"{METRICS[metric]}|{split}|{decoding}") for split in SPLITS}


def _theirs(group: Group, metric: str) -> dict[str, float | None]:
    values = published(group.labels)
    return {split: values.get(f"{METRICS[metric]}|{split}") for split in SPLITS}


def _score_signature(group: Group, metric: str, decoding: str) -> str:
    wanted = (METRICS[metric], f"decode:{decoding}", "split:test")
    found = [str(score["signature"]) for score in group.results[0].scores]
    return next((one for one in found if all(part in one.split("|") for part in wanted)), "")
