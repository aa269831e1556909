"""Claims between processes, failures in one file, and a folder that is a grid's or nobody's."""

import json
import subprocess
import sys
import threading

import pytest

from nnrs.errors import RunError
from nnrs.grid_directory import GridDirectory

HOLD = """
import sys
from nnrs.grid_directory import GridDirectory
claim = GridDirectory(sys.argv[1]).claim("cell")
print(claim is not None, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def grid(tmp_path):
    return GridDirectory(tmp_path)


@pytest.fixture
def holder(tmp_path):
    """Another process that has the claim on `cell`."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "True\n"
        yield process
        process.kill()


def test_a_claim_is_one_process_s_until_that_dies_however_it_dies(grid, holder):
    assert grid.claim("cell") is None
    assert grid.is_claimed("cell")
    assert not grid.is_claimed("another")
    holder.kill()
    holder.wait()
    claim = grid.claim("cell")
    assert claim is not None
    assert grid.claim("cell") is None  # nor twice within one process
    claim.release()
    assert not grid.is_claimed("cell")


def test_asking_whether_a_cell_is_claimed_leaves_it_free(grid):
    assert not grid.is_claimed("cell")
    assert grid.claim("cell") is not None


def test_failures_of_several_threads_are_whole_lines_and_a_torn_one_is_passed_over(grid):
    def add(number):
        for time in range(20):
            grid.add_failure({"name": f"cell-{number}", "error": "x" * 5000, "try": time})

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(grid.failures()) == 80
    with (grid.path / "failures.jsonl").open("a") as file:
        file.write('{"name": "ce')
    assert len(grid.failures()) == 80


def test_a_folder_is_made_and_one_that_holds_something_else_is_refused(tmp_path):
    new = GridDirectory(tmp_path / "deep" / "grid")
    with new.opened():
        new.write_plan({"format": 1})
    with new.opened():
        assert new.plan() == {"format": 1}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with (
        pytest.raises(RunError, match=r"holds thesis\.tex and no plan\.json: it is no grid's folder"),
        GridDirectory(tmp_path / "other").opened(),
    ):
        pass
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.tex"]


def test_a_damaged_plan_is_named(grid):
    assert grid.plan() is None
    for text in ("{", "[]"):
        (grid.path / "plan.json").write_text(text)
        with pytest.raises(RunError, match=r"plan\.json"):
            grid.plan()


def test_only_the_leftovers_of_the_named_cell_are_dropped(grid):
    for name in (".a.123.tmp", ".ab.123.tmp", "a"):
        (grid.runs_path / name).mkdir(parents=True)
        (grid.runs_path / name / "config.json").write_text(json.dumps({}))
    grid.drop_half_made("a")
    assert sorted(path.name for path in grid.runs_path.iterdir()) == [".ab.123.tmp", "a"]
