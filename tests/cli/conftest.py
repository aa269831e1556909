"""The command line as real processes, small texts for it, and one finished run."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

TINY = "--preset tiny --units 16 --max-vocabulary 200 --batch-size 8 --bptt 10"
Command = Callable[..., "subprocess.CompletedProcess[str]"]


def write_text(path: Path, lines: int) -> Path:
    """Sentences in which every word has one of three successors, so that there is something to learn."""
    draws, words = random.Random(lines), [f"w{number:03d}" for number in range(150)]
    sentences = []
    for _ in range(lines):
        sentence = [draws.randrange(150)]
        while len(sentence) < 8:
            sentence.append((2 * sentence[-1] + draws.randrange(3)) % 150)
        sentences.append(" ".join(words[index] for index in sentence))
    path.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """Options for a model that trains in no time."""
    return TINY.split()


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One thread, so that the order of every sum is the same; no cache of the user's."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "NNRS_CACHE": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture(scope="session")
def nnrs(environment) -> Command:
    """`nnrs(...)` runs one command to its end."""

    def run(*arguments: object, **options: object) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "nnrs", *map(str, arguments)]
        settings = {"env": environment, "timeout": 120, "capture_output": True, "text": True, **options}
        return subprocess.run(command, **settings)

    return run


@pytest.fixture(scope="session")
def nnrs_each(nnrs: Command) -> Callable[..., "dict[str, subprocess.CompletedProcess[str]]"]:
    """`nnrs_each({name: words})`: each command's outcome, two at a time, for most of it is the import of torch."""

    def run(commands: "dict[str, list[object]]") -> "dict[str, subprocess.CompletedProcess[str]]":
        with ThreadPoolExecutor(2) as pool:
            return dict(zip(commands, pool.map(lambda words: nnrs(*words), commands.values()), strict=True))

    return run


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 lines of 150 words: 41 windows an epoch."""
    return write_text(tmp_path_factory.mktemp("text") / "small.txt", 400)


@pytest.fixture(scope="session")
def long_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 lines: 203 windows an epoch, long enough to be interrupted in the middle of one."""
    return write_text(tmp_path_factory.mktemp("text") / "long.txt", 2000)


@pytest.fixture(scope="session")
def finished(nnrs: Command, text: Path, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ss-nnrs run of three epochs, with what it printed beside it. Copy it before changing it."""
    out = tmp_path_factory.mktemp("finished") / "run"
    options = f"--data {text} --epochs 3 --learning-rate 5 --tensorboard --json --out {out}".split()
    done = nnrs("train", *tiny, *options)
    assert done.returncode == 0, done.stderr
    (out.parent / "stdout.json").write_text(done.stdout)
    (out.parent / "stderr.txt").write_text(done.stderr)
    assert json.loads(done.stdout)["best_epoch"] == 2  # every epoch improved
    return out


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """`disk(options)` mounts a small file system of its own, or mounts it anew with other options."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options: str) -> Path:
        again = "remount," if place.is_mount() else ""
        command = ["mount", "-t", "tmpfs", "-o", f"{again}{options}", "tmpfs", str(place)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip("this machine has no mount command")
        if done.returncode:
            pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
        return place

    yield mount
    if place.is_mount():
        subprocess.run(["umount", str(place)], check=True)
