"""Recurrent highway networks of many runs, in the layout of `recurrence`: one launch per micro-layer and time step.

A network of depth D has D tensors each of `gates`, `hidden` and `cell`, one for each micro-layer: its activations and
its state after each step. The last one's state is the output, and what the first one starts the next step from.
"""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from nnrs.training.kernels.recurrence import (
    STEP_ARGUMENTS,
    add_product,
    add_product_after,
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
def _highway_forward(
    gates, hidden, cell, after, after_cell, weight, bias, gates_run, hidden_run, weight_run, bias_run, step, batch,
    num_units, PROJECTED: tl.constexpr, KEEP: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    run, units, rows = own_tile(BLOCK_B, BLOCK_N)
    width = 2 * num_units
    gates += run * gates_run + step * batch * width
    place = run * hidden_run + step * batch * num_units
    weight += run * weight_run
    bias += run * bias_run
    s = load_gate(cell + place, rows, batch, num_units, 0, units, num_units)
    h = tl.zeros([BLOCK_B, BLOCK_N], tl.float32) + load_bias(bias, 0, units, num_units)
    t = tl.zeros([BLOCK_B, BLOCK_N], tl.float32) + load_bias(bias, 1, units, num_units)
    if PROJECTED:
        h += load_gate(gates, rows, batch, width, 0, units, num_units)
        t += load_gate(gates, rows, batch, width, 1, units, num_units)
    for start in range(0, num_units, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        before = load_tile(hidden + place, rows, batch, num_units, inner, num_units)
        w_h = load_tile(weight, units, num_units, num_units, inner, num_units)
        w_t = load_tile(weight + num_units * num_units, units, num_units, num_units, inner, num_units)
        h = add_product(h, before, w_h, PRECISION)
        t = add_product(t, before, w_t, PRECISION)
    h, t = tanh(h), tl.sigmoid(t)
    s += t * (h - s)
    store_gate(after_cell + place, rows, batch, num_units, 0, units, num_units, s)
    store_gate(after + place, rows, batch, num_units, 0, units, num_units, s)
    if KEEP:
        store_gate(gates, rows, batch, width, 0, units, num_units, h)
        store_gate(gates, rows, batch, width, 1, units, num_units, t)


@triton.jit(do_not_specialize=STEP_ARGUMENTS)
def _highway_backward(
    gates, cell, doutput, dstate, after_gates, after_weight, gates_run, hidden_run, doutput_run, weight_run, step,
    ahead, last, batch, num_units, OUTPUT: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    run, units, rows = own_tile(BLOCK_B, BLOCK_N)
    width = 2 * num_units
    gates += run * gates_run + step * batch * width
    cell += run * hidden_run + step * batch * num_units
    dstate += run * batch * num_units
    h = load_gate(gates, rows, batch, width, 0, units, num_units)
    t = load_gate(gates, rows, batch, width, 1, units, num_units)
    s = load_gate(cell, rows, batch, num_units, 0, units, num_units)
    ds = tl.zeros([BLOCK_B, BLOCK_N], tl.float32)
    if OUTPUT:
        doutput += run * doutput_run + step * batch * num_units
        ds = load_gate(doutput, rows, batch, num_units, 0, units, num_units)
    if ahead <= last:
        ds += load_gate(dstate, rows, batch, num_units, 0, units, num_units)
        ds = add_product_after(
            ds, after_gates + run * gates_run + ahead * batch * width, after_weight + run * weight_run, rows, batch,
            width, units, num_units, BLOCK_K, PRECISION,
        )  # fmt: skip
    store_gate(gates, rows, batch, width, 0, units, num_units, ds * t * (1 - h * h))
    store_gate(gates, rows, batch, width, 1, units, num_units, ds * (h - s) * t * (1 - t))
    store_gate(dstate, rows, batch, num_units, 0, units, num_units, ds * (1 - t))


def states_before(states: Sequence[Tensor], batch: int) -> list[Tensor]:
    """For each micro-layer the states that it starts from, in the order of the steps."""
    return [states[-1], *(state[:, batch:] for state in states[:-1])]


def highway_forward(
    gates: Sequence[Tensor], hidden: Sequence[Tensor], cell: Sequence[Tensor], weights: Sequence[Tensor],
    biases: Sequence[Tensor], *, batch: int, time: int, keep: bool,
) -> None:  # fmt: skip
    """Run the network over `time` steps; with `keep`, `gates` are left ready for `highway_backward`.

    Only the first of `gates` holds input projections; without `keep` no other is looked at.
    """
    runs, _, units = weights[0].shape
    shapes = tile_shapes(weights[0], batch, forward=True)
    befores = states_before(hidden, batch), states_before(cell, batch)
    for step in range(time):
        for depth, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            kept = gates[depth] if keep else gates[0]
            _highway_forward[grid(runs, units, batch, shapes)](
                kept, befores[0][depth], befores[1][depth], hidden[depth][:, batch:], cell[depth][:, batch:], weight,
                bias, kept.stride(0), hidden[0].stride(0), weight.stride(0), bias.stride(0), step, batch, units,
                PROJECTED=depth == 0, KEEP=keep, **shapes,
            )  # fmt: skip


def highway_backward(
    gates: Sequence[Tensor], cell: Sequence[Tensor], doutput: Tensor, dstate: Tensor, weights: Sequence[Tensor], *,
    batch: int, time: int,
) -> None:  # fmt: skip
    """Turn the activations in `gates` into the gradients of what the gates were given, last step first."""
    runs, _, units = weights[0].shape
    shapes = tile_shapes(weights[0], batch, forward=False)
    befores, deepest = states_before(cell, batch), len(weights) - 1
    for step in reversed(range(time)):
        for depth in reversed(range(len(weights))):
            last = depth == deepest
            after, ahead = (0, step + 1) if last else (depth + 1, step)
            _highway_backward[grid(runs, units, batch, shapes)](
                gates[depth], befores[depth], doutput, dstate, gates[after], weights[after], gates[0].stride(0),
                cell[0].stride(0), doutput.stride(0), weights[0].stride(0), step, ahead, time - 1, batch, units,
                OUTPUT=last, **shapes,
            )  # fmt: skip
