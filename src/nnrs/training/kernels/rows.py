"""Rows of every run's matrices: gathered by id, dropped out, and their gradients added up again."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _keep(bits, threshold, scale, values):
    """Dropout, as `Random.dropout_mask` has it: 16 random bits below the threshold drop a value."""
    return tl.where(bits >= threshold, values * scale, 0.0)


@triton.jit(do_not_specialize=["batch", "time", "place"])
def _rows(
    out, source, ids, bits, thresholds, scales, out_run, source_run, ids_run, bits_run, place, batch, time, width,
    GATHER: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    run, row = tl.program_id(1).to(tl.int64), tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    picked = row.to(tl.int64)
    if GATHER:
        picked = tl.load(ids + run * ids_run + row)
    values = tl.load(source + run * source_run + picked * width + columns, mask=inside, other=0.0).to(
        tl.float32
    )
    if DROP:
        # Masks are drawn as (place, batch, time, width); rows here are time-major.
        first = ((place * batch + row % batch) * time + row // batch) * width
        drawn = tl.load(bits + run * bits_run + first + columns, mask=inside, other=0)
        values = _keep(drawn, tl.load(thresholds + run), tl.load(scales + run), values)
    tl.store(out + run * out_run + row * width + columns, values.to(out.dtype.element_ty), mask=inside)


class Dropout:
    """The dropout of every run, for one window: random bits drawn for all places, each run's rate."""

    def __init__(self, bits: Tensor, thresholds: Tensor, scales: Tensor) -> None:
        self.bits, self.thresholds, self.scales = bits, thresholds, scales

    def of_runs(self, runs: slice) -> "Dropout":
        """The dropout of some runs."""
        return Dropout(self.bits[runs], self.thresholds[runs], self.scales[runs])


def copy_rows(
    out: Tensor,
    source: Tensor,
    ids: Tensor | None = None,
    dropout: Dropout | None = None,
    *,
    place: int = 0,
    batch: int = 1,
    time: int = 1,
) -> None:
    """`out[r, i] = source[r, ids[r, i]]` (or `source[r, i]`), times the dropout mask of one place."""
    runs, count, width = out.shape
    bits = out if dropout is None else dropout.bits
    _rows[(count, runs)](
        out,
        source,
        out if ids is None else ids,
        bits,
        bits if dropout is None else dropout.thresholds,
        bits if dropout is None else dropout.scales,
        out.stride(0),
        source.stride(0),
        0 if ids is None else ids.stride(0),
        bits.stride(0),
        place,
        batch,
        time,
        width,
        GATHER=ids is not None,
        DROP=dropout is not None,
        BLOCK=triton.next_power_of_2(width),
        num_warps=4,
    )


@triton.jit(do_not_specialize=["count"])
def _add_rows(
    gradient, changes, order, ids, wanted, gradient_run, changes_run, count, width, BLOCK: tl.constexpr
):
    run, first = tl.program_id(1).to(tl.int64), tl.program_id(0)
    ids += run * count
    order += run * count
    own = tl.load(ids + first)
    fresh = tl.load(ids + tl.maximum(first - 1, 0)) != own
    # The first of equal ids adds them all, in order.
    if ((first == 0) | fresh) & (tl.load(wanted + run) != 0):
        columns = tl.arange(0, BLOCK)
        inside = columns < width
        place = gradient + run * gradient_run + own * width + columns
        total = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        row = first
        same = own
        while same == own:
            change = changes + run * changes_run + tl.load(order + row) * width + columns
            total += tl.load(change, mask=inside, other=0.0).to(tl.float32)
            row += 1
            same = tl.load(ids + row, mask=row < count, other=-1)
        tl.store(place, total.to(gradient.dtype.element_ty), mask=inside)


def add_rows(gradient: Tensor, changes: Tensor, ids: Tensor, wanted: Tensor) -> None:
    """`gradient[r, ids[r, i]] += changes[r, i]`, always in the same order; only for the runs `wanted`."""
    ordered, order = torch.sort(ids, dim=1, stable=True)
    runs, count = ids.shape
    width = changes.shape[2]
    _add_rows[(count, runs)](
        gradient,
        changes,
        order,
        ordered,
        wanted,
        gradient.stride(0),
        changes.stride(0),
        count,
        width,
        BLOCK=triton.next_power_of_2(width),
        num_warps=4,
    )
