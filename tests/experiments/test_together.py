"""Runs that are prepared and finished together are, file by file, those that would have been made alone."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from tests.experiments.small_runs import CPU, WINDOWS, begin, config, files, finish, ruin, seeds
from tests.saved_runs import reconfigure

from nnrs.errors import DivergenceError, RunError
from nnrs.experiments import prepare as preparing
from nnrs.experiments import text as reading
from nnrs.experiments.prepare import Shelf
from nnrs.experiments.run import resume, start
from nnrs.experiments.together import resume_together
from nnrs.neighbors.table import NeighborTable
from nnrs.run_directory import RunDirectory


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


def test_runs_that_are_there_are_not_overwritten_and_others_can_be_added(text, tmp_path):
    out = tmp_path / "runs"
    begin(seeds(text, 1, 2), out)
    held = (
        f"{out} holds 2 runs already, and nothing is overwritten. Continue with --out {out} --resume alone."
    )
    with pytest.raises(RunError) as caught:
        begin(seeds(text, 1, 2), out)
    assert str(caught.value) == held
    with pytest.raises(RunError) as caught:
        begin(seeds(text, 1, 2, 3, 4), out)
    assert str(caught.value) == f"{held} Add a seed by itself: --seed 3 --out {out}/seed-3."
    start(seeds(text, 3)[0], out / "seed-3", CPU)
    assert [run.parts.config.seed for run in resume_together(out, CPU)] == [1, 2, 3]


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
    monkeypatch.setattr(type(again[0]), "losses", None)  # nothing is scored anew
    assert [outcome.summary for outcome in finish(again)] == [run.directory.summary() for run in again]
    assert [files(tmp_path / "runs" / name) for name in ("seed-1", "seed-2")] == before


def test_a_finished_run_that_was_taken_back_is_trained_again(text, tmp_path):
    finish(begin(seeds(text, 1), tmp_path / "runs"))
    before = files(tmp_path / "runs" / "seed-1")
    taken_back = resume(tmp_path / "runs" / "seed-1", CPU, previous=True)  # and killed here
    assert not taken_back.directory.summary()  # which was that of another model
    assert taken_back.directory.losses("test") is None
    with pytest.raises(RunError, match="has no previous checkpoint"):  # it has gone back to it already
        resume_together(tmp_path / "runs", CPU, previous=True)
    [again] = resume_together(tmp_path / "runs", CPU)
    assert again.trainer.live.position.epoch == 2
    finish([again])
    assert files(tmp_path / "runs" / "seed-1") == before


@pytest.mark.parametrize("again", [resume, lambda path, device: resume_together(path.parent, device)[0]])
def test_a_finished_run_whose_checkpoints_are_gone_stays_as_it_ended(again, text, tmp_path):
    finish(begin(seeds(text, 1), tmp_path / "runs"))
    path = tmp_path / "runs" / "seed-1"
    for checkpoint in path.glob("checkpoint-*"):
        checkpoint.unlink()
    before = files(path)
    run = again(path, CPU)
    assert finish([run])[0].summary == run.directory.summary()
    assert files(path) == before


def test_a_run_that_starts_over_lets_its_old_model_go(text, tmp_path):
    [run] = begin(seeds(text, 1), tmp_path / "runs")
    old = weakref.ref(run.parts.model)
    run.start_over(Shelf())
    gc.collect()
    assert old() is None  # a fleet's memory hangs on it
    assert finish([run])[0].summary


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
        (run.directory.path / ".scores.jsonl.h4lf_0ne.tmp").touch()  # which going on would clear away
    reconfigure(runs[1].directory.path, lambda config: config["model"].update(units=16))
    before = [files(run.directory.path) for run in runs]
    with pytest.raises(RunError, match="seed-2 has no previous checkpoint"):
        resume_together(tmp_path / "runs", CPU, previous=True)
    with pytest.raises(RunError, match="seed-2 do not fit the model"):
        resume_together(tmp_path / "runs", CPU)
    assert [files(run.directory.path) for run in runs] == before


def test_nothing_is_touched_where_one_of_the_runs_has_lost_the_line_of_an_epoch(text, tmp_path):
    runs = begin(seeds(text, 1, 2), tmp_path / "runs")
    for run in runs:
        finish([run], lambda run=run: run.trainer.live.position.epoch >= 1)
        (run.directory.path / ".scores.jsonl.h4lf_0ne.tmp").touch()
    (runs[1].directory.path / "metrics.jsonl").write_text("")
    before = [files(run.directory.path) for run in runs]
    with pytest.raises(RunError, match=r"seed-2/metrics\.jsonl has no line of epoch 0"):
        resume_together(tmp_path / "runs", CPU)
    assert [files(run.directory.path) for run in runs] == before


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(RunError, match="holds no run directories"):
        resume_together(tmp_path, CPU)
