"""What the inputs of a fleet are made of: each run's are those that its policy chooses for it alone."""

import pytest
import torch
import torch.nn.functional as F

from nnrs.batches import Window
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.base import InputPolicy, Rates, Reading
from nnrs.policies.controls import UnigramNoise
from nnrs.policies.functional import GRANULARITIES, positions_of
from nnrs.policies.gumbel import GumbelPolicy
from nnrs.schedules import Schedule
from nnrs.seeding import Random, Stream
from nnrs.temperature import TemperatureState
from nnrs.training.fleet_inputs import FleetInputs
from nnrs.training.kernels import choice as choosing

VOCAB = 30


def table_of(k, seed):
    """k neighbors of every word but the first three; the last slot of every fourth is empty."""
    if k == 0:
        return NeighborTable(torch.empty(VOCAB, 0, dtype=torch.int64), torch.empty(VOCAB, 0))
    random = Random(seed, Stream.TEXT)
    similarities = random.uniform(VOCAB, k).sort(descending=True).values
    ids = (random.uniform(VOCAB, k) * VOCAB).long()
    similarities[::4, -1] = -torch.inf
    similarities[:3] = -torch.inf
    return NeighborTable(torch.where(similarities.isinf(), torch.arange(VOCAB)[:, None], ids), similarities)


def policy_with(proposal, kind=InputPolicy, temperature=0.7, by_previous=False, **reading):
    replaceable = torch.arange(VOCAB) % 5 != 4
    policy = kind(
        proposal=proposal,
        prediction_rate=Schedule("static", 0.0, 0.5),
        neighbor_rate=Schedule("static", 0.0, 0.5),
        replaceable=replaceable,
        token_weights=replaceable.float(),
        reading=Reading(**reading),
        by_previous=by_previous,
    )
    policy.temperature_state = TemperatureState(temperature, 0.0)
    return policy


def all_policies():
    """Every reading that the kernel for all serves, with tables of several widths; and some that it does not."""
    served = [
        policy_with(
            table_of(2 + number % 3, number),
            temperature=0.3 + 0.2 * number,
            granularity=granularity,
            replace=replace,
            by_previous=by_previous,
        )
        for number, (granularity, replace, by_previous) in enumerate(
            (granularity, replace, by_previous)
            for granularity in GRANULARITIES
            for replace in ("inputs", "targets")
            for by_previous in (False, True)
        )
    ]
    noise = UnigramNoise.of(torch.arange(VOCAB).double(), torch.arange(VOCAB) % 5 != 4)
    return [
        *served,
        policy_with(None),
        policy_with(table_of(0, 1)),
        policy_with(noise),
        policy_with(noise, replace="targets", granularity="sequence"),
        policy_with(table_of(3, 1), draw="centroid"),
        policy_with(table_of(3, 1), kind=GumbelPolicy),
    ]


def on(device, policy):
    """The same policy with its tables on another device."""
    policy.proposal = policy.proposal.to(device) if policy.proposal else None
    policy.replaceable, policy.token_weights = policy.replaceable.to(device), policy.token_weights.to(device)
    for parameter in policy.learned.values():
        parameter.data = parameter.data.to(device)
    return policy


@pytest.mark.parametrize("fresh", [True, False])
def test_a_fleets_inputs_are_those_that_each_policy_chooses(device, fresh):
    batch, time = 5, 15  # 75 tokens: more than one program's
    ids = (Random(1, Stream.TEXT).uniform(3, batch, time) * VOCAB).long()
    policies = [on(device, policy) for policy in all_policies()]
    seeds = torch.arange(len(policies)) + 40
    rates = [Rates(0.3 + 0.02 * run, 0.8 - 0.02 * run) for run in range(len(policies))]
    rates[3], rates[5] = Rates(0.0, 1.0), Rates(1.0, 0.0)
    fleet = FleetInputs(policies, seeds.to(device), batch, time)
    fleet.set_epoch(rates)
    inputs = torch.full((len(policies), batch * time), -7, device=device)
    step = torch.tensor(812, device=device)
    fleet.choose(Window(*ids.to(device)), step, torch.tensor(int(fresh), device=device), inputs)

    def in_order(part):
        return part.T.flatten()

    taken, changed = 0, 0
    for run, policy in enumerate(all_policies()):
        choice = policy.choose(Window(*ids), rates[run], Random(40 + run, Stream.DRAWS, 812))
        choice = choice.with_gold_start() if fresh else choice
        predictions, neighbors = choice.replaced()
        assert torch.equal(inputs[run].cpu(), in_order(choice.inputs(choice.gold)))
        assert torch.equal(fleet.targets[run].cpu(), in_order(choice.targets))
        assert torch.equal(fleet.claims[run].cpu().bool(), in_order(choice.takes_prediction))
        assert torch.equal(fleet._uniforms[run].cpu(), in_order(choice.prediction_uniform))
        assert fleet.replaced[run].sum() == neighbors
        taken, changed = taken + int(predictions > 0), changed + int(neighbors > 0)
    assert taken == len(policies) - 1  # one has a rate of 0
    assert changed == len(policies) - 3  # one has a rate of 0, one no table, one an empty one


@pytest.mark.parametrize("capacity", [1, 4, 7, 12])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_claimed_positions_come_in_order_and_padded(device, share, capacity):
    claims = Random(2, Stream.TEXT).uniform(3, 11)[:, :7] < share
    positions = torch.full((3, capacity), -1, device=device)
    choosing.claimed_positions(claims.to(torch.int8).to(device), positions)
    for run, claimed in enumerate(claims):
        expected = F.pad(positions_of(claimed)[:capacity], (0, capacity), value=7)[:capacity]
        assert torch.equal(positions[run].cpu(), expected)
