"""A run that was interrupted, killed or starved goes on to the very bits of an unbroken one."""

import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file
from tests.saved_runs import edit_config, reconfigure

from nnrs.cli.interrupt import Interruptible
from nnrs.errors import DataError
from nnrs.experiments import run as runs
from nnrs.experiments.config import RunConfig
from nnrs.experiments.estimate import estimate
from nnrs.run_directory import RunDirectory

CLOCKED = {"timing.jsonl"}  # all that an unbroken run may differ in


def content(path):
    """A file's bytes; of safetensors each tensor's, for the order of the metadata is left to chance there."""
    if path.suffix != ".safetensors":
        return path.read_bytes()
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in load_file(path).items()}


def outcome(run):
    """Every file of a run that does not depend on the clock, bit for bit: records, weights, summary."""
    return {path.name: content(path) for path in run.iterdir() if path.is_file() and path.name not in CLOCKED}


def last_outcome(run):
    """The same without the checkpoint before the last, which an interruption leaves in mid-epoch."""
    names = sorted(path.stem for path in run.glob("checkpoint-*.json"))
    return {name: data for name, data in outcome(run).items() if Path(name).stem not in names[:-1]}


def lines(run):
    path = run / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def wait_for_epochs(process, run, count):
    """Until `count` epochs are recorded, or the process has ended."""
    deadline = time.monotonic() + 100
    while lines(run) < count and not process.has_ended:
        assert time.monotonic() < deadline, "no epoch was recorded"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def long_options(long_text, tiny):
    """Of a run that takes seconds after its first epoch, so that its stop may be late."""
    return [*tiny, "--data", str(long_text), "--epochs", "12", "--learning-rate", "5"]


@pytest.fixture(scope="module")
def unbroken(nnrs, long_options, tmp_path_factory):
    """The run that every interrupted one must equal."""
    out = tmp_path_factory.mktemp("unbroken") / "run"
    done = nnrs("train", *long_options, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_an_interrupted_run_saves_in_mid_epoch_and_resumes_bitwise(
    begin, nnrs, unbroken, long_options, tmp_path
):
    out = tmp_path / "run"
    settings = long_options
    # Ctrl-C, then what a batch system sends; 128 and the number of the signal
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        epochs = lines(out) + 1
        process = begin("train", *settings, "--out", out)
        wait_for_epochs(process, out, epochs)
        os.killpg(process.pid, number)  # as a terminal does
        done = process.wait()
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert done.stderr.splitlines()[-1].endswith(f"Continue with: nnrs train --out {out} --resume")
        assert "Traceback" not in done.stderr
        tensors, state = RunDirectory(out).checkpoint()
        assert state["epoch"] == lines(out) >= epochs
        assert 0 < state["window"] < 203  # 1,800 training lines of 9 tokens / (8 rows x 10) = 202.5
        assert "carry.0" in tensors
        settings = ["--resume"]

    done = nnrs("train", "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    assert f"continuing in epoch {state['epoch']}, window {state['window']}" in done.stderr
    assert last_outcome(out) == last_outcome(unbroken)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_asks_and_the_second_stops(number, code):
    before = signal.getsignal(number)
    with Interruptible() as interruption:
        assert not interruption.asked()
        signal.raise_signal(number)
        assert interruption.asked()
        assert interruption.exit_code == code
        with pytest.raises(SystemExit) as stopped:
            signal.raise_signal(number)
        assert stopped.value.code == code
    assert signal.getsignal(number) is before


KILLED = {
    "ss-nnrs, exact": "--method ss-nnrs --unroll exact --rule effective",
    "ss-nnrs, parallel, plateau": "--method ss-nnrs --passes 2 --annealing plateau --model transformer",
    "gsns, adamw": "--method gsns --neighbor-rate 0.5 --optimizer adamw --learning-rate 0.01",
}


@pytest.mark.parametrize("case", KILLED)
def test_a_run_killed_again_and_again_ends_bitwise_as_an_unbroken_one(
    case, begin, nnrs, text, tiny, tmp_path
):
    options = [*tiny, "--data", text, "--epochs", 8, *KILLED[case].split()]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    moments = random.Random(case)
    with ThreadPoolExecutor(1) as pool:
        unbroken = pool.submit(nnrs, "train", *options, "--out", whole)
        for kill in range(2):
            settings = ["--resume"] if broken.exists() else options
            process = begin("train", *settings, "--out", broken)
            wait_for_epochs(process, broken, lines(broken) + 1)
            time.sleep(moments.uniform(0.0, 0.2))
            process.kill()
            done = process.wait()
            # the second may have been done
            assert kill > 0 or done.returncode == -signal.SIGKILL, done.stderr
        done = nnrs("train", "--out", broken, "--resume")
        assert (done.returncode, unbroken.result().returncode) == (0, 0), done.stderr
    assert outcome(broken) == outcome(whole)


def test_seeds_killed_again_and_again_end_bitwise_as_single_runs(
    begin, nnrs, nnrs_each, text, tiny, tmp_path
):
    options = [*tiny, "--data", text, "--epochs", 4, "--learning-rate", 5]
    broken, moments = tmp_path / "broken", random.Random("seeds")
    settings = [*options, "--seeds", "1-3"]
    for name in ("seed-1", "seed-2"):  # in the middle of the first run, then of the second
        process = begin("train", *settings, "--out", broken)
        wait_for_epochs(process, broken / name, lines(broken / name) + 1)
        time.sleep(moments.uniform(0.0, 0.05))
        process.kill()
        done = process.wait()
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert sorted(path.name for path in broken.iterdir()) == ["seed-1", "seed-2", "seed-3"]
        settings = ["--resume"]
    done = nnrs("train", "--out", broken, "--resume", "--json")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^finished: [12] of 3 runs$", done.stderr, re.MULTILINE)
    single = {seed: tmp_path / f"single-{seed}" for seed in (1, 2, 3)}
    made = nnrs_each(
        {str(seed): ["train", *options, "--seed", seed, "--out", out] for seed, out in single.items()}
    )
    assert [outcome.returncode for outcome in made.values()] == [0, 0, 0]
    for seed, out in single.items():
        assert outcome(broken / f"seed-{seed}") == outcome(out)
    assert json.loads(done.stdout)["runs"] == [RunDirectory(out).summary() for out in single.values()]


def test_an_interruption_of_seeds_says_what_became_of_them_and_how_to_go_on(begin, long_options, tmp_path):
    out = tmp_path / "runs"

    def interrupted(settings):
        epochs = lines(out / "seed-4") + 1
        process = begin("train", *settings, "--out", out)
        wait_for_epochs(process, out / "seed-4", epochs)
        os.killpg(process.pid, signal.SIGINT)
        done = process.wait()
        assert (done.returncode, done.stdout) == (130, ""), done.stderr
        assert done.stderr.splitlines()[-1] == (
            f"stopped with 0 of 2 runs at their end; saved. Continue with: nnrs train --out {out} --resume"
        )
        return done.stderr

    interrupted([*long_options, "--seeds", "4,2"])
    _, state = RunDirectory(out / "seed-4").checkpoint()
    assert 0 < state["window"] < 203
    assert sorted(path.name for path in (out / "seed-2").iterdir()) == [
        "config.json",
        "neighbors.safetensors",
        "vocabulary.json",
    ]  # it was not begun
    reconfigure(out / "seed-2", lambda config: config["optimizer"].update(learning_rate=1e30))
    told = interrupted(["--resume"])  # seed-2 comes first now, and diverges
    assert f"\nseed-4: continuing in epoch {state['epoch']}, window {state['window']}\n" in told
    assert "seed-2: continuing" not in told
    assert re.search(r"^seed-2: the .* is no longer finite in epoch 0", told.splitlines()[-2])


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    begin, nnrs, unbroken, long_options, tmp_path
):
    out = tmp_path / "run"
    process = begin("train", *long_options, "--out", out)
    while not list(out.glob("checkpoint-*.json")) and not process.has_ended:
        time.sleep(0.01)
    # From here on no file may grow past 20 kB: records fit, the 28 kB of weights do not.
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    done = process.wait()
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    error = done.stderr.splitlines()[-1]
    # Whichever is the next to be written.
    assert re.match(f"error: cannot write {re.escape(str(out))}/(best|checkpoint)-", error)
    assert "File too large" in error
    assert "Traceback" not in done.stderr

    _, state = RunDirectory(out).checkpoint()
    assert (state["epoch"], state["window"]) == (lines(out) - 1, 0)  # the last one that was whole
    assert not list(out.glob(".*.tmp"))

    done = nnrs("train", "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    assert outcome(out) == outcome(unbroken)


def test_a_full_disk_is_named_and_the_run_goes_on_when_there_is_room(nnrs, finished, text, tiny, disk):
    # The weights are 28 kB and are kept twice; table, vocabulary and records come before them.
    out = disk("size=80k") / "run"
    options = ["--data", text, "--epochs", "3", "--learning-rate", "5"]
    done = nnrs("train", *tiny, *options, "--out", out)
    assert (done.returncode, done.stdout) == (2, "")
    error = done.stderr.splitlines()[-1]
    assert error.startswith(f"error: cannot write {out}/")
    assert "No space left on device" in error
    assert error.endswith(
        " Mend that, or choose another place, and try again. What was trained goes on with --resume."
    )
    assert "Traceback" not in done.stderr
    disk("size=4m")
    done = nnrs("train", "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    assert outcome(out) == outcome(finished)


def test_a_damaged_checkpoint_is_left_for_the_previous_one(nnrs, finished, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    newest = max(out.glob("checkpoint-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:1000])
    done = nnrs("train", "--out", out, "--resume", "--previous")
    assert done.returncode == 0, done.stderr
    assert "continuing in epoch 2, window 0" in done.stderr
    assert outcome(out) == outcome(finished)


# From here on in one process: a kill is an exception that no code of ours catches, after which nothing is written.


class Killed(BaseException):
    """Not an Exception, as a kill is not one."""


class Reaper:
    """Lets `life` changes to the disk happen and kills at the next one, which leaves half a line or a spare file."""

    def __init__(self, monkeypatch):
        self.life = sys.maxsize
        replace, unlink, append = Path.replace, Path.unlink, RunDirectory.append
        monkeypatch.setattr(Path, "replace", lambda path, target: self._spend() or replace(path, target))
        monkeypatch.setattr(
            Path, "unlink", lambda path, **options: self._spend(path.exists()) or unlink(path, **options)
        )
        monkeypatch.setattr(RunDirectory, "append", lambda *record: self._tear(*record) or append(*record))

    def _spend(self, matters=True):
        if self.life <= 0:
            raise Killed
        self.life -= matters

    def _tear(self, run, name, record):
        if self.life <= 0:
            with (run.path / f"{name}.jsonl").open("a") as file:
                file.write('{"epoch": ')
        self._spend()


@pytest.fixture(scope="module")
def small_config(text, tmp_path_factory):
    short = tmp_path_factory.mktemp("short") / "short.txt"
    short.write_text("".join(text.read_text().splitlines(keepends=True)[:60]))
    return RunConfig.from_dict(
        {
            "data": {"source": str(short)},
            "policy": {"prediction_rate": {"end": 0.5}, "neighbor_rate": {"end": 0.5}},
            "model": {"preset": "tiny", "units": 8},
            "optimizer": {"name": "adamw", "learning_rate": 0.02},
            "training": {
                "epochs": 3,
                "batch_size": 8,
                "bptt": 13,
            },  # 54 lines of 9 tokens: 5 windows of 8 rows
        }
    )


def test_a_kill_at_any_write_changes_nothing(small_config, monkeypatch, tmp_path):
    cpu, reaper = torch.device("cpu"), Reaper(monkeypatch)
    two_windows = replace(small_config.training, bptt=31)
    config = replace(small_config, training=two_windows)
    runs.start(config, tmp_path / "whole", cpu).finish()
    expected = outcome(tmp_path / "whole")
    operations = sys.maxsize - reaper.life
    assert operations >= 24  # 3 files, then 6 an epoch, old ones dropped, a summary
    for life in range(operations):
        out = tmp_path / f"killed-{life}"
        reaper.life = life
        with pytest.raises(Killed):
            runs.start(config, out, cpu).finish()
        reaper.life = sys.maxsize
        if not (out / "config.json").exists():  # killed before there was a run
            continue
        runs.resume(out, cpu).finish()
        assert outcome(out) == expected, f"killed at write {life}"


def test_an_interruption_after_any_window_changes_nothing(small_config, tmp_path):
    cpu = torch.device("cpu")
    runs.start(small_config, tmp_path / "whole", cpu).finish()
    for windows in (1, 2, 3, 4, 6, 14):
        out = tmp_path / f"stopped-{windows}"
        run = runs.start(small_config, out, cpu)
        estimate(run)  # tries windows, and must leave no trace
        assert (
            run.finish(should_stop=lambda run=run, at=windows: run.trainer.live.position.step >= at) is None
        )
        assert run.trainer.live.position.step == windows
        again = runs.resume(out, cpu)
        estimate(again)
        again.finish()
        assert last_outcome(out) == last_outcome(tmp_path / "whole")


def test_the_previous_checkpoint_leads_to_the_same_end_whatever_befell_the_newest(small_config, tmp_path):
    cpu = torch.device("cpu")
    runs.start(small_config, tmp_path / "whole", cpu).finish()
    for suffix in (".safetensors", ".json"):
        out = tmp_path / f"damaged{suffix}"
        shutil.copytree(tmp_path / "whole", out)
        path = max(out.glob(f"checkpoint-*{suffix}"))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        runs.resume(out, cpu, previous=True).finish()
        assert outcome(out) == outcome(tmp_path / "whole")


def test_a_finished_run_resumes_to_what_it_was(small_config, tmp_path):
    cpu = torch.device("cpu")
    summary = runs.start(small_config, tmp_path / "run", cpu).finish()
    before = outcome(tmp_path / "run")
    assert runs.resume(tmp_path / "run", cpu).finish() == summary
    assert outcome(tmp_path / "run") == before


def test_there_must_be_a_previous_checkpoint_to_go_back_to(small_config, tmp_path):
    cpu = torch.device("cpu")
    run = runs.start(small_config, tmp_path / "run", cpu)
    assert run.finish(should_stop=lambda: True) is None
    with pytest.raises(runs.RunError, match="has no previous checkpoint"):
        runs.resume(tmp_path / "run", cpu, previous=True)


def test_a_run_does_not_continue_on_another_text(small_config, tmp_path):
    words = Path(small_config.data.source).read_text()
    moved = tmp_path / "text.txt"
    moved.write_text(words)
    config = RunConfig.from_dict({**small_config.as_dict(), "data": {"source": str(moved)}})
    runs.start(config, tmp_path / "run", torch.device("cpu"))
    moved.write_text(words.replace("w1", "w0", 1))
    with pytest.raises(runs.RunError, match=r"text\.txt has changed since"):
        runs.resume(tmp_path / "run", torch.device("cpu"))
    moved.unlink()
    gone = r"the text of .*run is not there any more: .*text\.txt\. Put it back, or let data\.source in config\.json "
    with pytest.raises(DataError, match=gone):
        runs.resume(tmp_path / "run", torch.device("cpu"))
    (tmp_path / "other.txt").write_text(words)
    edit_config(tmp_path / "run", "data", source=str(tmp_path / "other.txt"))
    assert runs.resume(tmp_path / "run", torch.device("cpu")).parts.text.corpus.name == "other"


def test_a_run_of_days_says_before_it_begins_what_takes_minutes_and_says_so_only_then(
    begin, finished, long_text, tiny, tmp_path
):
    out = tmp_path / "run"
    # 203 windows an epoch: more than eight hours, were a window but a third of a millisecond.
    started = begin("train", *tiny, "--data", long_text, "--method", "mle", "--epochs", 500_000, "--out", out)
    wait_for_epochs(started, out, 2)  # and so there is a checkpoint of the first
    started.kill()
    told = started.wait().stderr.splitlines()
    [line] = [line for line in told if " parameters; about " in line]
    assert line.endswith(
        " MiB. In minutes instead: Ctrl-C, then nnrs demo, "
        "or another --out with --data sotu:1990 --preset tiny --epochs 5"
    )
    assert told.index(line) < next(at for at, other in enumerate(told) if re.match(r"epoch +0 ", other))

    epochs = lines(out)
    resumed = begin("train", "--out", out, "--resume")
    wait_for_epochs(resumed, out, epochs + 1)
    resumed.kill()
    begun = resumed.wait().stderr  # by whoever wants it long
    short = (finished.parent / "stderr.txt").read_text()
    for told in (begun, short):
        assert " parameters; about " in told
        assert "In minutes" not in told
