"""The table and the picture of all gains over teacher forcing, from runs whose gains are worked by hand."""

import pytest
from results import overview, studies
from tests.report.factory import make_result

from nnrs.experiments.store import Result


def runs(group, method, replaced, nats):
    for seed, value in enumerate(nats):
        record = make_result(method, "toy", {"method": method}, group, seed, 2)
        record["config"]["policy"]["replace"] = replaced
        yield Result(record | {"test_nats": value, "test_perplexity": 20.0 + 0.5 * seed})


# Against teacher forcing nnrs has -0.04, -0.02 and -0.03: the mean is exp(-0.03) - 1 = -2.96 %, and the interval
# -0.03 ± 4.303 · 0.01/√3 = -0.03 ± 0.02484, so -5.34 to -0.51 %. Of ss it is 0 ± 0.02484, so -2.5 to +2.5 %.
THREE = [
    *runs(1, "mle", "inputs", (3.00, 3.10, 3.05)),
    *runs(2, "nnrs", "inputs", (2.96, 3.08, 3.02)),
    *runs(3, "ss", "inputs", (3.01, 3.10, 3.04)),
    *runs(4, "ss-nnrs", "targets", (3.50, 3.60, 3.55)),  # which the table does not show
    *runs(6, "nnrs", "targets", (2.998, 3.098, 3.048)),  # exp(-0.002) - 1 is -0.2 %
]
# Eight differences of one sign: p = 2/2⁸, times the three contrasts that are named, is below 0.05.
EIGHT = [
    *runs(1, "mle", "inputs", [3.0] * 8),
    *runs(2, "nnrs", "inputs", [3.0 + 0.01 * (1 + seed % 2) for seed in range(8)]),
    *runs(3, "nnrs", "targets", [2.0] * 8),
    *runs(4, "ss", "inputs", [2.9996] * 8),
]


@pytest.fixture
def two_studies(monkeypatch):
    titles = {"three": ("Three", "a.md#three"), "eight": ("Eight", "a.md#eight")}
    monkeypatch.setattr(overview, "PLACES", titles)
    monkeypatch.setattr(overview, "records", {"three": THREE, "eight": EIGHT}.__getitem__)
    named = ("nnrs", "mle"), ("ss", "mle"), ("nnrs, targets", "nnrs")
    monkeypatch.setattr(studies, "NAMED_OF_ARMS", {"eight": named})


def test_the_table_has_the_gain_of_each_method_bold_where_it_is_not_nothing_and_signed_where_it_passed(
    two_studies,
):
    _, _, three, eight = overview.overview_markdown().splitlines()
    assert three == (
        "| [Three](studies/a.md#three) | 3 | 20.50 "
        "| +0.00 % (-2.5 to +2.5) | **-3.0 %** (-5.3 to -0.5) |  |  | **-0.2 %** (-0.2 to -0.2) |"
    )
    # 0.015 ± 2.365 · 0.005345/√8 = 0.015 ± 0.00447, so +1.06 to +1.97 %; exp(-1) - 1 is -63.2 %,
    # exp(-0.0004) - 1 is -0.04 %.
    assert eight == (
        "| [Eight](studies/a.md#eight) | 8 | 21.75 "
        "| **-0.04 %** ✓ (-0.04 to -0.04) | **+1.5 %** ✗ (+1.1 to +2.0) |  |  | **-63.2 %** (-63.2 to -63.2) |"
    )


def test_every_number_of_the_table_is_drawn_in_its_row_and_told(two_studies):
    made = overview.overview()
    three, eight = "Three|3 seeds, teacher forcing 20.5", "Eight|8 seeds, teacher forcing 21.8"
    drawn = [
        (three, "nnrs: neighbors", (-2.96, -5.34, -0.51)),
        (three, "ss: scheduled sampling", (0.0, -2.45, 2.52)),
        (three, "nnrs, targets: neighbors as targets", (-0.2, -0.2, -0.2)),
        (eight, "nnrs: neighbors", (1.51, 1.06, 1.97)),
        (eight, "nnrs, targets: neighbors as targets", (-63.21, -63.21, -63.21)),
        (eight, "ss: scheduled sampling", (-0.04, -0.04, -0.04)),
    ]
    rows = made["data"]["values"]
    assert [(row["place"], row["arm"]) for row in rows] == [(place, arm) for place, arm, _ in drawn]
    for row, (_, _, numbers) in zip(rows, drawn, strict=True):
        assert [row[name] for name in ("gain", "low", "high")] == pytest.approx(numbers, abs=0.01)
    assert rows[0]["told"] == "Three, nnrs: neighbors: -3.0 % (-5.3 to -0.5)"
    every_other, zero, intervals, points = made["layer"]
    assert every_other["data"]["values"] == [{"place": three}]
    assert zero["encoding"] == {"x": {"datum": 0}}
    assert (intervals["encoding"]["x"]["field"], intervals["encoding"]["x2"]["field"]) == ("low", "high")
    assert points["encoding"]["x"]["field"] == "gain"
    assert points["encoding"]["y"]["sort"] == [three, eight]
    assert points["encoding"]["color"]["scale"]["domain"] == [
        f"{arm}: {name}" for arm, (name, _) in overview.ARMS.items()
    ]


def test_a_study_with_two_settings_of_a_method_is_not_one_of_them(two_studies, monkeypatch):
    several = [*THREE, *runs(5, "ss", "inputs", (3.0, 3.0, 3.0))]
    monkeypatch.setattr(overview, "records", {"three": several, "eight": EIGHT}.__getitem__)
    with pytest.raises(ValueError, match="too many values"):
        overview.overview_markdown()


def test_methods_that_have_other_seeds_than_the_rest_are_no_place_of_it(two_studies, monkeypatch):
    fewer = [*THREE, *runs(5, "ss-nnrs", "inputs", (3.0, 3.0))]
    monkeypatch.setattr(overview, "records", {"three": fewer, "eight": EIGHT}.__getitem__)
    with pytest.raises(ValueError, match="too many values"):
        overview.overview_markdown()
