"""Results as one flat table: a row for each run, a column for each number."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nnrs.experiments.score_keys import ScoreKeys
from nnrs.experiments.store import Result


def flat_row(result: Result, keys: ScoreKeys) -> dict[str, Any]:
    """A run's labels and numbers by column. A score's column names what tells it apart: metric|split|decode."""
    record = result.record
    row = {"name": result.name, **result.labels, "seed": result.seed, "group": result.group}
    row |= {"text": record["names"]["corpus"], "vectors": record["names"]["vectors"]}
    row["model"] = record["config"]["model"]["kind"]
    for name in (
        "valid_perplexity",
        "test_perplexity",
        "valid_nats",
        "test_nats",
        "best_epoch",
        "parameters",
    ):
        row[name] = record[name]
    for kind in ("dose", "effective"):
        row |= {f"{kind}_{name}": value for name, value in record[kind].items()}
    row |= {key: score["value"] for key, score in keys.named(result)}
    row["train_seconds"] = record["timing"]["train_seconds"]
    return {**row, "signature": record["signature"], "command": record["command"]}


def results_csv(results: Sequence[Result]) -> str:
    """A row for each run, with every column that any of them has."""
    keys = ScoreKeys(results)
    rows = [flat_row(result, keys) for result in results]
    labels = dict.fromkeys(name for result in results for name in result.labels)
    measured = dict.fromkeys(name for row in rows for name in row if name not in ("signature", "command"))
    return as_csv(rows, ["name", *labels, *measured, "signature", "command"])


def as_csv(rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> str:
    """Records as comma-separated values under these columns, each once; what is not known stays empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def lines_csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """Records that have the same columns as CSV; nothing where there are none."""
    return as_csv(lines, lines[0]) if lines else ""
