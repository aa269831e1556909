"""A run is trained by one process at a time."""

import errno
import os
import signal
import time

import pytest

from nnrs.errors import RunError
from nnrs.run_directory import RunDirectory

# Epochs for as long as the test may take.
OPTIONS = ["--epochs", "5000", "--learning-rate", "5"]


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def epochs_of(run):
    return [record["epoch"] for record in RunDirectory(run).records("metrics")]


def wait_for_one_more_epoch(process, run):
    deadline, before = time.monotonic() + 100, epochs_of(run)
    while epochs_of(run) == before:
        assert not process.has_ended
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("seeds", "name"), [([], ""), (["--seeds", "1-2"], "seed-1")])
def test_a_run_that_is_being_trained_is_not_continued_by_another_process(
    begin, nnrs, long_text, tiny, tmp_path, seeds, name
):
    out = tmp_path / "run"
    process = begin("train", *tiny, "--data", long_text, *OPTIONS, *seeds, "--out", out)
    wait_for_one_more_epoch(process, out / name)
    os.killpg(process.pid, signal.SIGSTOP)
    before = files(out)
    done = nnrs("train", "--out", out, "--resume")
    told = f"error: {out / name} is being trained by another process. Wait for its end, or stop it.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)
    assert files(out) == before
    os.killpg(process.pid, signal.SIGCONT)
    wait_for_one_more_epoch(process, out / name)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait().returncode == 130
    epochs = epochs_of(out / name)
    assert epochs == list(range(len(epochs)))
    wait_for_one_more_epoch(begin("train", "--out", out, "--resume"), out / name)


def test_a_claim_goes_with_its_release_and_a_process_may_have_it_twice(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {})
    run.claim()
    RunDirectory(tmp_path / "run").claim()
    RunDirectory(tmp_path / "run").release()
    run.release()
    run.claim()
    run.release()


def test_where_there_are_no_locks_a_run_is_trained_all_the_same(tmp_path, monkeypatch):
    def flock(handle, how):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr("fcntl.flock", flock)
    run = RunDirectory.create(tmp_path / "run", {})
    run.claim()
    run.release()


def test_who_cannot_be_the_only_one_is_refused(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path / "run", {})
    run.claim()
    monkeypatch.setattr(RunDirectory, "_claims", {})  # as in another process
    with pytest.raises(RunError, match="run is being trained by another process"):
        RunDirectory(tmp_path / "run").claim()
    monkeypatch.undo()
    run.release()
    RunDirectory(tmp_path / "run").claim()
    run.release()
