"""The process that stands by for the other tests gives them what a start from nothing would."""

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train", "error: nnrs train: missing option '--out': "),
        ("train --data nowhere.txt --out x", "error: no such file or folder: 'nowhere.txt'."),
        ("train --epochs 0 --out x --debug", "error: epochs must be at least 1, got 0."),
    ],
)
def test_a_forked_command_says_and_ends_as_one_started_from_nothing(words, told, nnrs, environment, tmp_path):
    command = [sys.executable, "-m", "nnrs", *words.split()]
    fresh = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    forked = nnrs(*words.split(), cwd=tmp_path)
    assert fresh.returncode > 0
    assert fresh.stderr.splitlines()[-1].startswith(told)
    assert (forked.returncode, forked.stdout) == (fresh.returncode, fresh.stdout)
    assert forked.stderr.splitlines()[-1] == fresh.stderr.splitlines()[-1]


def test_a_command_that_takes_too_long_and_one_that_is_killed_end_by_a_signal(nnrs, begin, text, tmp_path):
    endless = ["train", "--data", text, "--epochs", 100_000]
    assert nnrs(*endless, "--out", tmp_path / "long", seconds=2).returncode == -signal.SIGALRM
    process = begin(*endless, "--out", tmp_path / "killed")
    assert not process.has_ended
    process.kill()
    assert process.wait().returncode == -signal.SIGKILL
