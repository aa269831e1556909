"""GRU layers of many runs, in the layout of `recurrence`.

Beside it stands `extra`, (R, T * B, 3 * H): forward W_hn h + b_hn, in its last third; backward the gradients of the
recurrent part.
"""

import triton
import triton.language as tl
from torch import Tensor

from nnrs.training.kernels.recurrence import (
    STEP_ARGUMENTS,
    add_product,
    add_product_after,
    given_input,
    grid,
    load_bias,
    load_gate,
    load_tile,
    own_tile,
    store_gate,
    tanh,
    tile_shapes,
)


@triton.jit(do_not_specialize=STEP_ARGUMENTS)
def _gru_forward(
    gates, extra, hidden, cell, weight, bias_in, bias_rec, gates_run, hidden_run, weight_run, bias_run, step, batch,
    num_units, KEEP: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    run, units, rows = own_tile(BLOCK_B, BLOCK_N)
    width = 3 * num_units
    gates += run * gates_run + step * batch * width
    extra += run * gates_run + step * batch * width
    hidden += run * hidden_run + step * batch * num_units
    cell += run * hidden_run + step * batch * num_units
    weight += run * weight_run
    bias_in += run * bias_run
    bias_rec += run * bias_run
    square = num_units * num_units
    r = given_input(gates, bias_in, bias_rec, rows, batch, width, 0, units, num_units)
    z = given_input(gates, bias_in, bias_rec, rows, batch, width, 1, units, num_units)
    n = load_gate(gates, rows, batch, width, 2, units, num_units) + load_bias(bias_in, 2, units, num_units)
    m = tl.zeros([BLOCK_B, BLOCK_N], tl.float32) + load_bias(bias_rec, 2, units, num_units)
    h = load_gate(cell, rows, batch, num_units, 0, units, num_units)
    for start in range(0, num_units, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        before = load_tile(hidden, rows, batch, num_units, inner, num_units)
        w_r = load_tile(weight, units, num_units, num_units, inner, num_units)
        w_z = load_tile(weight + square, units, num_units, num_units, inner, num_units)
        w_m = load_tile(weight + 2 * square, units, num_units, num_units, inner, num_units)
        r = add_product(r, before, w_r, PRECISION)
        z = add_product(z, before, w_z, PRECISION)
        m = add_product(m, before, w_m, PRECISION)
    r, z = tl.sigmoid(r), tl.sigmoid(z)
    n = tanh(n + r * m)
    after = n + z * (h - n)
    next_row = batch * num_units
    store_gate(cell + next_row, rows, batch, num_units, 0, units, num_units, after)
    store_gate(hidden + next_row, rows, batch, num_units, 0, units, num_units, after)
    if KEEP:
        store_gate(gates, rows, batch, width, 0, units, num_units, r)
        store_gate(gates, rows, batch, width, 1, units, num_units, z)
        store_gate(gates, rows, batch, width, 2, units, num_units, n)
        store_gate(extra, rows, batch, width, 2, units, num_units, m)


@triton.jit(do_not_specialize=STEP_ARGUMENTS)
def _gru_backward(
    gates, extra, cell, doutput, dhidden, weight, gates_run, hidden_run, doutput_run, weight_run, step, last, batch,
    num_units, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    run, units, rows = own_tile(BLOCK_B, BLOCK_N)
    width = 3 * num_units
    gates += run * gates_run + step * batch * width
    extra += run * gates_run + step * batch * width
    cell += run * hidden_run + step * batch * num_units
    doutput += run * doutput_run + step * batch * num_units
    dhidden += run * batch * num_units
    dh = load_gate(doutput, rows, batch, num_units, 0, units, num_units)
    r = load_gate(gates, rows, batch, width, 0, units, num_units)
    z = load_gate(gates, rows, batch, width, 1, units, num_units)
    n = load_gate(gates, rows, batch, width, 2, units, num_units)
    m = load_gate(extra, rows, batch, width, 2, units, num_units)
    h = load_gate(cell, rows, batch, num_units, 0, units, num_units)
    if step < last:
        dh += load_gate(dhidden, rows, batch, num_units, 0, units, num_units)
        dh = add_product_after(
            dh, extra + batch * width, weight + run * weight_run, rows, batch, width, units, num_units, BLOCK_K,
            PRECISION,
        )  # fmt: skip
    dn = dh * (1 - z) * (1 - n * n)
    dz = dh * (h - n) * z * (1 - z)
    dr = dn * m * r * (1 - r)
    store_gate(gates, rows, batch, width, 0, units, num_units, dr)
    store_gate(gates, rows, batch, width, 1, units, num_units, dz)
    store_gate(gates, rows, batch, width, 2, units, num_units, dn)
    store_gate(extra, rows, batch, width, 0, units, num_units, dr)
    store_gate(extra, rows, batch, width, 1, units, num_units, dz)
    store_gate(extra, rows, batch, width, 2, units, num_units, dn * r)
    store_gate(dhidden, rows, batch, num_units, 0, units, num_units, dh * z)


def gru_forward(
    gates: Tensor, extra: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor, bias_in: Tensor, bias_rec: Tensor, *,
    batch: int, time: int, keep: bool,
) -> None:  # fmt: skip
    """Run a layer over `time` steps; with `keep`, `gates` and `extra` are left ready for `gru_backward`."""
    runs, _, units = weight.shape
    shapes = tile_shapes(weight, batch, forward=True)
    for step in range(time):
        _gru_forward[grid(runs, units, batch, shapes)](
            gates, extra, hidden, cell, weight, bias_in, bias_rec, gates.stride(0), hidden.stride(0),
            weight.stride(0), bias_in.stride(0), step, batch, units, KEEP=keep, **shapes,
        )  # fmt: skip


def gru_backward(
    gates: Tensor, extra: Tensor, cell: Tensor, doutput: Tensor, dhidden: Tensor, weight: Tensor, *, batch: int,
    time: int,
) -> None:  # fmt: skip
    """Turn `gates` into the gradients of the input projections and `extra` into those of the recurrent ones."""
    runs, _, units = weight.shape
    shapes = tile_shapes(weight, batch, forward=False)
    for step in reversed(range(time)):
        _gru_backward[grid(runs, units, batch, shapes)](
            gates, extra, cell, doutput, dhidden, weight, gates.stride(0), cell.stride(0), doutput.stride(0),
            weight.stride(0), step, time - 1, batch, units, **shapes,
        )  # fmt: skip
