"""Eq. 6, the choice of each input, and how often each source is chosen."""

import itertools
import math

import pytest
import torch

from nnrs.batches import Window
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.base import InputPolicy, Rates, Reading
from nnrs.policies.functional import mix_inputs, settle_claims
from nnrs.schedules import Schedule
from nnrs.seeding import Random, Stream
from nnrs.temperature import TemperatureController


def test_the_truth_table():
    # prediction fires, neighbor fires, coin -> source
    expected = {
        (True, True, True): "neighbor",
        (True, True, False): "prediction",
        (True, False, True): "prediction",
        (True, False, False): "prediction",
        (False, True, True): "neighbor",  # the print says gold, and NNRS alone would do nothing
        (False, True, False): "neighbor",
        (False, False, True): "gold",
        (False, False, False): "gold",
    }
    cases = list(itertools.product([True, False], repeat=3))
    wants_prediction, wants_neighbor, coin = torch.tensor(cases).T
    takes = settle_claims(wants_prediction, wants_neighbor, coin)
    gold, predictions, neighbors = (torch.full((8,), value) for value in (0, 1, 2))
    mixed = mix_inputs(gold, predictions, neighbors, *takes)
    names = ["gold", "prediction", "neighbor"]
    assert {case: names[value] for case, value in zip(cases, mixed.tolist(), strict=True)} == expected


TABLE = NeighborTable.from_vectors(
    torch.tensor([[1.0, 0.0, 0.0], [0.9, 0.4, 0.0], [0.5, 0.5, 0.6], [0.0, 1.0, 0.1], [0.0, 0.0, 0.0]]), k=3
)


def policy(granularity):
    weights = torch.ones(5)
    return InputPolicy(
        proposal=TABLE,
        prediction_rate=Schedule("static", 0.0, 0.5),
        neighbor_rate=Schedule("static", 0.0, 0.4),
        controller=TemperatureController("constant", 0.5, TABLE.similarities, weights),
        replaceable=TABLE.replaceable,
        token_weights=weights,
        reading=Reading(granularity=granularity),
    )


def choices(granularity, rows, steps, windows, token=0, rates=None):
    rates = rates or Rates(prediction=0.5, neighbor=0.4)
    gold = torch.full((rows, steps), token)
    window = Window(gold, gold, gold)
    built = policy(granularity)
    return [built.choose(window, rates, Random(3, Stream.DRAWS, step)) for step in range(windows)]


@pytest.mark.parametrize("granularity", ["token", "position", "sequence"])
def test_sources_are_chosen_as_often_as_the_two_rates_say(granularity):
    # neighbor γ(1 − ε/2) = 0.4·0.75 = 0.3; prediction ε(1 − γ/2) = 0.5·0.8 = 0.4
    rows, steps, windows = 60, 60, 500
    made = choices(granularity, rows, steps, windows)
    draws = windows * {"token": rows * steps, "position": steps, "sequence": rows}[granularity]
    for expected, mask in ((0.3, "takes_neighbor"), (0.4, "takes_prediction")):
        share = torch.stack([getattr(choice, mask) for choice in made]).double().mean().item()
        error = math.sqrt(expected * (1 - expected) / draws)  # of the independent draws, not of the tokens
        assert abs(share - expected) < 4 * error


def test_granularity_says_what_shares_a_draw():
    made = {name: choices(name, 8, 10, 200) for name in ("token", "position", "sequence")}
    for choice in made["position"]:
        assert (choice.takes_neighbor == choice.takes_neighbor[:1]).all()
    for choice in made["sequence"]:
        assert (choice.takes_neighbor == choice.takes_neighbor[:, :1]).all()
    assert any((c.takes_neighbor != c.takes_neighbor[:1]).any() for c in made["token"])
    assert any((c.takes_neighbor != c.takes_neighbor[:, :1]).any() for c in made["token"])
    # with one set of time steps the neighbors drawn there still differ by row
    assert any((c.neighbors != c.neighbors[:1]).any() for c in made["position"])


@pytest.mark.parametrize("granularity", ["token", "position", "sequence"])
def test_drawn_neighbors_follow_eq_3(granularity):
    made = choices(granularity, 20, 20, 250, token=0, rates=Rates(neighbor=1.0))
    drawn = torch.stack([choice.neighbors for choice in made]).flatten()
    count = len(drawn)
    exps = [math.exp(s / 0.5) for s in TABLE.similarities[0].tolist()]
    for word, weight in zip(TABLE.ids[0].tolist(), exps, strict=True):
        expected = weight / sum(exps)
        share = (drawn == word).double().mean().item()
        assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / count)


def test_a_token_without_neighbors_is_only_ever_a_prediction():
    made = choices("token", 8, 10, 500, token=4)
    assert not any(choice.takes_neighbor.any() for choice in made)
    share = torch.stack([choice.takes_prediction for choice in made]).double().mean().item()
    assert abs(share - 0.5) < 4 * math.sqrt(0.25 / (8 * 10 * 500))  # ε itself: nobody contests it
