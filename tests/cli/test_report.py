"""`nnrs report` as a process: where the page goes, and what it refuses."""

import json

import pytest
from tests.report.factory import make_results, write_results


@pytest.fixture
def stored(tmp_path):
    return write_results(tmp_path / "results.jsonl", make_results(groups=2, seeds=1, epochs=2))


def test_it_writes_the_page_and_says_where(nnrs, stored, tmp_path):
    out = tmp_path / "page.html"
    done = nnrs("report", stored, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"report": str(out), "bytes": out.stat().st_size}


def test_the_page_of_a_run_directory_lies_in_it(nnrs, finished):
    done = nnrs("report", finished)
    assert done.stdout.strip() == f"report to open: {finished / 'report.html'}"
    assert str(finished.parent) not in (finished / "report.html").read_text()  # no path of this machine


def test_what_is_wrong_is_said_in_one_line(nnrs_each, stored, tmp_path):
    (tmp_path / "notes.html").write_text("mine")
    done = nnrs_each(
        {
            "nowhere": ["report", tmp_path / "nowhere"],
            "taken": ["report", stored, "--out", tmp_path / "notes.html"],
            "no svg": ["report", stored, "--out", tmp_path / "new.html", "--picture", tmp_path / "x.png"],
            "no svg of nothing": ["report", tmp_path / "nowhere", "--picture", tmp_path / "x.png"],
            "unwritable": ["report", stored, "--out", tmp_path / "no" / "folder.html"],
        }
    )
    for name, outcome in done.items():
        assert outcome.returncode == 2, name
        assert outcome.stderr.startswith("error: ")
        assert outcome.stderr.count("\n") == 1
    assert (tmp_path / "notes.html").read_text() == "mine"
    for name in ("no svg", "no svg of nothing"):  # said before anything is read
        assert f"the picture is an SVG: {tmp_path / 'x.png'} must end in .svg" in done[name].stderr
    assert {path.name for path in tmp_path.iterdir()} == {"notes.html", "results.jsonl"}
