"""What the recurrent layers of many runs share: one launch per time step, a program per run and tile of units.

Rows are time-major: row t * batch + b. A run's weights are its own, so a time step reads each run's recurrent weights
once, which is what it costs; the pointwise part of the cell rides along. Layouts (R runs, T steps, B rows, H units):

    gates   (R, T * B, G * H)    forward: input projections -> activations; backward: -> gradients, in place
    hidden  (R, (T + 1) * B, H)  the state before the window, then after each step
    cell    the same in float32: the LSTM's cell, and the state of the others, which would otherwise be rounded at
            every step
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

STEP_ARGUMENTS = ["step", "ahead", "last", "batch"]  # a value of 1 or 16 would otherwise be compiled for


@triton.jit
def own_tile(BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr):
    """What a program of a launch on `grid` is there for: its run, its units and its rows."""
    run = tl.program_id(1).to(tl.int64)
    units = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.program_id(2) * BLOCK_B + tl.arange(0, BLOCK_B)
    return run, units, rows


@triton.jit
def tanh(x):
    """The hyperbolic tangent, of what Triton has on every device."""
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def load_tile(pointer, rows, row_count, row_stride, columns, column_count):
    """A (rows, columns) tile whose columns are contiguous; 0 outside."""
    inside = (rows < row_count)[:, None] & (columns < column_count)[None, :]
    return tl.load(pointer + rows[:, None] * row_stride + columns[None, :], mask=inside, other=0.0)


@triton.jit
def load_gate(pointer, rows, batch, width, gate, units, num_units):
    """The tile of one gate, in float32."""
    inside = (rows < batch)[:, None] & (units < num_units)[None, :]
    place = pointer + rows[:, None] * width + gate * num_units + units[None, :]
    return tl.load(place, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def store_gate(pointer, rows, batch, width, gate, units, num_units, values):
    """Write the tile of one gate, rounded to what holds it."""
    inside = (rows < batch)[:, None] & (units < num_units)[None, :]
    place = pointer + rows[:, None] * width + gate * num_units + units[None, :]
    tl.store(place, values.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def load_bias(pointer, gate, units, num_units):
    """One gate's biases, for every row."""
    return tl.load(pointer + gate * num_units + units, mask=units < num_units, other=0.0)[None, :]


@triton.jit
def add_product(total, rows, weights, PRECISION: tl.constexpr):
    """`total` and (rows, inner) times (units, inner): a product of matrices, or of a matrix and a single row."""
    if rows.shape[0] == 1:
        return total + tl.sum(rows.to(tl.float32) * weights.to(tl.float32), 1)[None, :]
    else:
        return tl.dot(rows, tl.trans(weights), total, input_precision=PRECISION)


@triton.jit
def given_input(gates, bias_in, bias_rec, rows, batch, width, gate, units, num_units):
    """What one gate is given apart from the recurrent product: the input projection and both biases."""
    given = load_gate(gates, rows, batch, width, gate, units, num_units)
    return given + (load_bias(bias_in, gate, units, num_units) + load_bias(bias_rec, gate, units, num_units))


@triton.jit
def add_product_after(
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
    """`total` and (rows, gates) of what was computed after this, times (gates, units) of the recurrent weights."""
    for start in range(0, width, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        left = load_tile(dgates, rows, batch, width, inner, width)
        right = load_tile(weight, inner, width, num_units, units, num_units)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    return total


def tile_shapes(weight: Tensor, batch: int, *, forward: bool) -> dict[str, Any]:
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


def grid(runs: int, units: int, batch: int, shapes: dict[str, Any]) -> tuple[int, int, int]:
    """Programs of a launch: tiles of units, runs, tiles of rows."""
    return triton.cdiv(units, shapes["BLOCK_N"]), runs, triton.cdiv(batch, shapes["BLOCK_B"])
