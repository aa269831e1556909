"""What only a GPU can show of a fleet: bfloat16, captured graphs, and squads that neither wait nor disturb."""

import pytest
import torch
from tests.training.fleet_cases import CASES, SMALL, fit_fleet, fit_plain, make_trainer, valid_windows

from nnrs.training.squad import Squad

pytestmark = pytest.mark.usefixtures("full_precision")


def squad_of(names, **settings):
    """A squad in its first epoch, its windows longer than those above."""
    trainers = [make_trainer(name, "cuda", SMALL, **settings) for name in names]
    squad = Squad(trainers, valid_windows("cuda", SMALL))
    squad.set_epoch([trainer.open_epoch() for trainer in trainers])
    return squad


PARALLEL = [name for name, case in CASES.items() if case.policy.get("unroll") != "exact"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_bfloat16_losses_stay_as_close_as_its_rounding_allows(name):
    """The plain loop rounds the output layer alone (a highway network's layers, too), a fleet all: hence the factor.

    Two runs, for a run alone has tiles of its own size.

    bfloat16 has 8 digits, so a logit of order 1 is off by 2e-3; a mean over 80 tokens by less than 1e-3. A prediction
    between two near ties may fall the other way: then one input in 80 is another, and the loss moves by up to a nat.
    """
    losses, rate = {}, {} if CASES[name].optimizer else {"learning_rate": 1.0}
    for precision in ("fp32", "bf16"):
        trainer = make_trainer(name, "cuda", SMALL, precision, **rate)
        losses[precision] = torch.tensor(fit_plain(trainer)[:4]) / 80
    for runs in (1, 2):
        members = [make_trainer(name, "cuda", SMALL, "bf16", **rate) for _ in range(runs)]
        ours = torch.tensor([found[:4] for found in fit_fleet(members, "cuda", SMALL)[2]]) / 80
        least = 1e-3 if members[0].policy.prediction_rate is None else 1 / 80
        allowed = 4 * (losses["bf16"] - losses["fp32"]).abs().clamp(min=least)
        assert ((ours - losses["fp32"]).abs() <= allowed).all()


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_captured_graphs_compute_what_the_launches_do(name, precision, monkeypatch):
    totals = []
    for captures in (True, False):
        if not captures:
            monkeypatch.setattr("nnrs.training.squad.Replay", lambda: lambda function: function())
        squad, tallies = squad_of([name], precision=precision), []
        for index in range(6):
            squad.train_window(index)
            squad.read_tallies()
            tallies.append(squad.trainers[0].live.tally.nats)
        totals.append(tallies)
    assert totals[0] == totals[1]
    assert len(set(totals[0])) == 6


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # a prototype, it says; it is what we want
@pytest.mark.parametrize("name", PARALLEL)
def test_no_window_of_a_squad_waits_for_the_device(name):
    squad = squad_of([name])
    for index in range(2):  # kernels are compiled, then captured
        squad.train_window(index)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for index in range(2, 6):
            squad.train_window(index)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    squad.read_tallies()
    assert squad.trainers[0].live.tally.nats > 0


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_squads_that_overlap_do_not_disturb_each_other(precision):
    """Twelve runs in three squads on streams of their own, each as it is alone: the same launches, so bitwise."""
    squads = []
    for overlapping in (True, False):
        made = [
            squad_of([name], precision=precision) for name in ("mle", "nnrs", "ss-nnrs") for _ in range(4)
        ]
        for index in range(6):
            for squad in made:
                squad.train_window(index)
                if not overlapping:
                    torch.cuda.synchronize()
        torch.cuda.synchronize()
        squads.append([squad.trainers[0].model for squad in made])
    for ours, theirs in zip(*squads, strict=True):
        for parameter, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(parameter, expected)
