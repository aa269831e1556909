"""The paper's rows by name, the runs behind them, and its values."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from nnrs.errors import ConfigError, DataError
from nnrs.experiments.paper import (
    COLUMNS,
    MODELS,
    NO_SAMPLING,
    PILOT_CORPUS,
    SCHEDULES,
    configurations,
    find_corpora,
    pilot_corpora,
    plan,
    printed,
    published,
)
from nnrs.schedules import Schedule

TEXTS = {"wikitext-2": "sotu", "ptb": "synthetic"}  # any text will do, nothing is read


def make(table: str, **options: object):
    return plan(table, TEXTS, options, [1, 2], command="nnrs paper")


def test_table_1_has_eighteen_configurations_and_teacher_forcing_is_one_run_of_each_text_and_seed():
    assert len(configurations()) == 18
    made = make("table1")
    per_text = 17 * 4 + 1
    assert Counter((cell.labels["corpus"], cell.config.seed) for cell in made.cells) == dict.fromkeys(
        [("wikitext-2", 1), ("wikitext-2", 2), ("ptb", 1), ("ptb", 2)], per_text
    )
    assert sum(cell.labels["row"] == NO_SAMPLING for cell in made.cells) == 4
    assert made.kind == "table1"


def test_every_cell_of_table_1_has_the_rates_that_are_printed_beside_it():
    lines = {
        (line["configuration"], line["schedule"], line["corpus"]): line
        for line in printed("table1_perplexity")
    }
    for cell in make("table1").cells:
        schedule = cell.labels.get("schedule", "linear")
        line = lines.pop((cell.labels["row"], schedule, cell.labels["corpus"]), None)
        if line is None:  # the second seed
            continue
        policy = cell.config.policy
        for rate, start, end in (
            (policy.prediction_rate, "eps_start", "eps_end"),
            (policy.neighbor_rate, "gamma_start", "gamma_end"),
        ):
            wanted = float(line[start]), float(line[end])
            assert (rate and Schedule(schedule, *wanted)) == rate
            assert rate or wanted == (0.0, 0.0)
    assert {key[0] for key in lines} == {NO_SAMPLING}  # its other three columns, on both texts
    assert len(lines) == 6


def test_two_rows_are_one_setting_under_static_and_no_others_are_under_any_schedule():
    seen: dict[object, str] = {}
    for cell in plan("table1", {"ptb": "sotu"}, {}, [1], command="").cells:
        policy = cell.config.policy
        both = [
            rate and [rate(z / 39) for z in range(40)]
            for rate in (policy.prediction_rate, policy.neighbor_rate)
        ]
        name = f"{cell.labels['row']} {cell.labels.get('schedule')}"
        other = seen.setdefault(str([policy.method, *both]), name)
        assert other in (name, "SS-NNRS-4 static")
        assert (other == name) is (name != "SS-NNRS-5 static")


def test_tables_2_and_3_are_fifteen_runs_at_the_settings_that_the_text_names():
    made, other = make("table2"), make("table3")
    assert made == other  # one folder serves both
    assert len(made.cells) == len(MODELS) * len(COLUMNS) * len(TEXTS) * 2
    assert made.request.decodings == ("sample", "teacher-forced")
    assert made.request.splits == ("valid", "test")
    rates = {
        cell.labels["row"]: (cell.config.policy.prediction_rate, cell.config.policy.neighbor_rate)
        for cell in made.cells
    }
    assert rates == {
        "MLE": (None, None),
        "TPRS": (None, Schedule("static", 0.0, 0.2)),
        "NNRS": (None, Schedule("static", 0.0, 0.2)),
        "SS": (Schedule("static", 0.0, 0.5), None),
        "SS-NNRS": (Schedule("static", 0.0, 0.5), Schedule("static", 0.0, 0.2)),
    }
    assert {cell.config.model.kind for cell in made.cells} == {*MODELS}


def test_a_part_of_a_table_is_the_runs_of_its_rows_and_schedules_in_the_papers_order():
    part = {"rows": ["SS-1", "No Sampling"], "schedules": ["static", "linear"]}
    found = plan("table1", TEXTS, {}, [1], command="", **part)
    assert [cell.labels["row"] for cell in found.cells] == ["No Sampling", "SS-1", "SS-1"] * len(TEXTS)
    assert [cell.labels.get("schedule") for cell in found.cells] == [None, "linear", "static"] * len(TEXTS)
    whole = plan("table1", TEXTS, {}, [1], command="")
    assert {cell.name for cell in found.cells} < {cell.name for cell in whole.cells}
    texts = plan("table3", TEXTS, {}, [1], command="", rows=["NNRS", "MLE"])
    assert [cell.labels["row"] for cell in texts.cells] == ["MLE", "NNRS"] * len(MODELS) * len(TEXTS)
    for table, wrong, said in (
        ("table1", {"rows": ["NNRS"]}, "unknown row 'NNRS'. Did you mean 'NNRS-"),
        ("table1", {"schedules": ["pulse"]}, "unknown schedule 'pulse'"),
        ("table2", {"rows": ["NNRS-1"]}, "unknown method 'NNRS-1'. Did you mean 'NNRS'"),
        ("table2", {"schedules": ["static"]}, "have one schedule, static: leave --schedules out"),
    ):
        with pytest.raises(ConfigError, match=said):
            plan(table, TEXTS, {}, [1], command="", **wrong)


def test_figures_are_those_of_table_1s_runs():
    assert make("figures") == make("table1")


def test_options_reach_every_run_and_the_paper_says_the_rest():
    made = make("table1", preset="large", epochs=7, k=5)
    assert {cell.config.training.epochs for cell in made.cells} == {7}
    assert {cell.config.model.units for cell in made.cells} == {1504}
    assert {cell.config.policy.k for cell in made.cells if cell.labels["method"] in ("nnrs", "tprs")} == {5}
    paper = make("table1").cells[0].config
    assert (paper.model.label(), paper.training.epochs, paper.optimizer.learning_rate) == (
        "lstm-2x640",
        40,
        20.0,
    )
    assert paper.optimizer.annealing == "cosine"


def test_the_pilot_has_the_same_rows_on_a_text_of_our_own():
    made = plan("table1", pilot_corpora(), {}, [1], command="", pilot=True)
    whole = plan("table1", {"ptb": "sotu"}, {}, [1], command="")
    assert [(cell.labels["row"], cell.labels.get("schedule")) for cell in made.cells] == [
        (cell.labels["row"], cell.labels.get("schedule")) for cell in whole.cells
    ]
    assert len(made.cells) == 69
    assert {cell.config.data.source for cell in made.cells} == {PILOT_CORPUS}
    # Linear and s-curve agree at 0, ½ and 1: with three epochs they would be the same runs.
    assert {cell.config.training.epochs for cell in made.cells} == {4}
    curves = {name: [Schedule(name, 0.0, 0.2)(epoch / 3) for epoch in range(4)] for name in SCHEDULES}
    assert len({tuple(round(rate, 6) for rate in curve) for curve in curves.values()}) == 4


def test_an_unknown_table_is_refused_with_a_hint():
    with pytest.raises(ConfigError, match=r"unknown table 'tabel1'\. Did you mean 'table1'"):
        make("tabel1")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        # read off the paper's source, Tables 1 to 3
        (
            {"row": "SS-NNRS-3", "schedule": "static", "corpus": "ptb"},
            {"ppl|valid": 72.89, "ppl|test": 69.06},
        ),
        ({"row": "No Sampling", "corpus": "wikitext-2"}, {"ppl|valid": 140.28, "ppl|test": 128.78}),
        (
            {"row": "NNRS", "model": "gru", "corpus": "ptb"},
            {
                "self-bleu4|valid": 7.88,
                "self-bleu4|test": 7.23,
                "self-wmd|valid": 0.38,
                "self-wmd|test": 0.34,
            },
        ),
        ({"row": "NNRS-1", "schedule": "linear", "corpus": "sotu-2012"}, {}),
        ({"method": "nnrs"}, {}),
    ],
)
def test_the_papers_values_are_found_by_labels(labels, expected):
    assert published(labels) == expected


def test_table_3_is_of_wikitext_2_alone():
    both = published({"row": "SS-NNRS", "model": "highway", "corpus": "wikitext-2"})
    assert (both["bleu4|test"], both["wmd-scaled|test"], both["self-bleu4|test"]) == (14.03, 0.80, 5.28)
    assert "bleu4|test" not in published({"row": "SS-NNRS", "model": "highway", "corpus": "ptb"})


def test_texts_are_found_by_the_names_of_their_folders(tmp_path):
    with pytest.raises(DataError, match=r"holds no wikitext-2 or ptb.* docs/data\.md"):
        find_corpora(tmp_path)
    (tmp_path / "ptb").mkdir()
    assert find_corpora(tmp_path) == {"ptb": str(tmp_path / "ptb")}
    with pytest.raises(DataError, match=r"has no wikitext-2\. Name what it holds"):
        find_corpora(tmp_path, ["ptb", "wikitext-2"])
    (tmp_path / "mine").mkdir()
    assert list(find_corpora(tmp_path, ["mine"])) == ["mine"]


@pytest.mark.data
@pytest.mark.parametrize("name", ["table1_perplexity", "table2_diversity", "table3_quality"])
def test_the_tables_in_the_package_are_those_that_were_handed_over(shared_data, name):
    source = Path(shared_data).parent / "paper" / f"{name}.csv"
    with source.open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == list(printed(name))
