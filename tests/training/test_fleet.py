"""A fleet of runs against the plain loop: the same draws and masks, so the same losses, step by step."""

import copy

import pytest
import torch
from tests.training.fleet_cases import (
    CASES,
    FLEETS,
    SEED,
    assert_same_losses,
    assert_same_records,
    assert_same_run,
    fit_fleet,
    fit_plain,
    make_trainer,
    plainly,
    together,
)

from nnrs.models import SequenceModel
from nnrs.policies.methods import METHODS
from nnrs.schedules import Schedule
from nnrs.seeding import Stream

pytestmark = pytest.mark.usefixtures("full_precision")


# The same run as the plain loop's.


@pytest.mark.parametrize("name", CASES)
def test_every_policy_trains_in_a_fleet_as_in_the_plain_loop(name, device):
    names = next(tuple(names) for names in FLEETS if name in names)
    (ours, our_losses), (theirs, their_losses) = together(names, device)[name], plainly(name, device)
    assert_same_losses(our_losses, their_losses)
    assert len(our_losses) == 2 * CASES[name].epochs  # a whole window and a shorter one
    assert_same_run(ours, theirs)
    (ours,), (theirs,) = ours.callbacks, theirs.callbacks
    assert_same_records(ours.metrics, theirs.metrics)
    uses = METHODS[CASES[name].method]
    assert (theirs.metrics[-1].effective_neighbor_rate > 0) == (uses.proposal is not None)
    assert (theirs.metrics[-1].effective_prediction_rate > 0) == uses.predictions


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("weights dropped")])
def test_what_is_dropped_is_other_weights_in_each_window_in_all_its_passes(name, device, monkeypatch):
    """Of the plain loop, to which the fleet is held above."""
    asked, dropped = [], SequenceModel.dropped

    def watched(model, random):
        asked.append((random._key.tolist(), random._counter.tolist()))
        return dropped(model, random)

    monkeypatch.setattr(SequenceModel, "dropped", watched)
    _, losses = plainly.__wrapped__(name, device)
    seed = SEED[name]
    assert asked == [([seed, Stream.WEIGHTS], [0, 0, step, 0]) for step in range(2 * CASES[name].epochs)]
    monkeypatch.setattr(SequenceModel, "dropped", lambda model, random: model)
    whole = plainly.__wrapped__(name, device)[1]
    assert abs(whole[0] - losses[0]) > 1e-3  # of which the fleet would be seen to use the wrong ones


@pytest.mark.parametrize("name", ["tprs", "ss-nnrs exact"])
def test_a_run_is_the_same_in_whatever_company(name, device):
    names = next(tuple(names) for names in FLEETS if name in names)
    (alone, losses), (among, others) = together((name,), device)[name], together(names, device)[name]
    assert_same_losses(losses, others)
    assert_same_run(alone, among)
    assert_same_records(alone.callbacks[0].metrics, among.callbacks[0].metrics)


def test_a_learned_distribution_that_starts_to_move_later_moves_as_in_the_plain_loop(device):
    trainers = []
    for _ in range(2):
        trainer = make_trainer("adamw gsns", device)
        trainer.policy.neighbor_rate = Schedule("linear", 0.0, 0.6)  # nothing is replaced in the first epoch
        trainers.append(trainer)
    ours, theirs = trainers
    fit_plain(theirs)
    fit_fleet([ours], device)
    assert_same_run(ours, theirs)


def test_learned_tables_of_different_width_train_together(device):
    names = ("gsns", "gsns again")
    trainers = [make_trainer(name, device) for name in names]
    widths = [trainer.policy.proposal.k for trainer in trainers]
    assert widths[0] != widths[1]
    fit_fleet(trainers, device)
    for name, trainer in zip(names, trainers, strict=True):
        assert_same_run(trainer, plainly(name, device)[0])


# Stopping and going on.


def stop_after(trainers, windows):
    """Have them stop after so many windows that are not the last of an epoch; where each saves itself."""
    countdown, saved = iter(range(windows - 1)), {}
    for trainer in trainers:
        trainer.should_stop = lambda: next(countdown, None) is None
        trainer.save = lambda live, trainer=trainer: saved.update(
            {trainers.index(trainer): copy.deepcopy(live.snapshot())}
        )
    return saved


STOPPED = [
    ("adamw ss-nnrs", "adamw gsns"),
    ("gru ss-nnrs", "gru gsns"),
    ("highway ss-nnrs", "highway gsns"),
]


@pytest.mark.parametrize("names", STOPPED, ids=str)
def test_a_fleet_stopped_and_resumed_is_the_unbroken_one(names, device):
    stopped = [make_trainer(name, device) for name in names]
    saved = stop_after(stopped, windows=CASES[names[0]].epochs)  # in its last epoch
    _, finished, _ = fit_fleet(stopped, device)
    assert not finished
    assert len(saved) == len(names)
    assert all(state["window"] == 1 and "carry.hidden" in tensors for tensors, state in saved.values())

    resumed = [make_trainer(name, device) for name in names]
    for run, trainer in enumerate(resumed):
        trainer.live.restore(*saved[run])
    _, finished, _ = fit_fleet(resumed, device)
    assert finished
    for name, trainer, before in zip(names, resumed, stopped, strict=True):
        unbroken, _ = together(names, device)[name]
        metrics = before.callbacks[0].metrics + trainer.callbacks[0].metrics
        assert_same_run(trainer, unbroken)
        assert_same_records(metrics, unbroken.callbacks[0].metrics)
        if device == "cpu":  # where every sum has one order
            (ours, state), (theirs, expected) = trainer.live.snapshot(), unbroken.live.snapshot()
            assert all(torch.equal(ours[part], theirs[part]) for part in ours)
            assert state == expected
            assert metrics == unbroken.callbacks[0].metrics


@pytest.mark.parametrize("name", ["ss-nnrs by sequence", "adamw gsns", "gru gsns", "highway ss-nnrs"])
def test_a_run_goes_on_in_the_plain_loop_where_a_fleet_stopped_and_the_other_way_round(name, device):
    unbroken, _ = plainly(name, device)
    plain, member = make_trainer(name, device), make_trainer(name, device)
    saved_by_plain, saved_by_fleet = (stop_after([run], CASES[name].epochs) for run in (plain, member))
    assert not plain.fit()
    assert not fit_fleet([member], device)[1]
    (tensors, state), (expected, expected_state) = saved_by_fleet[0], saved_by_plain[0]
    assert tensors.keys() == expected.keys()
    assert state.keys() == expected_state.keys()

    now_plain, now_member = make_trainer(name, device), make_trainer(name, device)
    now_plain.live.restore(*saved_by_fleet[0])
    now_member.live.restore(*saved_by_plain[0])
    assert now_plain.fit()
    assert fit_fleet([now_member], device)[1]
    for trainer in (now_plain, now_member):
        assert_same_run(trainer, unbroken)
        assert_same_records(trainer.callbacks[0].metrics, unbroken.callbacks[0].metrics[-1:])
