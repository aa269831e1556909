"""What is written in the background is what stood there when it was saved, in order, and no error is lost."""

import threading

import pytest
import torch
from safetensors.torch import load_file

from nnrs.experiments.config import RunConfig
from nnrs.experiments.run import start
from nnrs.experiments.writer import WAITING, Saver, Writer
from nnrs.run_directory import RunDirectory


@pytest.mark.parametrize("background", [False, True])
def test_jobs_are_done_in_order(background):
    writer, done = Writer(background=background), []
    for number in range(20):
        writer.submit(lambda number=number: done.append(number))
    writer.wait()
    assert done == list(range(20))


def test_in_the_background_the_caller_goes_on_until_too_much_waits():
    writer, gate, submitted = Writer(background=True), threading.Event(), []

    def submit_more():
        for number in range(WAITING + 1):
            writer.submit(lambda: gate.wait(30))
            submitted.append(number)

    caller = threading.Thread(target=submit_more)
    caller.start()
    caller.join(1.0)
    assert submitted == list(range(WAITING))  # and the next one waits
    gate.set()
    caller.join()
    writer.wait()
    assert len(submitted) == WAITING + 1


def test_an_error_in_the_background_is_raised_when_it_is_waited_for():
    writer = Writer(background=True)

    def fail():
        raise OSError("no space left")

    writer.submit(fail)
    with pytest.raises(OSError, match="no space left"):
        writer.wait()


def test_nothing_is_written_behind_what_could_not_be():
    writer, written = Writer(background=True), []

    def fail():
        raise OSError("no space left")

    writer.submit(fail)
    writer.submit(lambda: written.append("checkpoint"))
    with pytest.raises(OSError, match="no space left"):
        writer.wait()
    writer.wait()
    assert written == []


def test_what_is_written_late_is_the_state_of_the_moment_it_was_saved(tmp_path, monkeypatch):
    text = tmp_path / "text.txt"
    lines = [" ".join(f"w{(row * 7 + step * step) % 30}" for step in range(8)) for row in range(60)]
    text.write_text("\n".join(lines) + "\n")
    settings = {
        "data": {"source": str(text)},
        "policy": {"method": "mle"},
        "model": {"preset": "tiny", "units": 8},
        "training": {"epochs": 3, "batch_size": 8, "bptt": 10},
    }
    config = RunConfig.from_dict(settings)
    at_once = start(config, tmp_path / "at-once", torch.device("cpu"))
    at_once.finish()
    later = start(config, tmp_path / "later", torch.device("cpu"))
    saver = later.saver = Saver(later.directory, background=True)
    later.trainer.save, later.trainer.save_best = saver.save, saver.save_best
    write, epochs = RunDirectory.write_checkpoint, threading.Semaphore(0)

    def held_back(directory, tensors, values):  # until the next epoch is trained: every parameter has moved
        epochs.acquire(timeout=1.0)  # no epoch follows the last
        write(directory, tensors, values)
        assert len(directory.records("metrics")) == values["epoch"]  # a kill now would miss no line

    monkeypatch.setattr(RunDirectory, "write_checkpoint", held_back)
    validate, calls = later.trainer.validate, []

    def counted(model):
        calls.append(model)
        if len(calls) > 1:
            epochs.release()
        return validate(model)

    later.trainer.validate = counted
    later.finish()
    for path in sorted((tmp_path / "at-once").glob("*.safetensors")):
        expected, found = load_file(path), load_file(tmp_path / "later" / path.name)
        assert all(torch.equal(expected[name], found[name]) for name in expected), path.name
    metrics = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("at-once", "later")]
    assert metrics[0] == metrics[1]
