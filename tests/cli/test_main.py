"""The program around its commands: help and version, what becomes of its output, and errors in one line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import nnrs as library
from nnrs.cli import main


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["--version"], ["schedule"]])
def test_help_answers_without_torch(words, environment):
    command = [sys.executable, "-X", "importtime", "-m", "nnrs", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "nnrs.cli.main" in done.stderr
    modules = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert not modules & {"torch", "numpy", "safetensors"}
    assert done.stdout


def test_the_version_and_every_command_are_told(nnrs):
    assert nnrs("--version").stdout == f"nnrs {library.__version__}\n"
    told = nnrs("--help").stdout
    for command in ("train", "evaluate", "generate", "neighbors", "schedule", "demo"):
        assert command in told


def ended(environment, output, *words):
    """The exit code of a command whose standard output is this, and what it told."""
    command = [sys.executable, "-m", "nnrs", *map(str, words)]
    done = subprocess.run(
        command, env=environment, stdout=output, stderr=subprocess.PIPE, text=True, timeout=120
    )
    return done.returncode, done.stderr


PRINTING = {  # by the parser, by rich, as JSON
    "schedule": "schedule --epochs 20",
    "help": "--help",
    "neighbors": "neighbors --data {text} w001",
    "evaluate": "evaluate {run}",
    "json": "schedule --json",
}


@pytest.mark.parametrize("case", PRINTING)
def test_a_reader_that_leaves_early_is_no_error(case, environment, text, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as output:
        words = PRINTING[case].format(text=text, run=run).split()
        assert ended(environment, output, *words) == (0, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("case", ["schedule", "help", "neighbors", "json"])
def test_standard_output_that_cannot_be_written_is_told_in_one_line(case, unbuffered, environment, text):
    environment = {**environment, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as output:
        code, told = ended(environment, output, *PRINTING[case].format(text=text).split())
    assert code == 2
    assert told.startswith("error: cannot write to standard output: No space left on device. ")
    assert told.count("\n") == 1


def test_debug_shows_where_an_error_came_from(nnrs):
    done = nnrs("schedule", "--schedule", "liner", "--debug")
    assert (done.returncode, done.stdout) == (2, "")  # as without it
    *_, of_python, ours = done.stderr.splitlines()
    assert "Traceback" in done.stderr
    assert of_python.startswith("nnrs.errors.ConfigError: unknown schedule shape 'liner'")
    assert ours.startswith("error: unknown schedule shape 'liner'")


@pytest.mark.parametrize("option", ["--data", "--out"])
def test_names_that_are_not_utf8_are_refused_before_anything_is_made(option, nnrs, text, tiny, tmp_path):
    named, named_well = tmp_path / os.fsdecode(b"lat\xe4in"), tmp_path / "latin"
    if option == "--data":
        shutil.copy(text, named)
    places = {"--data": text, "--out": named_well, option: named}
    words = [word for pair in places.items() for word in pair]
    done = nnrs("train", *tiny, "--method", "mle", "--epochs", 1, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: '{tmp_path}/lat\\xe4in' is not UTF-8. Rename the file or folder, or write the word in UTF-8.\n"
    )
    assert named.exists() == (option == "--data")
    assert not named_well.exists()


def test_names_in_utf8_are_taken(nnrs):
    assert "no such file or folder: 'lätin.txt'" in nnrs("neighbors", "--data", "lätin.txt").stderr


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_only_a_lack_of_memory_is_told_in_one_line(error, told, monkeypatch, capsys):
    def fail(**options):
        raise error

    monkeypatch.setattr(main, "app", fail)
    monkeypatch.setattr(sys, "argv", ["nnrs", "train"])
    with pytest.raises(SystemExit if told else RuntimeError):
        main.main()
    assert ("error: there is not enough memory" in capsys.readouterr().err) == told


def test_debug_shows_where_memory_was_lacking(monkeypatch, capsys):
    def fail(**options):
        raise MemoryError("here")

    monkeypatch.setattr(main, "app", fail)
    monkeypatch.setattr(sys, "argv", ["nnrs", "train", "--debug"])
    with pytest.raises(SystemExit):
        main.main()
    *_, of_python, ours = capsys.readouterr().err.splitlines()
    assert (of_python, ours.startswith("error: there is not enough memory")) == ("MemoryError: here", True)
