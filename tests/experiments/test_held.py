"""A plan goes on where the runs that are there are its own, of the texts and vectors as they lie there, or not."""

import shutil
from collections import Counter

import pytest
import torch

from nnrs.cli.grid import carry_out
from nnrs.errors import NnrsError, RunError
from nnrs.experiments.grid import Board, GridOutcome, open_grid
from nnrs.experiments.held import check_held
from nnrs.experiments.outlook import look_ahead
from nnrs.experiments.plan import Plan, expand
from nnrs.experiments.prepare import Shelf
from nnrs.experiments.subject import Request
from nnrs.experiments.text import Text
from nnrs.experiments.work import Place, work_on
from nnrs.grid_directory import GridDirectory
from nnrs.run_directory import RunDirectory

ROWS = [" ".join(f"w{(row * 3 + step * step) % 9}" for step in range(5)) for row in range(40)]
VECTORS = [f"w{row} {row % 3} {row % 2} 1" for row in range(9)]
SETTINGS = {"units": 6, "layers": 1, "learning_rate": 2.0, "batch_size": 3, "bptt": 12, "epochs": 1}


def plan_on(folder, **more):
    values = {"data": str(folder / "text.txt"), "vectors": str(folder / "vectors.txt"), **SETTINGS, **more}
    cells = tuple(expand({"method": ["mle", "nnrs"], **values}))
    request = Request(metrics=("perplexity",))
    return Plan(kind="grid", title="t", command="c", cells=cells, request=request)


@pytest.fixture
def folder(tmp_path):
    """A text and vectors, and beside them a grid of two runs that are done."""
    (tmp_path / "text.txt").write_text("\n".join(ROWS) + "\n")
    (tmp_path / "vectors.txt").write_text("\n".join(VECTORS) + "\n")
    grid, plan = open_grid(plan_on(tmp_path), tmp_path / "out")
    place = Place(grid=grid, device=torch.device("cpu"), threads=1, shelf=Shelf())
    for cell in plan.cells:
        assert [news.how for news in work_on([cell], plan.request, place)] == ["measuring", "done"]
    return tmp_path


def change(path):
    path.write_text(path.read_text().replace("w1", "w2", 1))


def refusal(folder, listed=None, **more):
    """The one line, of a command that has left the folder as it was."""
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").rglob("*")}
    with pytest.raises(RunError) as caught:
        carry_out(plan_on(folder, **more), folder / "out", jobs=1, device="cpu", ray=None, listed=listed)
    assert {path: path.stat().st_mtime_ns for path in (folder / "out").rglob("*")} == before
    return str(caught.value)


@pytest.mark.parametrize("listed", [None, "json"], ids=["run", "dry run"])
@pytest.mark.parametrize("seeds", ["1", "1-2"])
def test_another_text_is_refused_before_anything_is_trained(folder, listed, seeds):
    change(folder / "text.txt")
    began = folder / "out" / "runs" / "mle_seed-1"
    assert refusal(folder, listed, seeds=seeds) == (
        f"{folder / 'text.txt'} has changed since {began} began. Restore it, or choose another --out."
    )


def test_another_text_is_refused_where_a_run_is_known_by_its_record_alone(folder):
    for run in (folder / "out" / "runs").iterdir():
        record = RunDirectory(run).result()
        shutil.rmtree(run)
        run.mkdir()
        RunDirectory(run).write_result(record)
    look_ahead(plan_on(folder, seeds="1-2"), folder / "out", [], "cpu")
    change(folder / "text.txt")
    assert "text.txt has changed since" in refusal(folder, seeds="1-2")


def test_other_vectors_are_refused_where_a_run_is_to_be_trained_with_them(folder):
    change(folder / "vectors.txt")
    look_ahead(plan_on(folder), folder / "out", [], "cpu")  # nothing is
    assert refusal(folder, seeds="1-2").startswith(f"{folder / 'vectors.txt'} has changed since ")


@pytest.fixture
def times(folder, monkeypatch):
    """How often each text has been read from here on."""
    read, times = Text.read, Counter()

    def counted(config):
        times[config.source] += 1
        return read(config)

    monkeypatch.setattr(Text, "read", staticmethod(counted))
    return times


def test_a_text_is_read_once_and_none_that_no_run_needs_any_more(folder, times):
    look_ahead(plan_on(folder, seeds="1-2"), folder / "out", [folder / "out"], "cpu")  # for records, too
    assert list(times.values()) == [1]
    look_ahead(plan_on(folder, method="mle"), folder / "another", [], "cpu")
    (folder / "text.txt").unlink()
    look_ahead(plan_on(folder), folder / "out", [], "cpu")  # all is done
    assert list(times.values()) == [1]


def test_a_folder_that_goes_on_reads_a_text_once_before_it_trains(folder, times, monkeypatch):
    ended = GridOutcome(done=4, failed={}, diverged=0, remaining=0)
    monkeypatch.setattr("nnrs.experiments.grid.run_grid", lambda *plan, **how: ended)
    for seeds, out in (("1-2", "out"), ("1-2", "another"), ("1", "out")):  # going on, fresh, all done
        times.clear()
        carry_out(plan_on(folder, seeds=seeds), folder / out, jobs=1, device="cpu", ray=None)
        assert list(times.values()) == [1], out


def test_a_text_that_cannot_be_read_is_no_matter_where_nothing_is_to_be_run_on_it(folder):
    text = folder / "text.txt"
    text.write_bytes(b"\xff\xfe\x00")
    look_ahead(plan_on(folder), folder / "out", [], "cpu")
    with pytest.raises(NnrsError, match=r"text\.txt"):
        look_ahead(plan_on(folder, seeds="1-2"), folder / "out", [], "cpu")


def test_a_text_of_another_name_is_the_same_where_its_content_is(folder):
    (folder / "text.txt").rename(folder / "moved.txt")
    grid = plan_on(folder, data=str(folder / "moved.txt"))
    check_held(Board(GridDirectory(folder / "out"), grid), Shelf())


@pytest.mark.parametrize("listed", [None, "json"], ids=["run", "dry run"])
def test_another_run_in_the_place_of_one_is_refused(folder, listed):
    runs = folder / "out" / "runs"
    shutil.rmtree(runs / "nnrs_seed-1")
    shutil.copytree(runs / "mle_seed-1", runs / "nnrs_seed-1")
    said = refusal(folder, listed)
    assert said.startswith(
        f"{runs / 'nnrs_seed-1'} holds another run, which differs from the plan's in policy."
    )
    assert said.endswith(". Move it away.")


def test_another_seed_in_the_place_of_one_is_refused_where_it_is_known_by_its_record_alone(folder):
    other = folder / "out" / "runs" / "mle_seed-2"
    other.mkdir()
    RunDirectory(other).write_result(RunDirectory(folder / "out" / "runs" / "mle_seed-1").result())
    assert refusal(folder, seeds="1-2") == (
        f"{other} holds another run, which differs from the plan's in seed (1 there, 2 here). Move it away."
    )


def test_a_damaged_run_is_left_to_whoever_works_on_it(folder):
    (folder / "out" / "runs" / "mle_seed-1" / "config.json").write_text("{")
    look_ahead(plan_on(folder, seeds="1-2"), folder / "out", [], "cpu")
