"""Runs that are finished together as fleets: which share one, and that each leaves the files of a run made alone.

The fleet here trains its members in step on the CPU, by the plain loop's own parts.
"""

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from tests.experiments.small_runs import CPU, WINDOWS, begin, config, files, finish, ruin, seeds

from nnrs.errors import DivergenceError, RunError
from nnrs.evaluation.evaluate import scoring_windows, text_perplexity
from nnrs.experiments import together
from nnrs.experiments.load import load
from nnrs.experiments.run import start
from nnrs.experiments.together import resume_together
from nnrs.metrics.perplexity import Perplexity
from nnrs.run_directory import RunDirectory
from nnrs.training.loop import Trainer


class FleetInStep:
    """Does what a fleet promises, one member at a time."""

    made: ClassVar[list[list[int]]] = []
    stood: ClassVar[list[int]] = []  # the step that each began at
    scored: ClassVar[list[int]] = []
    room = 1000

    def __init__(self, trainers, valid):
        positions = {(t.live.position.epoch, t.live.position.window, t.live.position.step) for t in trainers}
        assert len(positions) == 1
        self.stood.append(trainers[0].live.position.step)
        assert len({(t.model.config.units, t.config) for t in trainers}) == 1
        self.trainers, self.valid, self.failures = trainers, valid, {}
        self.made.append([trainer.seed for trainer in trainers])
        self.take_memory("made")

    def take_memory(self, moment):
        """What a GPU that is full refuses."""

    def fit(self):
        while running := [
            t for i, t in enumerate(self.trainers) if i not in self.failures and not t.finished
        ]:
            epochs = [trainer.open_epoch() for trainer in running]
            for index in range(running[0].live.position.window, len(running[0].windows)):
                for trainer, epoch in zip(running, epochs, strict=True):
                    trainer.train_window(trainer.windows[index], epoch.rates)
                    trainer.live.position.window = index + 1
                self.take_memory(f"after window {running[0].live.position.step}")
                if running[0].should_stop():
                    for trainer in running:
                        trainer.save(trainer.live)
                    return False
            for trainer, epoch in zip(running, epochs, strict=True):
                epoch.trained = epoch.started + 1.0
                try:
                    trainer.close_epoch(epoch, trainer.validate(trainer.model))
                except DivergenceError as error:
                    self.failures[self.trainers.index(trainer)] = error
                self.take_memory(f"epoch {trainer.live.position.epoch} of {trainer.seed} ended")
        return True

    def losses(self, windows):
        self.take_memory("scored")
        self.scored.append(windows.num_tokens)
        found = []
        for trainer in self.trainers:
            parts, state = [], None
            for window in windows:
                with torch.no_grad():
                    logits, state = trainer.model(window.inputs, state)
                parts.append(Perplexity().update(logits, window.targets)[0])
            found.append(torch.cat(parts))
        return found


@pytest.fixture
def fleets(monkeypatch):
    """Every LSTM is trained in a fleet; the seeds of each fleet that was made."""
    monkeypatch.setattr(FleetInStep, "made", [])
    monkeypatch.setattr(FleetInStep, "stood", [])
    monkeypatch.setattr(FleetInStep, "scored", [])
    module = SimpleNamespace(
        Fleet=FleetInStep, affordable=lambda trainers, valid: min(len(trainers), FleetInStep.room)
    )
    monkeypatch.setitem(sys.modules, "nnrs.training.fleet", module)
    monkeypatch.setattr(together, "can_batch", lambda config, device: config.model.kind == "lstm")
    return FleetInStep.made


def test_only_recurrent_models_on_a_gpu_are_batched(text):
    kinds = {
        kind: replace(config(text).model, kind=kind) for kind in ("lstm", "gru", "highway", "transformer")
    }
    batched = {
        (kind, device)
        for kind, model in kinds.items()
        for device in ("cpu", "cuda")
        if together.can_batch(replace(config(text), model=model), torch.device(device))
    }
    assert batched == {("lstm", "cuda"), ("gru", "cuda"), ("highway", "cuda")}


def test_a_fleet_is_scored_once_a_split_and_leaves_the_files_of_single_runs(text, tmp_path, alone, fleets):
    outcomes = finish(begin(seeds(text, 1, 2, 3), tmp_path / "runs"))
    assert fleets == [[1, 2, 3]]
    tokens = [len(outcomes[0].run.parts.text.ids[split]) for split in ("valid", "test")]
    assert FleetInStep.scored == tokens
    for outcome in outcomes:
        assert outcome.summary == outcome.run.directory.summary()
        assert files(outcome.run.directory.path) == alone(outcome.run.parts.config)
    fleets.clear()
    start(config(text, seed=2), tmp_path / "single", CPU).finish()
    assert fleets == [[2]]  # a single run is a fleet of one
    assert files(tmp_path / "single") == files(outcomes[1].run.directory.path)


@pytest.mark.parametrize("batched", [True, False], ids=["fleet", "alone"])
def test_the_scores_are_those_of_the_best_epoch(batched, text, tmp_path, fleets, monkeypatch):
    monkeypatch.setattr(together, "can_batch", lambda config, device: batched)
    runs = begin(seeds(text, 1, 2), tmp_path / "runs")
    for run in runs:
        run.trainer.validate = lambda _, run=run: 50.0 + run.trainer.live.position.epoch  # worse and worse
    for outcome in finish(runs):
        path = outcome.run.directory.path
        assert outcome.summary["best_epoch"] == 0
        text, loaded = outcome.run.parts.text, load(path)
        for split in ("valid", "test"):
            score = text_perplexity(loaded.model, text.ids[split], eos_id=text.vocabulary.eos_id).compute()
            assert outcome.summary[f"{split}_perplexity"] == pytest.approx(score, rel=1e-12)


def test_a_fleet_validates_on_the_windows_of_the_plain_loop(text, tmp_path, fleets, monkeypatch):
    seen = []
    make = FleetInStep.__init__
    monkeypatch.setattr(
        FleetInStep,
        "__init__",
        lambda self, trainers, valid: seen.append(valid) or make(self, trainers, valid),
    )
    [outcome] = finish(begin(seeds(text, 1, valid_streams=4), tmp_path / "runs"))
    ids = outcome.run.parts.text.ids["valid"]
    expected = scoring_windows(ids, eos_id=outcome.run.parts.text.vocabulary.eos_id, streams=4)
    assert torch.equal(seen[0][0].targets, expected[0].targets)
    assert seen[0].num_tokens == len(ids)


def test_runs_that_cannot_share_a_fleet_have_their_own(text, tmp_path, fleets):
    configs = [
        config(text, seed=1),
        config(text, seed=2, bptt=20),
        config(text, seed=3, method="mle"),  # may differ
        config(text, seed=4, epochs=2),
        replace(config(text, seed=5), model=replace(config(text).model, units=16)),
        replace(config(text, seed=6), model=replace(config(text).model, dropout=0.3)),  # may differ
        replace(config(text, seed=7), model=replace(config(text).model, kind="highway")),  # has none
        replace(config(text, seed=8), data=replace(config(text).data, max_vocabulary=20)),
        replace(config(text, seed=9), optimizer=type(config(text).optimizer)(name="sgd", learning_rate=1.0)),
        config(text, seed=10, valid_streams=2),
    ]
    outcomes = finish(begin(configs, tmp_path / "runs"))
    assert fleets == [[1, 3, 6], [2], [4], [5], [8], [9], [10]]
    assert [outcome.run.parts.config.seed for outcome in outcomes] == list(range(1, 11))
    assert all(outcome.summary for outcome in outcomes)


def test_a_fleet_is_no_larger_than_the_device_affords(text, tmp_path, fleets, monkeypatch):
    monkeypatch.setattr(FleetInStep, "room", 3)
    outcomes = finish(begin(seeds(text, 1, 2, 3, 4, epochs=1), tmp_path / "runs"))
    assert fleets == [[1, 2], [3, 4]]  # not three and one
    assert all(outcome.summary for outcome in outcomes)


@pytest.mark.parametrize(
    ("moment", "step"),
    [
        ("made", 0),
        ("after window 3", 0),
        ("after window 14", 12),
        ("epoch 2 of 3 ended", 6),  # three are at step 12 by then, and go back with the others
        ("scored", 18),
    ],
)
def test_runs_too_many_for_the_memory_go_on_from_their_checkpoints_in_smaller_fleets(
    moment, step, text, tmp_path, alone, fleets, monkeypatch
):
    def refuse(fleet, now):
        if now == moment and len(fleet.trainers) > 2:
            for trainer in fleet.trainers:  # whatever it broke off in the middle of
                trainer.model.load_state_dict(
                    {name: torch.nan * tensor for name, tensor in trainer.model.state_dict().items()}
                )
                trainer.policy.end_epoch(1.0)
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(FleetInStep, "take_memory", refuse)
    outcomes = finish(begin(seeds(text, 1, 2, 3, 4, 5), tmp_path / "runs"))
    assert fleets == [[1, 2, 3, 4, 5], [1, 2], [3, 4], [5]]
    assert FleetInStep.stood == [0, step, step, step]
    for outcome in outcomes:
        assert outcome.summary == outcome.run.directory.summary()
        assert files(outcome.run.directory.path) == alone(outcome.run.parts.config)


@pytest.mark.parametrize("batched", [True, False], ids=["fleet", "alone"])
def test_a_run_that_is_too_large_for_the_memory_is_named(batched, text, tmp_path, fleets, monkeypatch):
    def refuse(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(together, "can_batch", lambda config, device: batched)
    monkeypatch.setattr(FleetInStep, "take_memory", refuse)
    monkeypatch.setattr(Trainer, "train_window", refuse)
    with pytest.raises(RunError, match=r"seed-1 does not fit the GPU's memory\. Use a smaller --preset"):
        finish(begin(seeds(text, 1, 2), tmp_path / "runs"))


def test_a_member_that_diverges_leaves_the_fleet_and_the_others_go_on(text, tmp_path, alone, fleets):
    runs = begin(seeds(text, 1, 2, 3), tmp_path / "runs")
    ruin(runs[1])
    outcomes = finish(runs)
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]
    assert [outcome.summary is None for outcome in outcomes] == [False, True, False]
    assert runs[1].directory.steps() == [WINDOWS]
    assert runs[1].directory.summary() is None
    for outcome in (outcomes[0], outcomes[2]):
        assert files(outcome.run.directory.path) == alone(outcome.run.parts.config)


def test_a_fleet_whose_members_all_diverge_has_no_scores(text, tmp_path, fleets):
    runs = begin(seeds(text, 1, 2), tmp_path / "runs")
    ruin(runs[0]), ruin(runs[1])
    assert [outcome.summary for outcome in finish(runs)] == [None, None]
    assert FleetInStep.scored == []


def test_a_stopped_fleet_goes_on_as_one_and_later_ones_are_not_begun(
    text, tmp_path, alone, fleets, monkeypatch
):
    monkeypatch.setattr(FleetInStep, "room", 2)
    runs = begin(seeds(text, 1, 2, 3, 4), tmp_path / "runs")
    outcomes = finish(runs, lambda: runs[0].trainer.live.position.step >= 9)
    assert fleets == [[1, 2]]
    assert [(outcome.summary, outcome.error) for outcome in outcomes] == [(None, None)] * 4
    assert [run.directory.steps() for run in runs] == [[6, 9], [6, 9], [], []]
    monkeypatch.setattr(FleetInStep, "room", 4)
    again = resume_together(tmp_path / "runs", CPU)
    fleets.clear()
    finish(again)
    assert fleets == [[1, 2], [3, 4]]  # which no longer stand at one step
    for run in again:
        assert files(run.directory.path) == alone(run.parts.config)


class Killed(BaseException):
    """Not an Exception, as a kill is not one."""


def test_a_fleet_killed_while_it_saved_goes_on_from_the_step_all_members_have(
    text, tmp_path, alone, fleets, monkeypatch
):
    write = RunDirectory.write_checkpoint

    def kill_at_the_second_member(run, tensors, state):
        if run.path.name == "seed-2" and state["epoch"] == 2:
            raise Killed
        write(run, tensors, state)

    monkeypatch.setattr(RunDirectory, "write_checkpoint", kill_at_the_second_member)
    with pytest.raises(Killed):
        finish(begin(seeds(text, 1, 2, 3), tmp_path / "runs"))
    monkeypatch.setattr(RunDirectory, "write_checkpoint", write)
    kept = [run.steps() for run in RunDirectory.within(tmp_path / "runs")]
    assert kept == [[6, 12], [6], [6]]
    again = resume_together(tmp_path / "runs", CPU)
    assert [run.trainer.live.position.step for run in again] == [6, 6, 6]
    assert again[0].directory.steps() == [6]  # what came later is forgotten, to be trained again
    fleets.clear()
    finish(again)
    assert fleets == [[1, 2, 3]]
    for run in again:
        assert files(run.directory.path) == alone(run.parts.config)


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ([[20, 30], [20, 30]], [30, 30]),
        ([[20, 30], [10, 20], [20, 30]], [20, 20, 20]),
        ([[20, 30], [20]], [20, 20]),
        ([[30, 40], [10, 20]], [40, 20]),  # nothing in common: each from its newest
        ([[30, 40], [], [20, 30]], [30, None, 30]),  # a fleet of its own has not begun yet
        ([[], []], [None, None]),
        ([[90], [30, 40], [20, 30], [30, 40]], [90, 30, 30, 30]),
    ],
)
def test_members_go_on_from_the_newest_step_that_most_have(kept, expected):
    assert together.common_steps(kept) == expected
