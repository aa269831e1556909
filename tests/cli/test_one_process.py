"""A run is trained by one process at a time."""

import errno
import os
import signal
import time

import pytest

from nnrs.errors import RunError
from nnrs.run_directory import RunDirectory

OPTIONS = ["--epochs", "2", "--learning-rate", "5"]


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("seeds", "name"), [([], ""), (["--seeds", "1-2"], "seed-1")])
def test_a_run_that_is_being_trained_is_not_continued_by_another_process(
    begin, nnrs, long_text, tiny, tmp_path, seeds, name
):
    out = tmp_path / "run"
    process = begin("train", *tiny, "--data", long_text, *OPTIONS, *seeds, "--out", out)
    deadline = time.monotonic() + 100
    while not (out / name / "metrics.jsonl").exists():
        assert not process.has_ended
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGSTOP)
    before = files(out)
    done = nnrs("train", "--out", out, "--resume")
    told = f"error: {out / name} is being trained by another process. Wait for its end, or stop it.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)
    assert files(out) == before
    os.killpg(process.pid, signal.SIGCONT)
    assert process.wait().returncode == 0
    assert [record["epoch"] for record in RunDirectory(out / name).records("metrics")] == [0, 1]
    assert nnrs("train", "--out", out, "--resume").returncode == 0


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
