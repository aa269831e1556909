"""The plots are data: every one compiles, and its rows are of a kind that the page's script makes."""

import json
import re
from importlib.resources import files

import pytest
import vl_convert

from nnrs.report.figures import figures, learning_curves

FIGURES = {figure.id: figure for figure in figures()}


@pytest.mark.parametrize("name", FIGURES)
def test_vega_lite_compiles_each_specification(name):
    spec = {
        **json.loads(json.dumps(FIGURES[name].spec)),
        "width": 400,
        "datasets": {"rows": [{"group": "a"}]},
    }
    compiled = vl_convert.vegalite_to_vega(spec)
    assert "rows" in [data["name"] for data in compiled["data"]]


def test_the_script_makes_the_rows_of_every_figure():
    script = (files("nnrs.report") / "assets" / "rows.js").read_text()
    made = set(re.findall(r"^  (\w+)\(", script, flags=re.MULTILINE))
    assert {figure.rows.partition(":")[0] for figure in FIGURES.values()} <= made


def test_the_page_has_a_place_for_every_figure():
    page = (files("nnrs.report") / "assets" / "page.html").read_text()
    places = {name for names in re.findall(r'data-figures="([^"]*)"', page) for name in names.split()}
    assert places == FIGURES.keys() - {"trajectory-down"}  # which takes the other's place on a phone


def test_validation_is_a_solid_line_and_test_a_dashed_rule():
    marks = [layer["mark"] for layer in learning_curves().spec["layer"]]
    assert next(mark for mark in marks if mark["type"] == "line").get("strokeDash") is None
    rule = next(layer for layer in learning_curves().spec["layer"] if layer["mark"]["type"] == "rule")
    assert rule["mark"]["strokeDash"] == [6, 4]
    assert rule["encoding"]["y"]["field"] == "test"
