"""Our stacks of single layers against torch's own two-layer modules and against its cells, step by step."""

import copy
import math

import pytest
import torch
from torch import nn

from nnrs.models import ModelConfig, build_model
from nnrs.seeding import Random, Stream

BATCH, TIME, UNITS = 4, 9, 6
TORCH = {"lstm": (nn.LSTM, nn.LSTMCell), "gru": (nn.GRU, nn.GRUCell)}


def model_of(kind):
    config = ModelConfig(kind=kind, units=UNITS, dropout=0.4)
    return build_model(config, 20, Random(2, Stream.INITIALISATION)).double()


def vectors():
    return Random(1, Stream.TEXT).uniform(BATCH, TIME, UNITS).double()


def states(count):
    return tuple(Random(2, Stream.TEXT).uniform(count, BATCH, UNITS).double().unbind())


@pytest.mark.parametrize("kind", TORCH)
def test_without_masks_it_is_torchs_two_layer_module(kind):
    model = model_of(kind)
    reference = TORCH[kind][0](UNITS, UNITS, num_layers=2, batch_first=True).double()
    weights = {
        name.replace("_l0", f"_l{index}"): value
        for index, layer in enumerate(model.layers)
        for name, value in layer.state_dict().items()
    }
    reference.load_state_dict(weights)
    before = states(2 * model.states_per_layer)
    hidden, after = model.encode(vectors(), before, None)
    if kind == "lstm":
        h1, c1, h2, c2 = before
        expected, (h, c) = reference(vectors(), (torch.stack((h1, h2)), torch.stack((c1, c2))))
        expected_state = (h[0], c[0], h[1], c[1])
    else:
        expected, h = reference(vectors(), torch.stack(before))
        expected_state = (h[0], h[1])
    torch.testing.assert_close(hidden, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(after, expected_state, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", TORCH)
def test_masks_act_on_the_inputs_and_after_each_layer_but_not_on_the_recurrence(kind):
    model = model_of(kind)
    masks = tuple(mask.double() for mask in model.draw_masks(BATCH, TIME, Random(3, Stream.DROPOUT)))
    hidden, _ = model.encode(vectors(), model.init_state(BATCH), masks)
    cells = []
    for layer in model.layers:
        cell = TORCH[kind][1](UNITS, UNITS).double()
        cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})
        cells.append(cell)
    memory = [None, None]
    for t in range(TIME):
        flowing = vectors()[:, t] * masks[0][:, t]
        for depth, cell in enumerate(cells):
            memory[depth] = cell(flowing, memory[depth])
            output = memory[depth][0] if kind == "lstm" else memory[depth]
            flowing = output * masks[depth + 1][:, t]
        torch.testing.assert_close(hidden[:, t], flowing, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", TORCH)
def test_biases_start_in_torchs_own_range(kind):
    model = build_model(ModelConfig.preset(kind, "tiny"), 20, Random(2, Stream.INITIALISATION))
    for layer in model.layers:
        for bias in (layer.bias_ih_l0, layer.bias_hh_l0):
            assert 0.9 / 8 < bias.abs().max() <= 1 / 8  # 1 / sqrt(64)


RECURRENT = ("lstm", "gru", "highway")


def dropping(kind, rate=0.4, units=UNITS):
    """A model that drops weights, and the masks that it draws: one for each layer, in one draw."""
    config = ModelConfig(kind=kind, units=units, dropout=0.4, weight_dropout=rate)
    model = build_model(config, 20, Random(2, Stream.INITIALISATION)).double()
    shape = 2, *model.recurrent_weights[0].shape
    return model, Random(5, Stream.WEIGHTS, 7).dropout_mask(*shape, rate=rate)


def masked(model, masks):
    """The same model anew, with weights that are masked for good."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight, mask in zip(other.recurrent_weights, masks, strict=True):
            weight.mul_(mask)
    return other


@pytest.mark.parametrize("kind", RECURRENT)
def test_dropped_weights_are_those_of_the_mask_and_what_they_learn_is_the_models(kind):
    model, masks = dropping(kind)
    other, start = masked(model, masks), states(len(model.init_state(1)))
    places = tuple(mask.double() for mask in model.draw_masks(BATCH, TIME, Random(3, Stream.DROPOUT)))
    outcomes = []
    for used in (model.dropped(Random(5, Stream.WEIGHTS, 7)), other):
        hidden, state = used.encode(vectors(), start, places)
        outcomes.append((hidden, *state))
        torch.autograd.backward(hidden.square().sum())
    torch.testing.assert_close(*outcomes, atol=1e-12, rtol=0)
    expected = dict(other.named_parameters())
    for weight, mask in zip(other.recurrent_weights, masks, strict=True):
        weight.grad.mul_(mask)  # of w * m, the gradient of w is m times that of the product
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", RECURRENT)
def test_weights_are_dropped_at_the_stated_rate_for_one_window_alone(kind):
    model, masks = dropping(kind, rate=0.25, units=64)
    share, n = (masks == 0).double().mean().item(), masks.numel()
    assert abs(share - 0.25) < 4 * math.sqrt(0.25 * 0.75 / n)
    assert not torch.equal(masks[0], masks[1])
    before, start = model.state_dict(), model.init_state(BATCH)
    words = Random(1, Stream.TEXT).uniform(BATCH, TIME, 64).double()
    plain, _ = model.encode(words, start, None)
    window, later = (model.dropped(Random(5, Stream.WEIGHTS, step)) for step in (7, 8))
    assert window.state_dict().keys() == before.keys()
    assert not torch.allclose(plain, window.encode(words, start, None)[0])
    assert not torch.equal(window.encode(words, start, None)[0], later.encode(words, start, None)[0])
    assert torch.equal(plain, model.encode(words, start, None)[0])  # which is itself whole


def test_without_weight_dropout_a_model_is_used_as_it_is():
    model = model_of("lstm")
    assert model.dropped(Random(5, Stream.WEIGHTS)) is model
