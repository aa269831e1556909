"""The command line as real processes, small texts for it, and one finished run."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

TINY = "--preset tiny --units 16 --max-vocabulary 200 --batch-size 8 --bptt 10"
Command = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "Running"]


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


class Running:
    """A command that was started, with the folder that its outcome comes to (see standby.py)."""

    def __init__(self, words: Sequence[str], folder: Path, alive: Callable[[], bool]) -> None:
        self._words, self._folder, self._alive = words, folder, alive
        self.pid = self._read("pid")

    @property
    def has_ended(self) -> bool:
        """Whether its exit code is known."""
        return (self._folder / "code").exists()

    def kill(self) -> None:
        """Kill it, unless it has ended: its number may be another's by now."""
        if not self.has_ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> "subprocess.CompletedProcess[str]":
        """Its outcome; where it took too long, the exit code is -SIGALRM."""
        code = self._read("code")
        printed, told = ((self._folder / name).read_text() for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess(self._words, code, printed, told)

    def _read(self, name: str) -> int:
        while not (self._folder / name).exists():
            assert self._alive(), "the process that stood by has ended"
            time.sleep(0.005)
        return int((self._folder / name).read_text())


@contextlib.contextmanager
def standing_by(environment: dict[str, str], folders: Path) -> Iterator[Start]:
    """What starts commands in an environment, in processes that need not import torch; several threads may ask."""
    asking = threading.Lock()
    program = [sys.executable, str(Path(__file__).with_name("standby.py"))]
    standby = subprocess.Popen(program, env=environment, stdin=subprocess.PIPE, text=True)

    def ask(*words: object, cwd: Path | None = None, seconds: int = 300) -> Running:
        told, folder = [str(word) for word in words], tempfile.mkdtemp(dir=folders)
        with asking:
            standby.stdin.write(json.dumps([told, str(cwd or Path.cwd()), folder, seconds]) + "\n")
            standby.stdin.flush()
        return Running(told, Path(folder), lambda: standby.poll() is None)

    yield ask
    standby.communicate()


@pytest.fixture(scope="session")
def start(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """`start(...)` starts one command."""
    with standing_by(environment, tmp_path_factory.mktemp("commands")) as ask:
        yield ask


@pytest.fixture(scope="session")
def nnrs_without_metrics(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Command]:
    """`nnrs_without_metrics(...)` runs one command where the extra `metrics` is not installed."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "sitecustomize.py").write_text(
        'import sys\nsys.modules["ot"] = sys.modules["sacrebleu"] = None\n'
    )
    path = os.pathsep.join([str(folder), *filter(None, [environment.get("PYTHONPATH")])])
    with standing_by({**environment, "PYTHONPATH": path}, folder) as ask:
        yield lambda *words: ask(*words).wait()


@pytest.fixture
def begin(start: Start) -> Iterator[Start]:
    """`begin(...)` starts one command as well, and it does not outlive the test."""
    begun = []

    def begin_one(*words: object, **options: object) -> Running:
        begun.append(start(*words, **options))
        return begun[-1]

    yield begin_one
    for process in begun:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def nnrs(start: Start) -> Command:
    """`nnrs(...)` runs one command to its end."""

    def run(*words: object, **options: object) -> "subprocess.CompletedProcess[str]":
        return start(*words, **options).wait()

    return run


@pytest.fixture(scope="session")
def nnrs_each(nnrs: Command) -> Callable[..., "dict[str, subprocess.CompletedProcess[str]]"]:
    """`nnrs_each({name: words})`: each command's outcome, two at a time."""

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
def finished(
    environment: dict[str, str], text: Path, tiny: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An ss-nnrs run of three epochs, with what it printed beside it. Copy it before changing it."""
    out = tmp_path_factory.mktemp("finished") / "run"
    options = f"--data {text} --epochs 3 --learning-rate 5 --tensorboard --json --out {out}".split()
    # From nothing, as a user starts it, and so with other hashes than the runs that are compared with it.
    command = [sys.executable, "-m", "nnrs", "train", *tiny, *options]
    done = subprocess.run(command, env=environment, timeout=120, capture_output=True, text=True)
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
