"""Grids as real processes that are stopped, killed or share a folder: it costs nothing."""

import json
import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from tests.cli.grids import NAMES, failures_of, results_of, small_grid, write_grid, written


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def done(nnrs, text, tmp_path_factory):
    """A grid of two methods and two seeds, with what it printed. Not to be changed."""
    return small_grid(nnrs, text, tmp_path_factory.mktemp("grid"))


@pytest.fixture
def begin_grid(begin):
    """`begin_grid(file, out)` starts a grid and returns while it runs."""
    return lambda file, out, jobs=2: begin("grid", file, "--out", out, "--jobs", jobs, seconds=900)


def children(process):
    """The processes that a process has started and that are alive."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for(condition, seconds=90.0):
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("waited in vain")


@pytest.fixture(scope="module")
def unbroken(nnrs, long_text, tmp_path_factory):
    """A grid of three runs of seconds each, so that whoever stops it may be late. Not to be changed."""
    folder = tmp_path_factory.mktemp("unbroken")
    file = write_grid(folder / "grid.toml", long_text, epochs=5, methods='"ss-nnrs"', seeds="1-3")
    ended = nnrs("grid", file, "--out", folder / "out", "--jobs", 1)
    assert ended.returncode == 0, ended.stderr
    return file, folder / "out"


def test_ctrl_c_saves_and_stops_and_the_next_start_ends_as_an_unbroken_grid(begin_grid, unbroken, tmp_path):
    file, whole = unbroken
    process = begin_grid(file, tmp_path / "out")
    # One of the two after its first epoch: until both are, one may have ended.
    wait_for(lambda: list((tmp_path / "out").glob("runs/*/metrics.jsonl")))
    workers = children(process)
    os.kill(process.pid, signal.SIGINT)
    stopped = process.wait()
    assert stopped.returncode == 130
    assert "0 runs done and 3 left" in stopped.stderr
    wait_for(lambda: not any(is_alive(worker) for worker in workers))
    saved = [path.name for path in (tmp_path / "out").glob("runs/*/checkpoint-*.json")]
    assert any(int(name[11:20]) % 203 for name in saved), saved  # in the middle of an epoch
    assert not failures_of(tmp_path / "out")
    assert begin_grid(file, tmp_path / "out", jobs=1).wait().returncode == 0
    assert results_of(tmp_path / "out") == results_of(whole)


def test_workers_end_when_their_parent_is_killed(begin_grid, long_text, tmp_path):
    file = write_grid(tmp_path / "grid.toml", long_text, epochs=500)
    process = begin_grid(file, tmp_path / "out")
    wait_for(lambda: len(list((tmp_path / "out").glob("runs/*/config.json"))) == 2)
    workers = children(process)
    assert len(workers) == 2
    process.kill()
    wait_for(lambda: not any(is_alive(worker) for worker in workers))


def test_a_batch_system_that_ends_a_grid_is_answered_with_its_signal(begin_grid, long_text, tmp_path):
    process = begin_grid(write_grid(tmp_path / "grid.toml", long_text, epochs=500), tmp_path / "out")
    wait_for(lambda: list((tmp_path / "out").glob("runs/*/metrics.jsonl")))
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait().returncode == 128 + signal.SIGTERM


def test_a_worker_that_dies_is_replaced_and_recorded_and_given_up_after_three_times(
    begin_grid, long_text, tmp_path
):
    file = write_grid(tmp_path / "grid.toml", long_text, epochs=500, methods='"mle"', seeds="1")
    process, out = begin_grid(file, tmp_path / "out", jobs=1), tmp_path / "out"
    for times in (1, 2, 3):
        wait_for(lambda: children(process))
        os.kill(children(process)[0], signal.SIGKILL)
        wait_for(lambda count=times: len(failures_of(out)) == count)
    ended = process.wait()
    assert ended.returncode == 2
    assert (
        "error: mle_seed-1: lost 3 times: its process was killed (SIGKILL), perhaps because the memory was used up. "
        "Run fewer at a time (--jobs), or take a smaller preset or batch, or less text.\n"
    ) in ended.stderr
    assert [(record["kind"], record["try"]) for record in failures_of(out)] == [
        ("lost", n) for n in (1, 2, 3)
    ]


def test_two_processes_share_one_folder_and_both_end_with_all_of_it(begin_grid, done, tmp_path):
    file, alone, _ = done
    both = [begin_grid(file, tmp_path / "out", jobs=1) for _ in range(2)]
    assert [process.wait().returncode for process in both] == [0, 0]
    assert results_of(tmp_path / "out") == results_of(alone)
    for name in NAMES:  # a run that both had trained would have its epochs twice
        assert [line["epoch"] for line in lines(tmp_path / "out" / "runs" / name / "timing.jsonl")] == [0, 1]
    assert not failures_of(tmp_path / "out")


def test_one_of_two_processes_takes_over_what_the_other_was_at_when_it_died(begin_grid, unbroken, tmp_path):
    (file, whole), out = unbroken, tmp_path / "out"
    doomed = begin_grid(file, out)
    wait_for(lambda: len(list(out.glob("runs/*/config.json"))) == 2)
    survivor = begin_grid(file, out, jobs=1)
    time.sleep(random.Random(1).uniform(0, 2))
    doomed.kill()
    assert survivor.wait().returncode == 0
    assert results_of(out) == results_of(whole)


def went_on(process, out, before):
    """Whether the grid ended, or its workers wrote something."""
    return process.has_ended or (children(process) and written(out) != before)


def kill_at_random(begin_grid, file, out, kills, seed, latest):
    """Kill the grid or one of its workers again and again, each time at most so many seconds after work went on."""
    draws, process = random.Random(seed), begin_grid(file, out)
    killed = {"grid": 0, "worker": 0}
    while sum(killed.values()) < kills:
        if process.has_ended:
            process = begin_after(process, begin_grid, file, out)
        wait_for(partial(went_on, process, out, written(out)))
        time.sleep(draws.uniform(0, latest))
        victims = [process.pid, *children(process)]
        victim = draws.choice(victims)
        if not process.has_ended and is_alive(victim):
            os.kill(victim, signal.SIGKILL)
            killed["grid" if victim == process.pid else "worker"] += 1
            if victim == process.pid:
                process.wait()
    while process.wait().returncode:
        process = begin_after(process, begin_grid, file, out)
    return killed


def begin_after(process, begin_grid, file, out):
    """The grid anew: it was killed, or ended with 2, for a run was lost three times."""
    ended = process.wait()
    assert ended.returncode in (2, -signal.SIGKILL), ended.stderr
    return begin_grid(file, out)


def assert_like_unbroken(out, unbroken):
    assert results_of(out) == results_of(unbroken)
    assert (out / "plan.json").read_bytes() == (unbroken / "plan.json").read_bytes()
    assert (out / "explorer.json").is_file()
    assert {record["kind"] for record in failures_of(out)} <= {"lost"}
    assert not list(out.glob("runs/.*"))  # no half of a run directory


def test_a_grid_killed_at_random_moments_ends_with_the_results_of_an_unbroken_one(begin_grid, done, tmp_path):
    killed = kill_at_random(begin_grid, done[0], tmp_path / "out", kills=4, seed=1, latest=0.25)
    assert sum(killed.values()) == 4
    assert_like_unbroken(tmp_path / "out", done[1])


@pytest.mark.slow
def test_twelve_runs_killed_twenty_times_end_with_the_results_of_an_unbroken_grid(
    begin_grid, long_text, tmp_path
):
    methods = '["mle", "ss", "nnrs", "ss-nnrs"]'
    file = write_grid(tmp_path / "grid.toml", long_text, epochs=3, methods=methods, seeds="1-3")
    broken, unbroken = tmp_path / "broken" / "out", tmp_path / "unbroken" / "out"
    assert begin_grid(file, unbroken).wait().returncode == 0
    killed = kill_at_random(begin_grid, file, broken, kills=20, seed=20, latest=1.0)
    assert sum(killed.values()) == 20
    assert min(killed.values()) >= 3, killed
    assert len(results_of(broken)) == 12
    assert_like_unbroken(broken, unbroken)
