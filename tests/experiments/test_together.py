"""Runs that are prepared and finished together are, file by file, those that would have been made alone."""

import math
import sys
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from safetensors.numpy import load_file

from nnrs.errors import ConfigError, DivergenceError, RunError
from nnrs.evaluation.evaluate import scoring_windows
from nnrs.experiments import prepare as preparing
from nnrs.experiments import text as reading
from nnrs.experiments import together
from nnrs.experiments.config import RunConfig
from nnrs.experiments.options import configure_seeds, parse_seeds
from nnrs.experiments.run import resume, start
from nnrs.experiments.scoring import evaluate_run
from nnrs.experiments.subject import Request
from nnrs.experiments.together import finish_together, resume_together, start_together
from nnrs.metrics.perplexity import Perplexity
from nnrs.neighbors.table import NeighborTable
from nnrs.run_directory import RunDirectory
from nnrs.training.loop import Trainer

CPU = torch.device("cpu")
EPOCHS, WINDOWS = 3, 6  # 54 lines of 9 tokens in 8 rows: 60 columns, 10 at a time


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """60 lines in which every word is frequent enough for a vector."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = [" ".join(f"w{(start * 7 + step * step) % 30}" for step in range(8)) for start in range(60)]
    path.write_text("\n".join(lines) + "\n")
    return path


def config(text, method="ss-nnrs", seed=1, **training):
    rate = {"shape": "static", "end": 0.5}
    return RunConfig.from_dict(
        {
            "data": {"source": str(text)},
            "policy": {"method": method, "neighbor_rate": None if method in ("mle", "ss") else rate},
            "model": {"preset": "tiny", "units": 8},
            "optimizer": {"name": "adamw", "learning_rate": 0.02},
            "training": {"epochs": EPOCHS, "batch_size": 8, "bptt": 10, **training},
            "seed": seed,
        }
    )


def seeds(text, *numbers, **settings):
    return [config(text, seed=number, **settings) for number in numbers]


def begin(configs, out):
    return start_together(configs, out, [f"seed-{config.seed}" for config in configs], CPU)


def finish(runs, should_stop=lambda: False):
    return finish_together(runs, [()] * len(runs), should_stop)


def content(path):
    """A file's bytes; of safetensors each tensor's, for the order of the metadata is left to chance there."""
    if path.suffix != ".safetensors":
        return path.read_bytes()
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in load_file(path).items()}


def files(run):
    """Every file of a run that does not depend on the clock."""
    return {path.name: content(path) for path in run.iterdir() if path.name != "timing.jsonl"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """`alone(config)`: the files of a run that was made by itself, once for all tests."""

    @cache
    def make(config):
        out = tmp_path_factory.mktemp("alone") / "run"
        assert start(config, out, CPU).finish() is not None
        return files(out)

    return make


# Seeds.


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("1-8", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("1,3,7", [1, 3, 7]),
        ("1-3,7", [1, 2, 3, 7]),
        ("7, 1-2", [7, 1, 2]),
        ("5", [5]),
        ("0", [0]),
        (f"{2**63 - 1}", [2**63 - 1]),
        ("1-1000", list(range(1, 1001))),
    ],
)
def test_seeds_are_numbers_and_ranges(named, expected):
    assert parse_seeds(named) == expected


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("", "takes numbers and ranges such as 1-8 or 1,3,7; got ''"),
        ("1,,2", "takes numbers and ranges"),
        ("-1", "takes numbers and ranges"),
        ("1-2-3", "takes numbers and ranges"),
        ("one", "takes numbers and ranges"),
        ("1.5", "takes numbers and ranges"),
        ("٣", "takes numbers and ranges"),  # a digit elsewhere
        ("9" * 5000, "takes numbers and ranges"),
        ("8-1", "the range 8-1 runs backwards. Write 1-8."),
        ("1-3,2", "names seed 2 more than once"),
        ("4,04", "names seed 4 more than once"),
        (f"{2**63}", "every seed must be in [0, 2^63), got 9223372036854775808"),
        ("1-1001", "names 1,001 seeds; at most 1,000"),
        (f"0-{2**63 - 1}", "at most 1,000"),  # and does not count them one by one
    ],
)
def test_what_names_no_seeds_is_refused(named, message):
    with pytest.raises(ConfigError) as caught:
        parse_seeds(named)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_seeds_share_all_other_settings_and_one_seed_beside_them_is_refused():
    given = {"method": "nnrs", "epochs": 7, "seeds": "3,5"}
    configs = configure_seeds(given)
    assert [made.seed for made in configs] == [3, 5]
    assert configs[1] == replace(configs[0], seed=5)
    assert (configs[0].policy.method, configs[0].training.epochs) == ("nnrs", 7)
    with pytest.raises(ConfigError, match="--seed and --seeds"):
        configure_seeds({**given, "seed": 3})


# One after the other.


@pytest.mark.parametrize("method", ["ss-nnrs", "gsns", "shuffled"])
def test_runs_made_together_are_those_made_alone(method, text, tmp_path, alone):
    configs = seeds(text, 3, 4, method=method)
    outcomes = finish(begin(configs, tmp_path / "runs"))
    for made, outcome in zip(configs, outcomes, strict=True):
        run = tmp_path / "runs" / f"seed-{made.seed}"
        assert files(run) == alone(made)
        assert outcome.run.directory.path == run
        assert outcome.summary == RunDirectory(run).summary()
        assert outcome.error is None


@pytest.fixture
def counted(monkeypatch):
    """`counted(owner, name)`: a list that grows with every call."""

    def count(owner, name):
        calls, function = [], getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *args, **kwargs: calls.append(name) or function(*args, **kwargs)
        )
        return calls

    return count


def test_what_does_not_depend_on_the_seed_is_made_once(text, tmp_path, counted):
    made = [counted(reading, name) for name in ("open_corpus", "fingerprint_of")]
    made += [counted(preparing, name) for name in ("vectors_from_text", "project")]
    searched = counted(NeighborTable, "from_vectors")
    vectors = replace(config(text).vectors, initialise=True)
    runs = begin([replace(each, vectors=vectors) for each in seeds(text, 1, 2, 3)], tmp_path / "runs")
    assert [len(calls) for calls in made] == [1, 1, 1, 1]
    assert len(searched) == 1
    for calls in (*made, searched):
        calls.clear()
    resume_together(tmp_path / "runs", CPU)
    assert [len(calls) for calls in (*made, searched)] == [1, 1, 1, 1, 1]
    first, second = (run.parts for run in runs[:2])
    assert first.policy is not second.policy
    assert first.policy.table is second.policy.table
    assert not torch.equal(first.model.embedding.weight, second.model.embedding.weight)


def test_what_differs_is_not_shared(text, tmp_path):
    configs = [config(text), config(text, method="nnrs", seed=2), config(text, seed=3, bptt=20)]
    configs[1] = replace(configs[1], policy=replace(configs[1].policy, k=2))
    configs.append(replace(config(text, seed=4), data=replace(configs[0].data, max_vocabulary=20)))
    parts = [run.parts for run in begin(configs, tmp_path / "runs")]
    assert [made.policy.table.k for made in parts] == [5, 2, 5, 4]  # round(log2 32), as asked, round(log2 20)
    assert [len(made.windows) for made in parts] == [6, 6, 3, 6]
    assert [len(made.text.vocabulary) for made in parts] == [32, 32, 32, 20]


def test_a_shuffled_table_is_each_seeds_own(text, tmp_path):
    tables = [
        run.parts.policy.table for run in begin(seeds(text, 1, 2, method="shuffled"), tmp_path / "runs")
    ]
    assert not torch.equal(tables[0].ids, tables[1].ids)


def test_directories_appear_all_or_none(text, tmp_path, monkeypatch):
    write, seen = RunDirectory.write_vocabulary, []

    def fail_at_the_second(run, vocabulary):
        seen.append((tmp_path / "runs").exists())
        if len(seen) == 2:
            raise RunError("the disk is full")
        write(run, vocabulary)

    monkeypatch.setattr(RunDirectory, "write_vocabulary", fail_at_the_second)
    with pytest.raises(RunError, match="the disk is full"):
        begin(seeds(text, 1, 2), tmp_path / "runs")
    assert seen == [False, False]
    assert not list(tmp_path.iterdir())
    begin(seeds(text, 1, 2), tmp_path / "runs")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["seed-1", "seed-2"]


def test_a_place_that_is_taken_is_refused_before_any_work(text, tmp_path, counted):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    read = counted(reading, "open_corpus")
    with pytest.raises(RunError, match="exists already and is not overwritten"):
        begin(seeds(text, 1), tmp_path / "runs")
    assert read == []
    assert list((tmp_path / "runs").iterdir()) == [tmp_path / "runs" / "mine"]


def ruin(run):
    """Have this run diverge at the end of its second epoch."""
    validate = run.trainer.validate
    run.trainer.validate = lambda model: math.nan if run.trainer.live.position.epoch == 1 else validate(model)


def test_a_run_that_diverges_keeps_its_checkpoint_and_the_others_go_on(text, tmp_path, alone):
    runs = begin(seeds(text, 1, 2, 3), tmp_path / "runs")
    ruin(runs[1])
    first, second, third = finish(runs)
    assert isinstance(second.error, DivergenceError)
    assert second.summary is None
    assert runs[1].directory.steps() == [WINDOWS]
    for outcome, seed in ((first, 1), (third, 3)):
        assert outcome.error is None
        assert files(outcome.run.directory.path) == alone(config(text, seed=seed))


def test_a_single_run_that_diverges_raises(text, tmp_path):
    run = start(config(text), tmp_path / "run", CPU)
    ruin(run)
    with pytest.raises(DivergenceError, match="no longer finite in epoch 1"):
        run.finish()


def test_after_a_stop_nothing_more_is_begun_and_a_resume_ends_as_if_unbroken(text, tmp_path, alone):
    runs = begin(seeds(text, 1, 2, 3), tmp_path / "runs")
    untouched = files(runs[2].directory.path)
    outcomes = finish(runs, lambda: runs[1].trainer.live.position.step >= 9)
    assert [outcome.summary is not None for outcome in outcomes] == [True, False, False]
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert files(runs[2].directory.path) == untouched
    again = resume_together(tmp_path / "runs", CPU)
    # The first is done, the second in mid-epoch, the third at its start: none goes back for the others.
    assert [run.trainer.live.position.step for run in again] == [18, 9, 0]
    finish(again)
    for run in again:
        assert files(run.directory.path) == alone(run.parts.config)


def test_a_finished_run_is_only_reported(text, tmp_path, monkeypatch):
    finish(begin(seeds(text, 1, 2), tmp_path / "runs"))
    before = [files(tmp_path / "runs" / name) for name in ("seed-1", "seed-2")]
    again = resume_together(tmp_path / "runs", CPU, previous=True)  # which is for the unfinished ones
    monkeypatch.setattr(type(again[0]), "perplexity", None)  # nothing is scored anew
    assert [outcome.summary for outcome in finish(again)] == [run.directory.summary() for run in again]
    assert [files(tmp_path / "runs" / name) for name in ("seed-1", "seed-2")] == before


def test_a_finished_run_that_was_taken_back_is_trained_again(text, tmp_path):
    finish(begin(seeds(text, 1), tmp_path / "runs"))
    before = files(tmp_path / "runs" / "seed-1")
    resume(tmp_path / "runs" / "seed-1", CPU, previous=True)  # and killed here: its summary is still there
    with pytest.raises(RunError, match="has no previous checkpoint"):  # it has gone back to it already
        resume_together(tmp_path / "runs", CPU, previous=True)
    [again] = resume_together(tmp_path / "runs", CPU)
    assert again.trainer.live.position.epoch == 2
    finish([again])
    assert files(tmp_path / "runs" / "seed-1") == before


def test_every_unfinished_run_goes_back_to_its_previous_checkpoint_when_asked(text, tmp_path, alone):
    runs = begin(seeds(text, 1, 2, 3), tmp_path / "runs")
    finish(runs[:1])
    for run, steps in zip(runs[1:], (15, 14), strict=True):
        finish([run], lambda run=run, steps=steps: run.trainer.live.position.step >= steps)
    again = resume_together(tmp_path / "runs", CPU, previous=True)
    assert [run.trainer.live.position.step for run in again] == [18, 12, 12]
    finish(again)
    for run in again:
        assert files(run.directory.path) == alone(run.parts.config)


def test_nothing_is_touched_where_one_of_the_runs_cannot_go_on(text, tmp_path):
    runs = begin(seeds(text, 1, 2), tmp_path / "runs")
    for run, steps in zip(runs, (9, 3), strict=True):
        finish([run], lambda run=run, steps=steps: run.trainer.live.position.step >= steps)
        (run.directory.path / ".half-done.tmp").touch()  # which going on would clear away
    second = runs[1].directory.path / "config.json"
    second.write_text(second.read_text().replace('"units": 8', '"units": 16'))
    before = [files(run.directory.path) for run in runs]
    with pytest.raises(RunError, match="seed-2 has no previous checkpoint"):
        resume_together(tmp_path / "runs", CPU, previous=True)
    with pytest.raises(RunError, match="seed-2 do not fit the model"):
        resume_together(tmp_path / "runs", CPU)
    assert [files(run.directory.path) for run in runs] == before


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(RunError, match="holds no run directories"):
        resume_together(tmp_path, CPU)


# As fleets. The fleet here trains its members in step on the CPU, by the plain loop's own parts.


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

    def perplexities(self, windows):
        self.take_memory("scored")
        self.scored.append(windows.num_tokens)
        values = []
        for trainer in self.trainers:
            metric, state = Perplexity(), None
            for window in windows:
                with torch.no_grad():
                    logits, state = trainer.model(window.inputs, state)
                metric.update(logits, window.targets)
            values.append(metric.compute())
        return values


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
    assert batched == {("lstm", "cuda"), ("gru", "cuda")}


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
        valid, test = evaluate_run(path, CPU, Request(splits=("valid", "test")))
        assert valid.value == outcome.summary["valid_perplexity"]
        assert test.value == outcome.summary["test_perplexity"]


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
