"""Grids as real processes: what is missing is run, what is done is skipped, and a kill costs nothing."""

import gzip
import json
import os
import random
import re
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

GRID = """
title = "Two methods"
data = "{text}"
preset = "tiny"
units = 16
max_vocabulary = 200
batch_size = 8
bptt = 10
learning_rate = 5
epochs = {epochs}
method = {methods}
seeds = "{seeds}"
{more}

[evaluate]
metrics = ["perplexity", "bleu"]
sentences = 20
prefix = 5
length = 10
"""


def write_grid(path, text, *, epochs=2, methods='["mle", "ss-nnrs"]', seeds="1-2", more=""):
    path.write_text(GRID.format(text=text, epochs=epochs, methods=methods, seeds=seeds, more=more))
    return path


def results_of(out):
    """The stored results by cell, without the one part that depends on the clock."""
    found = {path.parent.name: json.loads(path.read_text()) for path in out.glob("runs/*/result.json")}
    return {
        name: {key: part for key, part in found[name].items() if key != "timing"} for name in sorted(found)
    }


def written(out):
    """Every file with the moment it was written."""
    return {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}


def failures_of(out):
    path = out / "failures.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


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
def done(nnrs, text, tmp_path_factory):
    """A grid of two methods and two seeds, with what it printed. Not to be changed."""
    folder = tmp_path_factory.mktemp("grid")
    file = write_grid(folder / "grid.toml", text)
    ended = nnrs("grid", file, "--out", folder / "out", "--jobs", 2)
    assert ended.returncode == 0, ended.stderr
    return file, folder / "out", ended


@pytest.fixture
def copied(done, tmp_path):
    """The same grid to be changed."""
    subprocess.run(["cp", "-a", str(done[1]), str(tmp_path / "out")], check=True)
    return done[0], tmp_path / "out"


@pytest.fixture(scope="module")
def unbroken(nnrs, long_text, tmp_path_factory):
    """A grid of three runs whose epochs are long enough to be interrupted. Not to be changed."""
    folder = tmp_path_factory.mktemp("unbroken")
    file = write_grid(folder / "grid.toml", long_text, methods='"ss-nnrs"', seeds="1-3")
    ended = nnrs("grid", file, "--out", folder / "out", "--jobs", 1)
    assert ended.returncode == 0, ended.stderr
    return file, folder / "out"


NAMES = [f"{method}_seed-{seed}" for method in ("mle", "ss-nnrs") for seed in (1, 2)]


def test_a_grid_ends_with_a_result_for_every_cell_and_a_row_for_every_configuration(done):
    _, out, ended = done
    assert sorted(results_of(out)) == sorted(NAMES)
    assert re.search(r"mle .* 2 .*±.*\n.*ss-nnrs .* 2 .*±", ended.stdout)
    assert "4 of 4 runs done" in ended.stderr
    assert not failures_of(out)
    assert (out / "explorer.json").is_file()


def test_a_result_says_all_that_a_page_needs(done):
    result = results_of(done[1])["ss-nnrs_seed-2"]
    assert result["labels"] == {"method": "ss-nnrs"}
    assert [line["epoch"] for line in result["epochs"]] == [0, 1]
    assert {score["metric"] for score in result["scores"]} >= {"ppl", "bleu4"}
    assert [len(sample["prefix"]) for sample in result["samples"]] == [5] * 5
    trajectory = result["trajectory"]
    for gold, used, source in zip(*(trajectory[key] for key in ("gold", "inputs", "sources")), strict=True):
        assert source in ("gold", "neighbor", "prediction")
        assert gold == used or source != "gold"
    assert {"neighbor", "prediction"} & {*trajectory["sources"]}
    assert str(done[1].parent) not in json.dumps(result)  # no path of this machine


def test_a_result_can_be_repeated_by_its_command(done, nnrs, text, tmp_path):
    result = results_of(done[1])["ss-nnrs_seed-2"]
    words = result["command"].split()
    ended = nnrs(*words[1:], "--json", cwd=text.parent)
    assert ended.returncode == 0, ended.stderr
    again = json.loads(ended.stdout)
    assert again["test_perplexity"] == result["test_perplexity"]
    assert again["signature"] == result["signature"]


def test_a_finished_grid_is_left_as_it_is(done, nnrs):
    file, out, first = done
    before = written(out)
    again = nnrs("grid", file, "--out", out)
    assert again.returncode == 0
    assert again.stdout == first.stdout
    assert written(out) == before


def test_more_seeds_add_runs_and_leave_the_others_alone(copied, nnrs, text, tmp_path):
    _, out = copied
    before = {path: when for path, when in written(out).items() if "runs" in path.parts}
    larger = write_grid(tmp_path / "larger.toml", text, seeds="1-3")
    ended = nnrs("grid", larger, "--out", out, "--jobs", 1, "--json")
    assert ended.returncode == 0, ended.stderr
    assert {path: when for path, when in written(out).items() if path in before} == before
    names = [cell["name"] for cell in json.loads((out / "plan.json").read_text())["cells"]]
    assert names == [*NAMES, "mle_seed-3", "ss-nnrs_seed-3"]
    assert [result["name"] for result in json.loads(ended.stdout)] == names


@pytest.fixture(scope="module")
def records(done, nnrs):
    """The results of the grid as a small file, without its models."""
    path = done[1].parent / "records.jsonl.gz"
    assert nnrs("results", done[1], "--format", "jsonl", "--out", path).returncode == 0
    return path


def test_a_plan_goes_on_elsewhere_from_its_records_alone(done, records, nnrs, text, tmp_path):
    out, larger = tmp_path / "out", write_grid(tmp_path / "larger.toml", text, seeds="1-3")
    command = ["grid", larger, "--out", out, "--jobs", 2, "--fleet", 2, "--records", records]
    ended = nnrs(*command)
    assert ended.returncode == 0, ended.stderr
    assert "4 of 6 runs are taken from records.jsonl.gz\n" in ended.stderr
    assert {path.parent.name for path in out.glob("runs/*/config.json")} == {"mle_seed-3", "ss-nnrs_seed-3"}
    ours = results_of(out)
    assert {name: ours[name] for name in NAMES} == results_of(done[1])
    assert len(ours) == 6
    assert (out / "explorer.json").is_file()  # from the run whose model is here
    before = written(out)
    again = nnrs(*command)
    assert "0 of 6 runs are taken from records.jsonl.gz; 4 that fit are here already\n" in again.stderr
    assert again.stdout == ended.stdout
    assert written(out) == before


def test_a_grid_names_the_runs_whose_training_came_apart(records, nnrs, text, tmp_path):
    lines = [json.loads(line) for line in gzip.decompress(records.read_bytes()).splitlines()]
    spoilt = next(line for line in lines if line["name"] == "mle_seed-2")
    spoilt["best_epoch"] = 1
    spoilt["epochs"].append({**spoilt["epochs"][1], "epoch": 2, "valid_perplexity": 1e6})
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    command = ["grid", write_grid(tmp_path / "grid.toml", text), "--out"]
    told = nnrs(*command, tmp_path / "spoilt", "--records", changed)
    assert told.returncode == 0, told.stderr
    assert "\nmle (seed 2) came apart in training: after the best epoch," in told.stderr
    assert "came apart" not in nnrs(*command, tmp_path / "whole", "--records", records).stderr


def test_a_dry_run_counts_the_runs_of_its_records_as_there(records, nnrs, text, tmp_path):
    larger = write_grid(tmp_path / "larger.toml", text, seeds="1-3")
    command = ["grid", larger, "--out", tmp_path / "out", "--dry-run", "--json"]
    told = nnrs(*command, "--records", records)
    assert told.returncode == 0, told.stderr
    states = {line["run"]: line["state"] for line in json.loads(told.stdout)}
    new = dict.fromkeys(["mle_seed-3", "ss-nnrs_seed-3"], "new")
    assert states == {**dict.fromkeys(NAMES, "in the records"), **new}
    assert "6 runs, 2 of them to be run, 4 epochs." in told.stderr
    assert not (tmp_path / "out").exists()


def test_records_of_other_runs_are_refused_with_the_difference_before_anything_is_made(
    done, records, nnrs, text, tmp_path
):
    other = write_grid(tmp_path / "other.toml", text, epochs=3)
    ended = nnrs("grid", other, "--out", tmp_path / "out", "--records", records)
    assert ended.returncode == 2
    assert "no record is a run of this plan" in ended.stderr
    assert "in training.epochs (2 there, 3 here). Leave --records out" in ended.stderr
    assert ended.stderr.startswith(f"error: {records}: no record is a run of this plan.")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epochs": 3}, "holds another plan, whose mle_seed-1 differs in training.epochs (2 there, 3 here)."),
        ({"seeds": "1"}, "runs that this one lacks: mle_seed-2, ss-nnrs_seed-2. Choose another --out"),
    ],
)
def test_another_plan_is_refused_and_nothing_changes(change, told, copied, nnrs, text, tmp_path):
    _, out = copied
    before = written(out)
    other = write_grid(tmp_path / "other.toml", text, **change)
    ended = nnrs("grid", other, "--out", out)
    assert ended.returncode == 2
    assert told in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert written(out) == before


def test_a_folder_that_is_no_grid_is_refused(done, nnrs, tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    ended = nnrs("grid", done[0], "--out", tmp_path)
    assert ended.returncode == 2
    assert "letters.txt and no plan.json" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_result_whose_model_was_trained_further_is_made_again(copied, nnrs):
    """As after `nnrs train --resume --previous` in a cell: the stored result speaks of another model."""
    file, out = copied
    path = out / "runs" / NAMES[0] / "result.json"
    stale = json.loads(path.read_text())
    path.write_text(json.dumps({**stale, "model": "of another time", "test_perplexity": 1.0}))
    assert nnrs("grid", file, "--out", out).returncode == 0
    assert json.loads(path.read_text())["test_perplexity"] == stale["test_perplexity"]


def test_a_run_that_fails_is_named_and_tried_again_next_time_while_the_others_go_on(nnrs, text, tmp_path):
    more = '[[runs]]\nlearning_rate = 5\n[[runs]]\nmethod = "mle"\nlearning_rate = 1e30\nclip = 1e30\n'
    bad = '[[runs]]\nmethod = "nnrs"\nprotect = ["nowhere"]\n'
    file = tmp_path / "grid.toml"
    body = GRID.format(text=text, epochs=1, methods='"mle"', seeds="1", more="")
    file.write_text(body + more + bad)
    command = ["grid", file, "--out", tmp_path / "out", "--jobs", 1]
    ended = nnrs(*command)
    assert ended.returncode == 2
    assert len(results_of(tmp_path / "out")) == 1
    told = [line for line in ended.stderr.splitlines() if line.startswith("error:")]
    assert len(told) == 2
    assert any("perplexity is no longer finite" in line for line in told)
    assert any("cannot protect 'nowhere'" in line for line in told)
    kinds = sorted((record["kind"], record["try"]) for record in failures_of(tmp_path / "out"))
    assert kinds == [("diverged", 1), ("error", 1)]
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(
        "1 runs are done, 2 failed. 1 of them diverged, and would again. Run it again to retry 1: "
    )
    assert nnrs(*command).returncode == 2
    assert len(failures_of(tmp_path / "out")) == 4
    file.write_text(body + more)
    apart = nnrs("grid", file, "--out", tmp_path / "apart", "--jobs", 1)
    assert apart.stderr.splitlines()[-1] == "1 runs are done, 1 failed. 1 of them diverged, and would again."


def test_ctrl_c_saves_and_stops_and_the_next_start_ends_as_an_unbroken_grid(begin_grid, unbroken, tmp_path):
    file, whole = unbroken
    process = begin_grid(file, tmp_path / "out")
    wait_for(
        lambda: len(list((tmp_path / "out").glob("runs/*/metrics.jsonl"))) == 2
    )  # both in their second epoch
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
    assert "error: mle_seed-1: lost 3 times: its process ended with -9" in ended.stderr
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
