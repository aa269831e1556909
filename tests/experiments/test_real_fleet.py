"""The real fleet, here in Triton's interpreter, behind `finish_together`: the directories of runs made alone."""

import json

import pytest
import torch
from safetensors.torch import load_file

from nnrs.evaluation.evaluate import text_perplexity
from nnrs.experiments import together
from nnrs.experiments.config import RunConfig
from nnrs.experiments.load import load
from nnrs.experiments.run import start
from nnrs.experiments.together import finish_together, resume_together, start_together
from nnrs.training import fleet

CPU = torch.device("cpu")


def configs(path):
    """Two runs that differ in method and seed, on 12 lines of 2 words: an epoch is a window of 6 and one of 4."""
    lines = [" ".join(f"w{(row + 2 * step) % 4}" for step in range(2)) for row in range(12)]
    path.write_text("\n".join(lines) + "\n")
    rate = {"shape": "static", "end": 0.5}
    settings = [("ss-nnrs", {"prediction_rate": rate, "neighbor_rate": rate, "k": 2}, 1), ("mle", {}, 2)]
    return [
        RunConfig.from_dict(
            {
                "data": {"source": str(path)},
                "policy": {"method": method, **policy},
                "model": {"units": 6, "layers": 1, "dropout": 0.2},
                "optimizer": {"learning_rate": 2.0},
                "training": {"epochs": 2, "batch_size": 3, "bptt": 6, "valid_streams": 1},
                "seed": seed,
            }
        )
        for method, policy, seed in settings
    ]


@pytest.fixture
def batched(monkeypatch):
    """Fleets on the CPU, where nobody measures memory."""
    monkeypatch.setattr(together, "can_batch", lambda config, device: True)
    monkeypatch.setattr(fleet, "affordable", lambda trainers, valid: len(trainers))


def records(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def assert_close(mine, other):
    """Equal, and numbers to rounding."""
    assert mine.keys() == other.keys()
    for name, value in mine.items():
        assert value == (pytest.approx(other[name], rel=1e-4) if isinstance(value, float) else other[name]), (
            name
        )


def assert_same(ours, theirs):
    """The same files; of numbers only the rounding differs."""
    stop = {f"checkpoint-00000000{step}{end}" for step in (2, 3) for end in (".json", ".safetensors")}
    names = [{path.name for path in run.iterdir()} - stop for run in (ours, theirs)]
    assert names[0] == names[1]
    assert "checkpoint-000000004.safetensors" in names[0]
    for mine, other in zip(records(ours), records(theirs), strict=True):
        assert_close(mine, other)
    for file in (name for name in names[0] if name.endswith(".safetensors")):
        expected = load_file(theirs / file)
        for name, tensor in load_file(ours / file).items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5)


def test_runs_of_a_real_fleet_also_stopped_and_resumed_are_those_made_alone(tmp_path, batched, monkeypatch):
    made = configs(tmp_path / "text.txt")
    runs = start_together(made, tmp_path / "fleet", ["first", "second"], CPU)
    asked = iter([False, False, True])
    outcomes = finish_together(runs, [(), ()], lambda: next(asked))
    assert [outcome.summary for outcome in outcomes] == [None, None]
    positions = [(run.trainer.live.position.epoch, run.trainer.live.position.window) for run in runs]
    assert positions == [(1, 1), (1, 1)]  # in the middle of the second epoch
    again = resume_together(tmp_path / "fleet", CPU)
    outcomes = finish_together(again, [(), ()], lambda: False)
    monkeypatch.undo()  # now without a fleet
    for config, outcome in zip(made, outcomes, strict=True):
        ours = outcome.run.directory.path
        alone = start(config, tmp_path / "alone" / ours.name, CPU)
        summary = alone.finish()
        assert summary is not None
        assert_close(outcome.summary, summary)
        text = alone.parts.text
        metric = text_perplexity(load(ours).model, text.ids["test"], eos_id=text.vocabulary.eos_id)
        assert metric.compute() == pytest.approx(summary["test_perplexity"], rel=1e-4)
        for path in (ours, alone.directory.path):
            (path / "timing.jsonl").unlink()
        assert_same(ours, alone.directory.path)
