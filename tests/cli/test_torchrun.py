"""`torchrun -m nnrs train`: one run in two processes, of which one writes and speaks, whatever befalls the other."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer

from nnrs.cli.interrupt import SIGNALS, Interruptible
from nnrs.cli.torchrun import _own_device, joined
from nnrs.cli.train import _explain_stop
from nnrs.errors import ConfigError, RunError
from nnrs.experiments import run as runs
from nnrs.experiments import together
from nnrs.experiments.config import RunConfig
from nnrs.run_directory import RunDirectory
from nnrs.training.group import ALONE, Group

# Relative. At a learning rate of 1 one process does not come as close to itself after a change of 1e-7.
CLOSE, LEARNING_RATE = 1e-5, 0.3
# Epochs of a run that is stopped after one of them: seconds are left, so that whoever stops it may be late.
LATE = 6

# As on a busy machine: torchrun looks ten times a second for a process that ended, and must not silence the others.
SLOW_TO_SPEAK = """
import time, typer
echo = typer.echo
def slow_echo(message, **options):
    time.sleep(message.startswith(("error:", "stopped")))
    echo(message, **options)
typer.echo = slow_echo
"""


@pytest.fixture
def torchrun(environment, tmp_path_factory):
    """`torchrun(...)` starts a command in two processes, both slow to speak; none outlives its test."""
    started, folder = [], tmp_path_factory.mktemp("slow")
    (folder / "sitecustomize.py").write_text(SLOW_TO_SPEAK)
    path = os.pathsep.join([str(folder), *filter(None, [environment.get("PYTHONPATH")])])

    def start(*words, restarts=0):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        process = subprocess.Popen(
            [*launcher, "--max-restarts", str(restarts), "-m", "nnrs", *map(str, words)],
            env={**environment, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            for pid in (*processes_of(process).values(), process.pid):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def handlers():
    """What hears the signals, set back after the test."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


def processes_of(launcher):
    """The processes that torchrun has started, each in a session of its own, by rank."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    environments = {int(pid): Path(f"/proc/{pid}/environ").read_text() for pid in children}
    return {re.search(r"\0RANK=(\d+)\0", text)[1]: pid for pid, text in environments.items()}


def wait_for(launcher, condition):
    deadline = time.monotonic() + 200
    while not condition():
        assert launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def epochs_of(run):
    return len(RunDirectory(run).records("metrics"))


def wait_for_one_more_epoch(launcher, run):
    """Until more epochs are recorded than a process had recorded before, however long ago it ended."""
    before = epochs_of(run)
    wait_for(launcher, lambda: epochs_of(run) > before)


def ours(stderr):
    """What nnrs itself said; torchrun adds a report of its own to whatever was not success."""
    return [line for line in stderr.splitlines() if line.startswith(("error:", "stop", "epoch", "this run"))]


def assert_alike(run, other):
    """Perplexities agree closely, all else exactly."""
    pairs = zip(RunDirectory(run).records("metrics"), RunDirectory(other).records("metrics"), strict=True)
    for record, expected in pairs:
        for name, value in expected.items():
            close = name.endswith("perplexity") and math.isclose(record[name], value, rel_tol=CLOSE)
            assert close or record[name] == value, (name, record, expected)


def test_a_run_of_two_processes_outlives_a_kill_and_a_ctrl_c_and_ends_as_that_of_one(
    torchrun, nnrs, long_text, tiny, tmp_path
):
    out, whole = tmp_path / "run", tmp_path / "whole"
    settings = f"--data {long_text} --epochs {LATE} --learning-rate {LEARNING_RATE} --prediction-rate 0.1:0.5"
    options = [*tiny, *settings.split()]

    launcher = torchrun("train", *options, "--out", out)
    wait_for_one_more_epoch(launcher, out)
    os.kill(processes_of(launcher)["1"], signal.SIGKILL)
    stdout, stderr = launcher.communicate(timeout=100)
    assert (launcher.returncode, stdout) == (1, "")
    [error] = [line for line in ours(stderr) if line.startswith("error:")]
    assert error.startswith("error: another process of this run has ended, and so does this one.")

    launcher = torchrun("train", "--out", out, "--resume")
    wait_for_one_more_epoch(launcher, out)
    os.killpg(launcher.pid, signal.SIGINT)  # as a terminal does; torchrun passes it on
    stdout, stderr = launcher.communicate(timeout=100)
    tensors, state = RunDirectory(out).checkpoint()
    where = f"in epoch {state['epoch']} after window {state['window']}"
    assert (state["epoch"], len(tensors["carry.0"])) == (epochs_of(out), 8)
    assert 0 < state["window"] < 203
    assert [line for line in ours(stderr) if line.startswith("stop")] == [
        "stopping after this window",
        f"stopped {where}; saved. Continue with: nnrs train --out {out} --resume",
    ]
    assert stdout == ""

    done = nnrs("train", "--out", out, "--resume", "--json")
    assert done.returncode == 0, done.stderr
    assert "this run began with processes 2 and goes on with 1: the last digits may differ" in done.stderr
    whole_done = nnrs("train", *options, "--out", whole)
    assert whole_done.returncode == 0, whole_done.stderr
    assert_alike(out, whole)
    summary, expected = json.loads(done.stdout), RunDirectory(whole).summary()
    assert math.isclose(summary["test_perplexity"], expected["test_perplexity"], rel_tol=CLOSE)


@pytest.mark.slow
def test_a_run_that_torchrun_starts_anew_goes_on_and_ends_as_an_unbroken_one(
    torchrun, nnrs, long_text, tiny, tmp_path
):
    options = [*tiny, "--data", long_text, "--epochs", LATE, "--learning-rate", LEARNING_RATE, "--json"]
    out, whole = tmp_path / "run", tmp_path / "whole"
    launcher = torchrun("train", *options, "--out", out, restarts=2)
    for _ in range(2):
        wait_for_one_more_epoch(launcher, out)
        processes = processes_of(launcher)
        os.kill(processes["1"], signal.SIGKILL)
        wait_for(launcher, lambda first=processes["0"]: not Path(f"/proc/{first}").exists())
    stdout, stderr = launcher.communicate(timeout=200)
    assert launcher.returncode == 0, stderr
    done = nnrs("train", *options, "--out", whole)
    assert done.returncode == 0, done.stderr
    assert_alike(out, whole)
    assert json.loads(stdout)["best_epoch"] == json.loads(done.stdout)["best_epoch"]


@pytest.mark.slow
def test_a_run_that_was_there_before_the_launch_is_refused_however_often_it_tries(
    torchrun, finished, text, tiny
):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    options = [*tiny, "--data", text, "--epochs", 3, "--learning-rate", 5]  # its own
    launcher = torchrun("train", *options, "--out", finished, restarts=1)
    stdout, stderr = launcher.communicate(timeout=100)
    assert (launcher.returncode, stdout) == (1, "")
    assert [line.split(". ")[0] for line in ours(stderr)] == [
        f"error: {finished} exists already and is not overwritten"
    ] * 2
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


@pytest.mark.parametrize("method", ["mle", "nnrs"])
def test_only_the_same_run_of_the_same_launch_is_gone_on_with(monkeypatch, text, tmp_path, method):
    settings = {"data": {"source": str(text)}, "model": {"preset": "tiny"}, "policy": {"method": method}}
    config, out = RunConfig.from_dict(settings), tmp_path / "run"

    def begun(launch, restarts, config=config):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", launch)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
        return runs.begun_by_this_launch(config, out, torch.device("cpu"))

    assert not begun("a", "1")  # a process died before there was a run
    runs.start(config, out, torch.device("cpu"))
    assert begun("a", "1")
    assert not begun("a", "0")
    assert not begun("b", "1")
    assert not begun("none", "1")
    assert not begun("a", "1", replace(config, seed=2))
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    assert not runs.begun_by_this_launch(config, out, torch.device("cpu"))


def test_processes_that_do_not_meet_say_so_in_one_line(environment, tmp_path):
    told = {"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_RESTART_COUNT": "0", "WORLD_SIZE": "2", "RANK": "1"}
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": "99999"}
    done = subprocess.run(
        [sys.executable, "-m", "nnrs", "train", "--out", str(tmp_path / "run")],
        env={**environment, **told, **place},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: process 1 of this run did not find the others (port must have value")


def test_a_process_whose_peers_are_gone_says_so_in_one_line_before_it_hears_a_signal(monkeypatch, handlers):
    def refused(*arguments, **options):
        raise RuntimeError("Connection refused\nat some address")

    told = {"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_RESTART_COUNT": "0", "WORLD_SIZE": "2", "RANK": "0"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    store = torch.distributed.HashStore()
    module = sys.modules["torch.distributed.rendezvous"]  # the package has a function of this name
    monkeypatch.setattr(module, "rendezvous", lambda *_, **options: iter([(store, 0, 2)]))
    monkeypatch.setattr(torch.distributed, "init_process_group", refused)
    with (
        pytest.raises(
            RunError, match=r"process 0 of this run did not find the others \(Connection refused\)"
        ),
        joined("cpu"),
    ):
        pass
    assert {signal.getsignal(number) for number in handlers} == {signal.SIG_IGN}
    with pytest.raises(typer.Exit) as left, joined("cpu"):  # it has been told
        pass
    assert left.value.exit_code == 2
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(RunError), joined("cpu"):  # not in this life
        pass
    monkeypatch.setattr(torch.distributed.PrefixStore, "add", refused)  # torchrun is gone as well
    with pytest.raises(RunError), joined("cpu"):
        pass


@pytest.mark.parametrize(("speaks", "told"), [(True, "stopping after this window\n"), (False, "")])
def test_a_process_of_several_hears_the_first_signal_and_no_other(speaks, told, capsys, handlers):
    with Interruptible(several=True, speaks=speaks) as interruption:
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):  # none of them stops it
            signal.raise_signal(number)
            assert interruption.asked()
    assert capsys.readouterr() == ("", told)


@pytest.mark.parametrize("error", [None, RunError("another process of this run has ended")])
def test_what_ends_a_process_of_several_is_not_cut_short_by_a_signal(error, handlers):
    with suppress(RunError), Interruptible(several=True):
        if error:
            raise error
    assert {signal.getsignal(number) for number in handlers} == {signal.SIG_IGN}


def test_an_error_that_all_processes_meet_is_told_once(torchrun, text, tiny, tmp_path):
    launcher = torchrun("train", *tiny, "--data", text, "--batch-size", 7, "--out", tmp_path / "run")
    stdout, stderr = launcher.communicate(timeout=100)
    assert (launcher.returncode, stdout) == (1, "")
    assert ours(stderr) == [
        "error: a batch of 7 rows cannot be shared equally by 2 processes. "
        "Change --batch-size or torchrun's --nproc-per-node."
    ]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["mle", "nnrs", "ss", "ss --unroll exact", "gsns", "ss --model transformer"]
)
def test_every_method_gives_the_losses_of_one_process(torchrun, nnrs, text, tiny, tmp_path, method):
    options = [*tiny, "--data", text, "--epochs", 3, "--json", "--method", *method.split()]
    launcher = torchrun("train", *options, "--out", tmp_path / "two")
    stdout, stderr = launcher.communicate(timeout=100)
    assert launcher.returncode == 0, stderr
    done = nnrs("train", *options, "--out", tmp_path / "one")
    assert done.returncode == 0, done.stderr
    assert_alike(tmp_path / "two", tmp_path / "one")
    assert json.loads(stdout).keys() == json.loads(done.stdout).keys()  # printed once


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("grid g.toml --out x", "nnrs grid"),
        ("report x", "nnrs report"),
        ("train --seeds 1-3 --out x", "--seeds"),
    ],
)
def test_what_is_for_one_process_is_refused(environment, words, what, tmp_path):
    told = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    command = [sys.executable, "-m", "nnrs", *words.split()]
    done = subprocess.run(
        command, env={**environment, **told}, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    message = f"error: {what} does not go with torchrun, which is for one run of nnrs train. Leave it out.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_is_told_once_by_the_first_process_however_late_it_is(torchrun, tmp_path):
    launcher = torchrun("report", tmp_path)
    stdout, stderr = launcher.communicate(timeout=100)
    assert (launcher.returncode, stdout) == (1, "")
    assert ours(stderr) == [
        "error: nnrs report does not go with torchrun, which is for one run of nnrs train. Leave it out."
    ]


def test_each_process_takes_the_gpu_of_its_number(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert _own_device("cpu") == torch.device("cpu")
    assert _own_device("auto") == _own_device("cuda") == torch.device("cuda", 1)
    with pytest.raises(ConfigError, match="cuda:0 is one GPU for several processes"):
        _own_device("cuda:0")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ConfigError, match="this machine's CUDA devices number 2"):
        _own_device("auto")


def test_a_run_that_processes_share_trains_in_no_fleet(monkeypatch, text, tmp_path):
    class Two(Group):
        size = 2

    monkeypatch.setattr(together, "can_batch", lambda config, device: True)
    settings = {"data": {"source": str(text)}, "model": {"preset": "tiny"}, "policy": {"method": "mle"}}
    config, cpu = RunConfig.from_dict(settings), torch.device("cpu")
    for group, expected in ((ALONE, True), (Two(), False)):
        run = runs.start(config, tmp_path / str(group.size), cpu, group)
        assert together.trains_in_fleet(run) == expected


@pytest.mark.parametrize("leads", [True, False])
def test_every_process_of_a_run_that_is_stopped_leaves_with_the_code_of_the_stop_and_one_says_so(
    leads, text, tmp_path, capsys
):
    member = type("Member", (Group,), {"size": 2, "leads": leads})()
    settings = {"data": {"source": str(text)}, "model": {"preset": "tiny"}, "policy": {"method": "mle"}}
    run = runs.start(RunConfig.from_dict(settings), tmp_path / "run", torch.device("cpu"), member)
    with pytest.raises(typer.Exit) as left:
        _explain_stop([together.Outcome(run)], tmp_path / "run", 143)
    assert left.value.exit_code == 143
    said = f"stopped in epoch 0 after window 0; saved. Continue with: nnrs train --out {tmp_path / 'run'} --resume\n"
    assert capsys.readouterr() == ("", said if leads else "")
