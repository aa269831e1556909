"""Names that the system refuses, and places that are taken, are told in one line before any work is done."""

import pytest
from tests.report.factory import make_results, write_results

from nnrs.cli.demo import _print
from nnrs.errors import RunError
from nnrs.experiments.paper_figures import write_figures
from nnrs.experiments.store import Result
from nnrs.grid_directory import GridDirectory

LONG = "x" * 300  # more than a file's name may have


def test_a_name_that_is_too_long_is_told_in_one_line(nnrs_each, tmp_path):
    stored = write_results(tmp_path / "results.jsonl", make_results(groups=2, seeds=1, epochs=2))
    (tmp_path / "grid.toml").write_text('method = "mle"\n')
    long = tmp_path / LONG
    done = nnrs_each(
        {
            "results": ["results", stored, "--out", long],
            "report": ["report", stored, "--out", long],
            "report of": ["report", long],
            "picture": ["report", stored, "--picture", long.with_suffix(".svg")],
            "grid": ["grid", tmp_path / "grid.toml", "--out", long],
            "dry run": ["grid", tmp_path / "grid.toml", "--out", long, "--dry-run"],
        }
    )
    for name, outcome in done.items():
        assert outcome.returncode == 2, name
        assert outcome.stderr.startswith("error: cannot "), name
        assert "File name too long" in outcome.stderr, name
        assert outcome.stderr.count("\n") == 1, name


@pytest.mark.parametrize("below", ["", "out", "out/deeper"])
def test_a_file_in_the_place_of_a_folder_is_told_to_be_one_and_left_as_it_is(
    below, nnrs_each, text, tmp_path
):
    (tmp_path / "grid.toml").write_text('method = "mle"\n')
    file = tmp_path / "mine.txt"
    file.write_text("mine")
    commands = {
        "train": ["train", "--data", text],
        "seeds": ["train", "--data", text, "--seeds", "1-2"],
        "translate": ["train", "--task", "translate", "--data", tmp_path],
        "grid": ["grid", tmp_path / "grid.toml"],
        "dry run": ["grid", tmp_path / "grid.toml", "--dry-run"],
        "compare": ["compare", "--data", text],
        "paper": ["paper", "table1", "--pilot"],
        "demo": ["demo", "--data", text],
    }
    done = nnrs_each({name: [*words, "--out", file / below] for name, words in commands.items()})
    for name, outcome in done.items():
        assert (outcome.returncode, outcome.stdout) == (2, ""), name
        said = f"error: {file} is a file, and a folder is expected. Choose another --out.\n"
        assert outcome.stderr.endswith(said), outcome.stderr
        assert outcome.stderr.count("error: ") == 1, name
    assert file.read_text() == "mine"


@pytest.mark.parametrize("below", ["", "out"])
def test_a_link_to_nothing_in_the_place_of_a_folder_is_told_to_be_one(below, nnrs_each, text, tmp_path):
    (tmp_path / "grid.toml").write_text('method = "mle"\n')
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    commands = {
        "train": ["train", "--data", text],
        "seeds": ["train", "--data", text, "--seeds", "1-2"],
        "grid": ["grid", tmp_path / "grid.toml"],
    }
    done = nnrs_each({name: [*words, "--out", link / below] for name, words in commands.items()})
    said = f"error: {link} is a link to nowhere, which is not there. Make that folder, or choose another --out.\n"
    assert {name: (item.returncode, item.stdout, item.stderr) for name, item in done.items()} == (
        dict.fromkeys(done, (2, "", said))
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grid.toml", "link"]


def test_a_file_cannot_be_resumed_or_measured(nnrs_each, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("mine")
    done = nnrs_each({"resume": ["train", "--resume", "--out", file], "evaluate": ["evaluate", file]})
    for name, outcome in done.items():
        assert outcome.returncode == 2, name
        assert outcome.stderr.startswith(f"error: {file} is not a run directory: it is a file."), name
        assert outcome.stderr.count("\n") == 1, name


def test_a_file_in_the_place_of_the_figures_is_refused_before_anything_is_trained(nnrs, tmp_path):
    grid = GridDirectory(tmp_path)
    grid.write_plan({})
    grid.figures_path.write_text("mine")
    done = nnrs("paper", "figures", "--pilot", "--out", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {grid.figures_path} is a file: figures go into a folder there.")
    assert done.stderr.count("\n") == 1
    with pytest.raises(RunError, match=r"cannot write .*figures: File exists"):
        write_figures([], tmp_path)
    assert grid.figures_path.read_text() == "mine"


def test_the_tables_of_a_demo_that_cannot_be_written_are_told_in_one_line(tmp_path):
    results = [Result(record) for record in make_results(groups=4, seeds=1, epochs=2)]
    _print(results, tmp_path, [])
    assert "Test perplexity" in GridDirectory(tmp_path).text_path.read_text()
    GridDirectory(tmp_path).text_path.unlink()
    GridDirectory(tmp_path).text_path.mkdir()
    with pytest.raises(RunError, match=r"cannot write .*report\.txt: Is a directory"):
        _print(results, tmp_path, [])
