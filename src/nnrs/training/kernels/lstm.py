"""LSTM layers of many runs, in the layout of `recurrence`."""

import triton
import triton.language as tl
from torch import Tensor

from nnrs.training.kernels.recurrence import (
    STEP_ARGUMENTS,
    add_product,
    add_product_after,
    given_input,
    grid,
    load_gate,
    load_tile,
    own_tile,
    store_gate,
    tanh,
    tile_shapes,
)


@triton.jit(do_not_specialize=STEP_ARGUMENTS)
def _lstm_forward(
    gates, hidden, cell, weight, bias_in, bias_rec, gates_run, hidden_run, weight_run, bias_run, step, batch,
    num_units, KEEP: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    run, units, rows = own_tile(BLOCK_B, BLOCK_N)
    width = 4 * num_units
    gates += run * gates_run + step * batch * width
    hidden += run * hidden_run + step * batch * num_units
    cell += run * hidden_run + step * batch * num_units
    weight += run * weight_run
    bias_in += run * bias_run
    bias_rec += run * bias_run
    square = num_units * num_units
    # What the products are added to is loaded first, while nothing else waits for it.
    c = load_gate(cell, rows, batch, num_units, 0, units, num_units)
    i = given_input(gates, bias_in, bias_rec, rows, batch, width, 0, units, num_units)
    f = given_input(gates, bias_in, bias_rec, rows, batch, width, 1, units, num_units)
    g = given_input(gates, bias_in, bias_rec, rows, batch, width, 2, units, num_units)
    o = given_input(gates, bias_in, bias_rec, rows, batch, width, 3, units, num_units)
    for start in range(0, num_units, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        before = load_tile(hidden, rows, batch, num_units, inner, num_units)
        w_i = load_tile(weight, units, num_units, num_units, inner, num_units)
        w_f = load_tile(weight + square, units, num_units, num_units, inner, num_units)
        w_g = load_tile(weight + 2 * square, units, num_units, num_units, inner, num_units)
        w_o = load_tile(weight + 3 * square, units, num_units, num_units, inner, num_units)
        i = add_product(i, before, w_i, PRECISION)
        f = add_product(f, before, w_f, PRECISION)
        g = add_product(g, before, w_g, PRECISION)
        o = add_product(o, before, w_o, PRECISION)
    i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), tanh(g), tl.sigmoid(o)
    after = f * c + i * g
    next_row = batch * num_units
    store_gate(cell + next_row, rows, batch, num_units, 0, units, num_units, after)
    store_gate(hidden + next_row, rows, batch, num_units, 0, units, num_units, o * tanh(after))
    if KEEP:
        store_gate(gates, rows, batch, width, 0, units, num_units, i)
        store_gate(gates, rows, batch, width, 1, units, num_units, f)
        store_gate(gates, rows, batch, width, 2, units, num_units, g)
        store_gate(gates, rows, batch, width, 3, units, num_units, o)


@triton.jit(do_not_specialize=STEP_ARGUMENTS)
def _lstm_backward(
    gates, cell, doutput, dcell, weight, gates_run, hidden_run, doutput_run, weight_run, step, last, batch, num_units,
    BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    run, units, rows = own_tile(BLOCK_B, BLOCK_N)
    width = 4 * num_units
    gates += run * gates_run + step * batch * width
    cell += run * hidden_run + step * batch * num_units
    doutput += run * doutput_run + step * batch * num_units
    dcell += run * batch * num_units
    dh = load_gate(doutput, rows, batch, num_units, 0, units, num_units)
    i = load_gate(gates, rows, batch, width, 0, units, num_units)
    f = load_gate(gates, rows, batch, width, 1, units, num_units)
    g = load_gate(gates, rows, batch, width, 2, units, num_units)
    o = load_gate(gates, rows, batch, width, 3, units, num_units)
    before = load_gate(cell, rows, batch, num_units, 0, units, num_units)
    squashed = tanh(load_gate(cell + batch * num_units, rows, batch, num_units, 0, units, num_units))
    dc = tl.zeros([BLOCK_B, BLOCK_N], tl.float32)
    if step < last:
        dc = load_gate(dcell, rows, batch, num_units, 0, units, num_units)
        dh = add_product_after(
            dh, gates + batch * width, weight + run * weight_run, rows, batch, width, units, num_units, BLOCK_K,
            PRECISION,
        )  # fmt: skip
    dc += dh * o * (1 - squashed * squashed)
    store_gate(gates, rows, batch, width, 0, units, num_units, dc * g * i * (1 - i))
    store_gate(gates, rows, batch, width, 1, units, num_units, dc * before * f * (1 - f))
    store_gate(gates, rows, batch, width, 2, units, num_units, dc * i * (1 - g * g))
    store_gate(gates, rows, batch, width, 3, units, num_units, dh * squashed * o * (1 - o))
    store_gate(dcell, rows, batch, num_units, 0, units, num_units, dc * f)


def lstm_forward(
    gates: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor, bias_in: Tensor, bias_rec: Tensor, *, batch: int,
    time: int, keep: bool,
) -> None:  # fmt: skip
    """Run a layer over `time` steps; with `keep`, `gates` is left ready for `lstm_backward`."""
    runs, _, units = weight.shape
    shapes = tile_shapes(weight, batch, forward=True)
    for step in range(time):
        _lstm_forward[grid(runs, units, batch, shapes)](
            gates, hidden, cell, weight, bias_in, bias_rec, gates.stride(0), hidden.stride(0), weight.stride(0),
            bias_in.stride(0), step, batch, units, KEEP=keep, **shapes,
        )  # fmt: skip


def lstm_backward(
    gates: Tensor, cell: Tensor, doutput: Tensor, dcell: Tensor, weight: Tensor, *, batch: int, time: int
) -> None:
    """Turn the activations in `gates` into the gradients of the gates' inputs, last step first."""
    runs, _, units = weight.shape
    shapes = tile_shapes(weight, batch, forward=False)
    for step in reversed(range(time)):
        _lstm_backward[grid(runs, units, batch, shapes)](
            gates, cell, doutput, dcell, weight, gates.stride(0), cell.stride(0), doutput.stride(0), weight.stride(0),
            step, time - 1, batch, units, **shapes,
        )  # fmt: skip
