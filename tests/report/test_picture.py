"""The main result as a picture: what it shows are the results, best first."""

import re
from pathlib import Path

import pytest
from results.overview import write_overview
from results.studies import records

from nnrs.errors import ConfigError, DataError, RunError
from nnrs.experiments.store import Result
from nnrs.metrics.contrasts import t_interval
from nnrs.report.picture import MARK, picture, write_picture

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"(?<![#\w])-?\d+(?:\.\d+)?(?:e-?\d+)?")


def result(method, seed, test, own=None):
    tail = f"split:test|data:toy|seed:{seed}|v:1"
    scores = [] if own is None else [{"value": own, "signature": f"ppl-own-noise30|{tail}"}]
    return Result(
        {
            "labels": {"method": method},
            "config": {"model": {"kind": "lstm"}},
            "seed": seed,
            "names": {"corpus": "toy", "vectors": None},
            "signature": f"ppl|{tail}",
            "group": method,
            "test_perplexity": test,
            "scores": scores,
        }
    )


def values_of(panel, field):
    rows = [row for layer in panel["layer"] for row in layer["data"]["values"] if field in row]
    return [(row["name"], row[field]) for row in rows]


def test_settings_stand_best_first_with_their_seeds_and_intervals():
    worse, better = [3.0, 5.0], [2.0, 2.5]
    results = [result("<b>", seed, value, 9.0) for seed, value in enumerate(worse)]
    results += [result("ss", seed, value, 8.0 + seed) for seed, value in enumerate(better)]
    made = picture(results)
    test, own = made["hconcat"]
    assert test["layer"][0]["encoding"]["y"]["sort"] == ["ss", "<b>"]
    assert values_of(test, "value") == [("ss", 2.0), ("ss", 2.5), ("<b>", 3.0), ("<b>", 5.0)]
    low, high = t_interval(worse)
    assert low < 0.0
    assert ("<b>", 1.0) in values_of(test, "low")  # no perplexity is below it
    assert ("<b>", pytest.approx(high)) in values_of(test, "high")
    low, high = t_interval([8.0, 9.0])
    assert low > 1.0
    assert ("ss", pytest.approx(low)) in values_of(own, "low")
    assert ("ss", 8.5) in values_of(own, "mean")
    assert "toy" in made["title"]["text"][0]
    more = [result("<b>", 9, 4.0, 9.0), result("one", 1, 4.0, 9.0)]
    assert picture([*results, *more])["title"]["text"][1].startswith("1 to 3 seeds (light), mean")


def test_a_long_name_stands_in_full_and_one_seed_has_no_interval(tmp_path):
    name = "a method whose settings take a whole line to say: 0.05, 0.3, 0.6"
    write_picture([result(name, 1, 3.0)], tmp_path / "long.svg")
    drawn = (tmp_path / "long.svg").read_text()
    assert f">{name}</text>" in drawn
    assert ">one seed</" in drawn
    assert "interval" not in drawn


def test_a_panel_is_drawn_only_where_every_setting_was_measured():
    assert len(picture([result("mle", 1, 3.0), result("ss", 1, 2.0, 8.0)])["hconcat"]) == 1


def test_a_file_of_ones_own_is_left_alone_and_a_picture_of_ours_is_made_anew(tmp_path):
    results, mine, ours = [result("<b>", 1, 3.0)], tmp_path / "mine.svg", tmp_path / "ours.svg"
    mine.write_text("<svg/>")
    with pytest.raises(RunError, match="exists and is no picture of nnrs: it is not overwritten"):
        write_picture(results, mine)
    assert mine.read_text() == "<svg/>"
    for _ in range(2):
        write_picture(results, ours)
    drawn = ours.read_text()
    assert drawn.startswith(f"{MARK}<svg")
    mine.write_text("<svg>" + " " * 2000 + MARK + "</svg>")  # quoted, far from where ours has it
    with pytest.raises(RunError, match="is not overwritten"):
        write_picture(results, mine)
    assert "&lt;b&gt;" in drawn
    assert "<b>" not in drawn
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(RunError, match=r"folder\.svg exists and is no picture of nnrs"):
        write_picture(results, tmp_path / "folder.svg")
    with pytest.raises(ConfigError, match=r"the picture is an SVG: .*x\.png must end in \.svg"):
        write_picture(results, tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()
    with pytest.raises(DataError, match="no finished run"):
        write_picture([], tmp_path / "none.svg")


@pytest.mark.parametrize(
    ("name", "draw", "marks"),
    [
        ("ptb-contrasts", lambda out: write_picture(records("ptb-contrasts"), out), 7 * (9 + 2) * 2),
        ("overview", write_overview, 33 * 2),  # a point and an interval
    ],
)
def test_a_picture_in_the_documents_is_that_of_the_records(tmp_path, name, draw, marks):
    draw(tmp_path / "again.svg")
    kept = (ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8")
    again = (tmp_path / "again.svg").read_text(encoding="utf-8")
    assert NUMBER.split(kept) == NUMBER.split(again)  # words, colors, what is drawn
    numbers = [list(map(float, NUMBER.findall(svg))) for svg in (kept, again)]
    assert numbers[0] == pytest.approx(numbers[1], abs=1e-6)  # pixels
    assert kept.count("<path") + kept.count("<line") > marks
