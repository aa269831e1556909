"""The recurrent kernels against torch's own layers, or a plain loop, for several runs in one launch.

Tolerances are those of test_kernels.py: the same float32 numbers are added in another order.
"""

import pytest
import torch
from torch import nn

from nnrs.training.kernels import gru, highway, lstm

CLOSE = {"atol": 1e-5, "rtol": 1e-5}

pytestmark = pytest.mark.usefixtures("full_precision")

SIZES = [  # runs, units, batch, time
    (2, 11, 3, 3),
    (1, 11, 3, 2),  # a run alone has tiles of its own size
    (2, 70, 2, 2),  # more units than one tile, more terms than one step of a sum
    (1, 5, 66, 2),  # more rows than one tile
    (2, 70, 1, 2),  # a single row, as in scoring
]


def layer_case(kind, size, draw):
    """Layers of `kind`, their inputs and states, and the gradient of their outputs, all time-major."""
    runs, units, batch, time = size
    layers = [kind(units, units).to(draw(1).device) for _ in range(runs)]
    with torch.no_grad():
        for layer in layers:
            for parameter in layer.parameters():
                parameter.copy_(draw(*parameter.shape) * (2 / units) ** 0.5)
    inputs, slopes = draw(runs, time, batch, units), draw(runs, time, batch, units)
    return layers, inputs.requires_grad_(), draw(2, runs, 1, batch, units), slopes


def stacked(layers, name):
    return torch.stack([getattr(layer, f"{name}_l0").detach() for layer in layers])


def check_layer(layers, inputs, states, hidden, dgates, drecurrent, size):
    """`hidden` and the gradients that follow from the two kernels' results are those of autograd."""
    runs, units, batch, time = size
    outputs = hidden[:, batch:].view(runs, time, batch, units)
    flat = inputs.detach().flatten(1, 2)
    before = hidden[:, : time * batch]
    for run, layer in enumerate(layers):
        torch.testing.assert_close(outputs[run], states[run], **CLOSE)
        for given, name in ((dgates, "ih"), (drecurrent, "hh")):
            source = flat if name == "ih" else before
            weight, bias = (getattr(layer, f"{part}_{name}_l0").grad for part in ("weight", "bias"))
            torch.testing.assert_close(given[run].T @ source[run], weight, **CLOSE)
            torch.testing.assert_close(given[run].sum(0), bias, **CLOSE)
        below = dgates[run] @ layer.weight_ih_l0.detach()
        torch.testing.assert_close(below, inputs.grad[run].flatten(0, 1), **CLOSE)


def room_for(states, time):
    """The state before the window, and room for those after each step: (runs, (time + 1) * batch, units)."""
    first = states[:, 0]
    return torch.cat([first, first.new_full((len(first), time * first.shape[1], first.shape[2]), 9.0)], 1)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_lstm_layers_compute_and_learn_what_torch_has(draw, size):
    runs, units, batch, time = size
    layers, inputs, (h, c), slopes = layer_case(nn.LSTM, size, draw)
    outputs = [layer(inputs[run], (h[run], c[run]))[0] for run, layer in enumerate(layers)]
    sum((out * slope).sum() for out, slope in zip(outputs, slopes, strict=True)).backward()

    w_in, w_rec, b_in, b_rec = (
        stacked(layers, name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    gates = inputs.detach().flatten(1, 2) @ w_in.transpose(1, 2)
    hidden, cell, given = room_for(h, time), room_for(c, time), gates.clone()
    shape = {"batch": batch, "time": time}
    lstm.lstm_forward(gates, hidden, cell, w_rec, b_in, b_rec, keep=False, **shape)
    assert torch.equal(gates, given)
    scored = hidden.clone()
    lstm.lstm_forward(gates, hidden, cell, w_rec, b_in, b_rec, keep=True, **shape)
    assert torch.equal(hidden, scored)
    carried = torch.full((runs, batch, units), 9.0, device=gates.device)  # what was there does not matter
    lstm.lstm_backward(gates, cell, slopes.flatten(1, 2), carried, w_rec, **shape)
    check_layer(layers, inputs, outputs, hidden, gates, gates, size)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gru_layers_compute_and_learn_what_torch_has(draw, size):
    runs, units, batch, time = size
    layers, inputs, (h, _), slopes = layer_case(nn.GRU, size, draw)
    outputs = [layer(inputs[run], h[run])[0] for run, layer in enumerate(layers)]
    sum((out * slope).sum() for out, slope in zip(outputs, slopes, strict=True)).backward()

    w_in, w_rec, b_in, b_rec = (
        stacked(layers, name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    gates = inputs.detach().flatten(1, 2) @ w_in.transpose(1, 2)
    hidden, cell = room_for(h, time), room_for(h, time)
    extra, given = torch.full_like(gates, 9.0), gates.clone()
    shape = {"batch": batch, "time": time}
    gru.gru_forward(gates, extra, hidden, cell, w_rec, b_in, b_rec, keep=False, **shape)
    assert torch.equal(gates, given)
    scored = hidden.clone()
    gru.gru_forward(gates, extra, hidden, cell, w_rec, b_in, b_rec, keep=True, **shape)
    assert torch.equal(hidden, scored)
    assert torch.equal(hidden, cell)
    carried = torch.full((runs, batch, units), 9.0, device=gates.device)
    gru.gru_backward(gates, extra, cell, slopes.flatten(1, 2), carried, w_rec, **shape)
    check_layer(layers, inputs, outputs, hidden, gates, extra, size)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_highway_networks_compute_and_learn_what_a_plain_loop_does(draw, size, depth):
    runs, units, batch, time = size
    scale = (2 / units) ** 0.5
    weights = [(draw(runs, 2 * units, units) * scale).requires_grad_() for _ in range(depth)]
    biases = [draw(runs, 2 * units).requires_grad_() for _ in range(depth)]
    projected = draw(runs, time, batch, 2 * units).requires_grad_()
    slopes, first = draw(runs, time, batch, units), draw(runs, batch, units)
    state, outputs = first, []
    for step in range(time):
        for level, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            given = state @ weight.transpose(1, 2) + bias[:, None] + (projected[:, step] if level == 0 else 0)
            h, t = given[..., :units].tanh(), given[..., units:].sigmoid()
            state = h * t + state * (1 - t)
        outputs.append(state)
    expected = torch.stack(outputs, 1)
    (expected * slopes).sum().backward()

    held, added = [[part.detach() for part in parts] for parts in (weights, biases)]
    given = projected.detach().flatten(1, 2)
    gates = [given.clone(), *(torch.full_like(given, 9.0) for _ in range(depth - 1))]
    hidden, cell = ([room_for(first[:, None], time) for _ in range(depth)] for _ in range(2))
    shape = {"batch": batch, "time": time}
    highway.highway_forward(gates[:1], hidden, cell, held, added, keep=False, **shape)
    assert torch.equal(gates[0], given)
    scored = hidden[-1].clone()
    highway.highway_forward(gates, hidden, cell, held, added, keep=True, **shape)
    assert torch.equal(hidden[-1], scored)
    assert torch.equal(hidden[-1], cell[-1])
    torch.testing.assert_close(scored[:, batch:], expected.detach().flatten(1, 2), **CLOSE)
    carried = torch.full((runs, batch, units), 9.0, device=given.device)
    highway.highway_backward(gates, cell, slopes.flatten(1, 2), carried, held, **shape)
    torch.testing.assert_close(gates[0], projected.grad.flatten(1, 2), **CLOSE)
    for level, before in enumerate(highway.states_before(hidden, batch)):
        gradient = gates[level].transpose(1, 2) @ before[:, : time * batch]
        torch.testing.assert_close(gradient, weights[level].grad, **CLOSE)
        torch.testing.assert_close(gates[level].sum(1), biases[level].grad, **CLOSE)
