"""LSTM and GRU layers of many runs at once: one launch per time step, a program per run and tile of units.

Rows are time-major: row t * batch + b. A run's weights are its own, so a time step reads each run's recurrent weights
once, which is what it costs; the pointwise part of the cell rides along. Layouts (R runs, T steps, B rows, H units):

    gates   (R, T * B, G * H)    forward: input projections -> activations; backward: -> gradients, in place
    hidden  (R, (T + 1) * B, H)  the state before the window, then after each step
    cell    the same in float32: the LSTM's cell, and the GRU's state, which would otherwise be rounded at every step
    extra   (R, T * B, 3 * H)    GRU only: W_hn h + b_hn in its last third; backward: gradients of the recurrent part
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

STEP_ARGUMENTS = ["step", "last", "batch"]  # a value of 1 or 16 would otherwise be compiled for


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _tile(pointer, rows, row_count, row_stride, columns, column_count):
    """A (rows, columns) tile whose columns are contiguous; 0 outside."""
    inside = (rows < row_count)[:, None] & (columns < column_count)[None, :]
    return tl.load(pointer + rows[:, None] * row_stride + columns[None, :], mask=inside, other=0.0)


@triton.jit
def _gate(pointer, rows, batch, width, gate, units, num_units):
    """The tile of one gate, in float32."""
    inside = (rows < batch)[:, None] & (units < num_units)[None, :]
    place = pointer + rows[:, None] * width + gate * num_units + units[None, :]
    return tl.load(place, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _put_gate(pointer, rows, batch, width, gate, units, num_units, values):
    inside = (rows < batch)[:, None] & (units < num_units)[None, :]
    place = pointer + rows[:, None] * width + gate * num_units + units[None, :]
    tl.store(place, values.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def _bias(pointer, gate, units, num_units):
    return tl.load(pointer + gate * num_units + units, mask=units < num_units, other=0.0)[None, :]


@triton.jit
def _add_product(total, rows, weights, PRECISION: tl.constexpr):
    """`total` and (rows, inner) times (units, inner): a product of matrices, or of a matrix and a single row."""
    if rows.shape[0] == 1:
        return total + tl.sum(rows.to(tl.float32) * weights.to(tl.float32), 1)[None, :]
    else:
        return tl.dot(rows, tl.trans(weights), total, input_precision=PRECISION)


@triton.jit
def _input(gates, bias_in, bias_rec, rows, batch, width, gate, units, num_units):
    """What one gate is given apart from the recurrent product: the input projection and both biases."""
    given = _gate(gates, rows, batch, width, gate, units, num_units)
    return given + (_bias(bias_in, gate, units, num_units) + _bias(bias_rec, gate, units, num_units))


@triton.jit
def _backward_product(
    total,
    dgates,
    weight,
    rows,
    batch,
    width,
    units,
    num_units,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """`total` and (rows, gates) of the step after this one times (gates, units) of the recurrent weights."""
    for start in range(0, width, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        left = _tile(dgates, rows, batch, width, inner, width)
        right = _tile(weight, inner, width, num_units, units, num_units)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    return total


@triton.jit(do_not_specialize=STEP_ARGUMENTS)
def _lstm_forward(
    gates, hidden, cell, weight, bias_in, bias_rec, gates_run, hidden_run, weight_run, bias_run, step, batch,
    num_units, KEEP: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1).to(tl.int64)
    units = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.program_id(2) * BLOCK_B + tl.arange(0, BLOCK_B)
    width = 4 * num_units
    gates += run * gates_run + step * batch * width
    hidden += run * hidden_run + step * batch * num_units
    cell += run * hidden_run + step * batch * num_units
    weight += run * weight_run
    bias_in += run * bias_run
    bias_rec += run * bias_run
    square = num_units * num_units
    # What the products are added to is loaded first, while nothing else waits for it.
    c = _gate(cell, rows, batch, num_units, 0, units, num_units)
    i = _input(gates, bias_in, bias_rec, rows, batch, width, 0, units, num_units)
    f = _input(gates, bias_in, bias_rec, rows, batch, width, 1, units, num_units)
    g = _input(gates, bias_in, bias_rec, rows, batch, width, 2, units, num_units)
    o = _input(gates, bias_in, bias_rec, rows, batch, width, 3, units, num_units)
    for start in range(0, num_units, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        before = _tile(hidden, rows, batch, num_units, inner, num_units)
        w_i = _tile(weight, units, num_units, num_units, inner, num_units)
        w_f = _tile(weight + square, units, num_units, num_units, inner, num_units)
        w_g = _tile(weight + 2 * square, units, num_units, num_units, inner, num_units)
        w_o = _tile(weight + 3 * square, units, num_units, num_units, inner, num_units)
        i = _add_product(i, before, w_i, PRECISION)
        f = _add_product(f, before, w_f, PRECISION)
        g = _add_product(g, before, w_g, PRECISION)
        o = _add_product(o, before, w_o, PRECISION)
    i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), _tanh(g), tl.sigmoid(o)
    after = f * c + i * g
    next_row = batch * num_units
    _put_gate(cell + next_row, rows, batch, num_units, 0, units, num_units, after)
    _put_gate(hidden + next_row, rows, batch, num_units, 0, units, num_units, o * _tanh(after))
    if KEEP:
        _put_gate(gates, rows, batch, width, 0, units, num_units, i)
        _put_gate(gates, rows, batch, width, 1, units, num_units, f)
        _put_gate(gates, rows, batch, width, 2, units, num_units, g)
        _put_gate(gates, rows, batch, width, 3, units, num_units, o)


@triton.jit(do_not_specialize=STEP_ARGUMENTS)
def _lstm_backward(
    gates, cell, doutput, dcell, weight, gates_run, hidden_run, doutput_run, weight_run, step, last, batch, num_units,
    BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1).to(tl.int64)
    units = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.program_id(2) * BLOCK_B + tl.arange(0, BLOCK_B)
    width = 4 * num_units
    gates += run * gates_run + step * batch * width
    cell += run * hidden_run + step * batch * num_units
    doutput += run * doutput_run + step * batch * num_units
    dcell += run * batch * num_units
    dh = _gate(doutput, rows, batch, num_units, 0, units, num_units)
    i = _gate(gates, rows, batch, width, 0, units, num_units)
    f = _gate(gates, rows, batch, width, 1, units, num_units)
    g = _gate(gates, rows, batch, width, 2, units, num_units)
    o = _gate(gates, rows, batch, width, 3, units, num_units)
    before = _gate(cell, rows, batch, num_units, 0, units, num_units)
    squashed = _tanh(_gate(cell + batch * num_units, rows, batch, num_units, 0, units, num_units))
    dc = tl.zeros([BLOCK_B, BLOCK_N], tl.float32)
    if step < last:
        dc = _gate(dcell, rows, batch, num_units, 0, units, num_units)
        dh = _backward_product(
            dh, gates + batch * width, weight + run * weight_run, rows, batch, width, units, num_units, BLOCK_K,
            PRECISION,
        )  # fmt: skip
    dc += dh * o * (1 - squashed * squashed)
    _put_gate(gates, rows, batch, width, 0, units, num_units, dc * g * i * (1 - i))
    _put_gate(gates, rows, batch, width, 1, units, num_units, dc * before * f * (1 - f))
    _put_gate(gates, rows, batch, width, 2, units, num_units, dc * i * (1 - g * g))
    _put_gate(gates, rows, batch, width, 3, units, num_units, dh * squashed * o * (1 - o))
    _put_gate(dcell, rows, batch, num_units, 0, units, num_units, dc * f)


@triton.jit(do_not_specialize=STEP_ARGUMENTS)
def _gru_forward(
    gates, extra, hidden, cell, weight, bias_in, bias_rec, gates_run, hidden_run, weight_run, bias_run, step, batch,
    num_units, KEEP: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1).to(tl.int64)
    units = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.program_id(2) * BLOCK_B + tl.arange(0, BLOCK_B)
    width = 3 * num_units
    gates += run * gates_run + step * batch * width
    extra += run * gates_run + step * batch * width
    hidden += run * hidden_run + step * batch * num_units
    cell += run * hidden_run + step * batch * num_units
    weight += run * weight_run
    bias_in += run * bias_run
    bias_rec += run * bias_run
    square = num_units * num_units
    r = _input(gates, bias_in, bias_rec, rows, batch, width, 0, units, num_units)
    z = _input(gates, bias_in, bias_rec, rows, batch, width, 1, units, num_units)
    n = _gate(gates, rows, batch, width, 2, units, num_units) + _bias(bias_in, 2, units, num_units)
    m = tl.zeros([BLOCK_B, BLOCK_N], tl.float32) + _bias(bias_rec, 2, units, num_units)
    h = _gate(cell, rows, batch, num_units, 0, units, num_units)
    for start in range(0, num_units, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        before = _tile(hidden, rows, batch, num_units, inner, num_units)
        w_r = _tile(weight, units, num_units, num_units, inner, num_units)
        w_z = _tile(weight + square, units, num_units, num_units, inner, num_units)
        w_m = _tile(weight + 2 * square, units, num_units, num_units, inner, num_units)
        r = _add_product(r, before, w_r, PRECISION)
        z = _add_product(z, before, w_z, PRECISION)
        m = _add_product(m, before, w_m, PRECISION)
    r, z = tl.sigmoid(r), tl.sigmoid(z)
    n = _tanh(n + r * m)
    after = n + z * (h - n)
    next_row = batch * num_units
    _put_gate(cell + next_row, rows, batch, num_units, 0, units, num_units, after)
    _put_gate(hidden + next_row, rows, batch, num_units, 0, units, num_units, after)
    if KEEP:
        _put_gate(gates, rows, batch, width, 0, units, num_units, r)
        _put_gate(gates, rows, batch, width, 1, units, num_units, z)
        _put_gate(gates, rows, batch, width, 2, units, num_units, n)
        _put_gate(extra, rows, batch, width, 2, units, num_units, m)


@triton.jit(do_not_specialize=STEP_ARGUMENTS)
def _gru_backward(
    gates, extra, cell, doutput, dhidden, weight, gates_run, hidden_run, doutput_run, weight_run, step, last, batch,
    num_units, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1).to(tl.int64)
    units = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.program_id(2) * BLOCK_B + tl.arange(0, BLOCK_B)
    width = 3 * num_units
    gates += run * gates_run + step * batch * width
    extra += run * gates_run + step * batch * width
    cell += run * hidden_run + step * batch * num_units
    doutput += run * doutput_run + step * batch * num_units
    dhidden += run * batch * num_units
    dh = _gate(doutput, rows, batch, num_units, 0, units, num_units)
    r = _gate(gates, rows, batch, width, 0, units, num_units)
    z = _gate(gates, rows, batch, width, 1, units, num_units)
    n = _gate(gates, rows, batch, width, 2, units, num_units)
    m = _gate(extra, rows, batch, width, 2, units, num_units)
    h = _gate(cell, rows, batch, num_units, 0, units, num_units)
    if step < last:
        dh += _gate(dhidden, rows, batch, num_units, 0, units, num_units)
        dh = _backward_product(
            dh, extra + batch * width, weight + run * weight_run, rows, batch, width, units, num_units, BLOCK_K,
            PRECISION,
        )  # fmt: skip
    dn = dh * (1 - z) * (1 - n * n)
    dz = dh * (h - n) * z * (1 - z)
    dr = dn * m * r * (1 - r)
    _put_gate(gates, rows, batch, width, 0, units, num_units, dr)
    _put_gate(gates, rows, batch, width, 1, units, num_units, dz)
    _put_gate(gates, rows, batch, width, 2, units, num_units, dn)
    _put_gate(extra, rows, batch, width, 0, units, num_units, dr)
    _put_gate(extra, rows, batch, width, 1, units, num_units, dz)
    _put_gate(extra, rows, batch, width, 2, units, num_units, dn * r)
    _put_gate(dhidden, rows, batch, num_units, 0, units, num_units, dh * z)


def _shapes(weight: Tensor, batch: int, *, forward: bool) -> dict[str, Any]:
    """Tile sizes, as measured on an H200: narrow tiles, so that all processors have some and loads are under way.

    Rows are padded to at least a tensor core's 16. A float32 product is made of three tf32 ones, which keeps its
    precision; a single one would not.
    """
    units, exact = weight.shape[2], weight.dtype == torch.float32
    alone, whole_row = len(weight) == 1, triton.next_power_of_2(units)
    if forward and batch == 1:  # nothing to multiply by a matrix: every weight is read at once and used once
        tile = {"BLOCK_B": 1, "BLOCK_N": max(1, 4096 // whole_row), "BLOCK_K": whole_row}
        return {**tile, "PRECISION": "ieee", "num_warps": 4, "num_stages": 1}
    return {
        "BLOCK_B": max(16, min(64, triton.next_power_of_2(batch))),
        "BLOCK_N": 16 if forward or alone else 32,
        "BLOCK_K": 64 if exact or (forward and units <= 1024) else 128,
        "PRECISION": "tf32x3" if exact else "tf32",
        "num_warps": 2 if forward else 4,
        "num_stages": 3 if forward or alone else 4,
    }


def _grid(runs: int, units: int, batch: int, shapes: dict[str, Any]) -> tuple[int, int, int]:
    return triton.cdiv(units, shapes["BLOCK_N"]), runs, triton.cdiv(batch, shapes["BLOCK_B"])


def lstm_forward(
    gates: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor, bias_in: Tensor, bias_rec: Tensor, *, batch: int,
    time: int, keep: bool,
) -> None:  # fmt: skip
    """Run a layer over `time` steps; with `keep`, `gates` is left ready for `lstm_backward`."""
    runs, _, units = weight.shape
    shapes = _shapes(weight, batch, forward=True)
    for step in range(time):
        _lstm_forward[_grid(runs, units, batch, shapes)](
            gates, hidden, cell, weight, bias_in, bias_rec, gates.stride(0), hidden.stride(0), weight.stride(0),
            bias_in.stride(0), step, batch, units, KEEP=keep, **shapes,
        )  # fmt: skip


def lstm_backward(
    gates: Tensor, cell: Tensor, doutput: Tensor, dcell: Tensor, weight: Tensor, *, batch: int, time: int
) -> None:
    """Turn the activations in `gates` into the gradients of the gates' inputs, last step first."""
    runs, _, units = weight.shape
    shapes = _shapes(weight, batch, forward=False)
    for step in reversed(range(time)):
        _lstm_backward[_grid(runs, units, batch, shapes)](
            gates, cell, doutput, dcell, weight, gates.stride(0), cell.stride(0), doutput.stride(0), weight.stride(0),
            step, time - 1, batch, units, **shapes,
        )  # fmt: skip


def gru_forward(
    gates: Tensor, extra: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor, bias_in: Tensor, bias_rec: Tensor, *,
    batch: int, time: int, keep: bool,
) -> None:  # fmt: skip
    """Run a layer over `time` steps; with `keep`, `gates` and `extra` are left ready for `gru_backward`."""
    runs, _, units = weight.shape
    shapes = _shapes(weight, batch, forward=True)
    for step in range(time):
        _gru_forward[_grid(runs, units, batch, shapes)](
            gates, extra, hidden, cell, weight, bias_in, bias_rec, gates.stride(0), hidden.stride(0),
            weight.stride(0), bias_in.stride(0), step, batch, units, KEEP=keep, **shapes,
        )  # fmt: skip


def gru_backward(
    gates: Tensor, extra: Tensor, cell: Tensor, doutput: Tensor, dhidden: Tensor, weight: Tensor, *, batch: int,
    time: int,
) -> None:  # fmt: skip
    """Turn `gates` into the gradients of the input projections and `extra` into those of the recurrent ones."""
    runs, _, units = weight.shape
    shapes = _shapes(weight, batch, forward=False)
    for step in reversed(range(time)):
        _gru_backward[_grid(runs, units, batch, shapes)](
            gates, extra, cell, doutput, dhidden, weight, gates.stride(0), cell.stride(0), doutput.stride(0),
            weight.stride(0), step, time - 1, batch, units, **shapes,
        )  # fmt: skip
