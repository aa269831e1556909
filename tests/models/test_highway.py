"""The recurrent highway network against the paper's equations, written out one number at a time."""

import math

import torch

from nnrs.models import ModelConfig, build_model
from nnrs.models.highway import GATE_BIAS
from nnrs.seeding import Random, Stream

BATCH, TIME, UNITS, DEPTH = 2, 5, 4, 3


def model_of(units=UNITS, layers=DEPTH):
    config = ModelConfig(kind="highway", units=units, layers=layers, dropout=0.3)
    return build_model(config, 10, Random(2, Stream.INITIALISATION)).double()


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def reference_step(model, x, s):
    """s after one time step (eq. 6-9 of the paper, carry gate c = 1 - t), in plain floats."""
    w = model.input.weight.tolist()  # the first `units` rows make h, the others t
    for depth, layer in enumerate(model.layers):
        r, b = layer.weight.tolist(), layer.bias.tolist()
        total = [
            sum(r[row][i] * s[i] for i in range(UNITS))
            + b[row]
            + (sum(w[row][i] * x[i] for i in range(UNITS)) if depth == 0 else 0.0)
            for row in range(2 * UNITS)
        ]
        h = [math.tanh(value) for value in total[:UNITS]]
        t = [sigmoid(value) for value in total[UNITS:]]
        s = [h[i] * t[i] + s[i] * (1 - t[i]) for i in range(UNITS)]
    return s


def test_it_follows_the_equations_of_the_paper_with_dropout_on():
    model = model_of()
    with torch.no_grad():
        for layer in model.layers:  # other than their start, so that each bias is seen to be used
            layer.bias.copy_(torch.linspace(-1, 1, 2 * UNITS))
    vectors = Random(1, Stream.TEXT).uniform(BATCH, TIME, UNITS).double()
    start = Random(2, Stream.TEXT).uniform(BATCH, UNITS).double()
    masks = tuple(mask.double() for mask in model.draw_masks(BATCH, TIME, Random(3, Stream.DROPOUT)))
    hidden, (last,) = model.encode(vectors, (start,), masks)
    for row in range(BATCH):
        s = start[row].tolist()
        for t in range(TIME):
            s = reference_step(model, (vectors * masks[0])[row, t].tolist(), s)
            expected = torch.tensor(s, dtype=torch.float64) * masks[1][row, t]
            torch.testing.assert_close(hidden[row, t], expected, atol=1e-12, rtol=0)
        torch.testing.assert_close(last[row], torch.tensor(s, dtype=torch.float64), atol=1e-12, rtol=0)


def test_gates_start_nearly_closed_and_proposals_unbiased():
    for layer in model_of().layers:
        assert layer.bias.tolist() == [0.0] * UNITS + [GATE_BIAS] * UNITS


def test_one_unit_worked_by_hand():
    model = model_of(units=1, layers=1)
    with torch.no_grad():
        model.input.weight.copy_(torch.tensor([[1.0], [0.0]]))
        model.layers[0].weight.copy_(torch.tensor([[0.0], [math.log(3.0)]]))
        model.layers[0].bias.zero_()
    # s = 1, x = 0: h = tanh 0 = 0, t = σ(log 3) = 3/4, so s becomes 0 · 3/4 + 1 · 1/4
    ones, zeros = torch.ones(1, 1).double(), torch.zeros(1, 1, 1).double()
    hidden, (last,) = model.encode(zeros, (ones,), None)
    torch.testing.assert_close(hidden.item(), 0.25)
    torch.testing.assert_close(last.item(), 0.25)
