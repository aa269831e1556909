"""Eq. 3: Ñ is the softmax of each row of N / τ."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.surroundings import unchecked

from nnrs.errors import ConfigError
from nnrs.neighbors.probabilities import neighbor_probabilities
from nnrs.temperature import TemperatureController

EMPTY = -torch.inf


def test_halving_the_temperature_squares_the_odds():
    similarities = torch.tensor([[math.log(2.0), 0.0]])  # odds 2 : 1
    torch.testing.assert_close(neighbor_probabilities(similarities, 1.0), torch.tensor([[2 / 3, 1 / 3]]))
    torch.testing.assert_close(neighbor_probabilities(similarities, 0.5), torch.tensor([[4 / 5, 1 / 5]]))


@settings(deadline=None)
@given(
    rows=st.lists(st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=4), min_size=1, max_size=5),
    temperature=st.floats(0.01, 100),
)
def test_it_is_torchs_softmax(rows, temperature):
    similarities = torch.tensor(rows)
    expected = torch.softmax(similarities / temperature, dim=-1)
    torch.testing.assert_close(
        neighbor_probabilities(similarities, temperature), expected, atol=1e-5, rtol=1e-4
    )


def test_cold_takes_the_closest_and_hot_takes_all_alike():
    similarities = torch.tensor([[0.9, 0.8, 0.1]])
    torch.testing.assert_close(neighbor_probabilities(similarities, 1e-3), torch.tensor([[1.0, 0.0, 0.0]]))
    hot = neighbor_probabilities(similarities, 1e4)
    torch.testing.assert_close(hot, torch.full((1, 3), 1 / 3), atol=1e-4, rtol=0)


def test_empty_slots_have_probability_zero_and_the_others_sum_to_one():
    similarities = torch.tensor([[0.7, 0.7, EMPTY], [0.2, EMPTY, EMPTY], [EMPTY, EMPTY, EMPTY]])
    expected = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    for temperature in (1e-4, 1e-3, 0.5, 1e3, 1e4):
        torch.testing.assert_close(neighbor_probabilities(similarities, temperature), expected)


def test_log_probabilities_at_temperature_one_come_back_as_probabilities():
    probabilities = torch.tensor([[0.6, 0.3, 0.1]])
    torch.testing.assert_close(neighbor_probabilities(probabilities.log(), 1.0), probabilities)


def test_a_row_of_any_shape_and_a_temperature_on_the_device_will_do():
    similarities = torch.rand(2, 3, 5)
    flat = neighbor_probabilities(similarities.view(6, 5), 0.7)
    assert torch.equal(neighbor_probabilities(similarities, torch.tensor(0.7)), flat.view(2, 3, 5))
    assert neighbor_probabilities(torch.empty(4, 0), 1.0).shape == (4, 0)


@pytest.mark.parametrize(
    "temperature", [0.0, -1.0, 9e-5, 1e-300, 2e4, 1e300, math.nan, math.inf, "0.5", None]
)
def test_a_temperature_that_float32_could_not_divide_by_is_refused_with_advice(temperature):
    message = r"temperature must be in \[0\.0001, 10000\], got .*\. For the closest .* use k=1\."
    with unchecked(), pytest.raises(ConfigError, match=message):
        neighbor_probabilities(torch.rand(2, 2), temperature)
    with unchecked(), pytest.raises(ConfigError, match=message):
        TemperatureController("constant", temperature, torch.rand(2, 2), torch.ones(2))


def test_a_number_of_numpys_is_a_temperature_and_becomes_a_plain_one():
    similarities, temperature = torch.rand(2, 3), np.float32(0.75)
    with unchecked():
        found = neighbor_probabilities(similarities, temperature)
        state = TemperatureController("constant", temperature, similarities, torch.ones(2)).start()
    assert torch.equal(found, neighbor_probabilities(similarities, 0.75))
    assert type(state.temperature) is float


@pytest.mark.parametrize("rule", [None, 1])
def test_a_temperature_rule_that_is_no_name_is_refused(rule):
    with (
        unchecked(),
        pytest.raises(ConfigError, match=r"temperature rule must be a name, got .* Known: .*prose"),
    ):
        TemperatureController(rule, 0.5, torch.rand(2, 2), torch.ones(2))
