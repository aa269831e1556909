import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nnrs.neighbors.probabilities import effective_neighbors, pick, temperature_for

EMPTY = -torch.inf
BELOW_ONE = 1 - 2**-24  # the largest float32 that a draw can be


def test_draws_fall_on_slots_as_wide_as_their_probabilities():
    probabilities = torch.tensor([0.5, 0.25, 0.25]).expand(6, 3)
    uniform = torch.tensor([0.0, 0.49, 0.5, 0.74, 0.75, 0.99])
    assert pick(probabilities, uniform).tolist() == [0, 0, 1, 1, 2, 2]


@settings(deadline=None)
@given(
    weights=arrays("float32", (4, 9), elements=st.sampled_from([0.0, 0.0, 1e-8, 0.1, 1 / 3, 0.7])),
    uniform=st.one_of(st.just(BELOW_ONE), st.just(0.0), st.floats(0, BELOW_ONE, width=32)),
)
def test_a_slot_of_probability_zero_is_never_picked(weights, uniform):
    weights = torch.from_numpy(weights)
    weights = weights[(weights > 0).any(-1)]
    probabilities = weights / weights.sum(-1, keepdim=True)
    slots = pick(probabilities, torch.full((len(weights),), uniform))
    assert (probabilities.gather(1, slots[:, None]) > 0).all()


def test_a_sum_that_rounding_left_below_one_still_ends_on_the_last_real_slot():
    probabilities = torch.tensor([[0.3, 0.3, 0.3999, 0.0]])  # as if rounding had lost 0.0001
    assert pick(probabilities, torch.tensor([BELOW_ONE])).tolist() == [2]


def test_picked_frequencies_match_the_probabilities():
    probabilities = torch.tensor([0.1, 0.0, 0.6, 0.3])
    n = 40_000
    uniform = torch.rand(n, generator=torch.Generator().manual_seed(1))
    shares = torch.bincount(pick(probabilities.expand(n, 4), uniform), minlength=4) / n
    errors = (probabilities * (1 - probabilities) / n).sqrt()
    assert ((shares - probabilities).abs() <= 4 * errors).all()


def test_effective_neighbors_are_the_exponential_of_the_entropy():
    # Odds 3 : 1 have entropy -(3/4) ln(3/4) - (1/4) ln(1/4), whose exponential is 4 / 3^(3/4) = 1.7548.
    similarities = torch.tensor([[math.log(3.0), 0.0], [0.2, 0.2], [EMPTY, EMPTY], [1.0, EMPTY]])
    uneven, even, alone = 4 / 3**0.75, 2.0, 1.0
    for weights, expected in [
        ([1.0, 0.0, 0.0, 0.0], uneven),
        ([0.0, 2.0, 5.0, 0.0], even),  # the row without neighbors does not count
        ([1.0, 1.0, 1.0, 2.0], (uneven + even + 2 * alone) / 4),
        ([0.0, 0.0, 1.0, 0.0], 0.0),
    ]:
        found = effective_neighbors(similarities, 1.0, torch.tensor(weights))
        assert found == pytest.approx(expected, abs=1e-6)


def test_a_table_without_slots_has_no_effective_neighbors():
    assert effective_neighbors(torch.empty(3, 0), 1.0, torch.ones(3)) == 0.0


@settings(deadline=None)
@given(seed=st.integers(0, 1000), share=st.floats(0.02, 0.98))
def test_the_temperature_found_gives_the_number_of_neighbors_asked_for(seed, share):
    generator = torch.Generator().manual_seed(seed)
    similarities = torch.rand(20, 6, generator=generator).sort(descending=True).values
    similarities[3, 4:] = EMPTY
    similarities[5] = EMPTY
    weights = torch.rand(20, generator=generator)
    lowest, highest = (effective_neighbors(similarities, t, weights) for t in (1e-3, 1e3))
    target = lowest + share * (highest - lowest)
    temperature = temperature_for(similarities, target, weights)
    assert effective_neighbors(similarities, temperature, weights) == pytest.approx(target, abs=1e-6)


def test_a_target_out_of_reach_gives_the_nearer_end():
    similarities = torch.tensor([[0.9, 0.5, 0.1]])
    assert temperature_for(similarities, 0.5, torch.ones(1)) == 1e-3
    assert temperature_for(similarities, 3.0, torch.ones(1)) == 1e3
