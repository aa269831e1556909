"""Clipping and the optimiser's step over all parameters of every run at once, as `torch.optim` has them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
BETAS, EPSILON, DECAY = (0.9, 0.999), 1e-8, 0.01  # torch.optim.AdamW's


@triton.jit
def _squares(gradients, sums, count, BLOCK: tl.constexpr):
    run, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    columns = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(gradients + run * count + columns, mask=columns < count, other=0.0).to(tl.float32)
    tl.store(sums + run * tl.num_programs(0) + block, tl.sum(values * values, 0))


def gradient_norms(gradients: Tensor) -> Tensor:
    """The norm of each run's gradient, (runs,) in float32; added up in a fixed order."""
    runs, count = gradients.shape
    blocks = triton.cdiv(count, BLOCK)
    sums = torch.empty(runs, blocks, device=gradients.device)
    _squares[(blocks, runs)](gradients, sums, count, BLOCK=BLOCK, num_warps=4)
    return sums.sum(1).sqrt()


@triton.jit
def _step(
    parameters, rounded, gradients, first_moment, second_moment, coefficients, rates, corrections, active, count,
    decayed_count, BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr, DECAY: tl.constexpr,
    ADAM: tl.constexpr, ROUND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    run, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    if tl.load(active + run) != 0:
        columns = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = columns < count
        place = run * count + columns
        values = tl.load(parameters + place, mask=inside, other=0.0)
        gradient = tl.load(gradients + place, mask=inside, other=0.0).to(tl.float32) * tl.load(
            coefficients + run
        )
        rate = tl.load(rates + run)
        if ADAM:
            first = BETA1 * tl.load(first_moment + place, mask=inside, other=0.0) + (1 - BETA1) * gradient
            second = tl.load(second_moment + place, mask=inside, other=0.0)
            second = BETA2 * second + (1 - BETA2) * gradient * gradient
            tl.store(first_moment + place, first, mask=inside)
            tl.store(second_moment + place, second, mask=inside)
            values *= tl.where(columns < decayed_count, 1.0 - rate * DECAY, 1.0)
            unbiased = tl.sqrt(second) / tl.sqrt(tl.load(corrections + 1))
            values -= rate / tl.load(corrections) * first / (unbiased + EPSILON)
        else:
            values -= rate * gradient
        tl.store(parameters + place, values, mask=inside)
        if ROUND:
            tl.store(rounded + place, values.to(rounded.dtype.element_ty), mask=inside)


def optimizer_step(
    parameters: Tensor,
    rounded: Tensor,
    gradients: Tensor,
    moments: tuple[Tensor, Tensor] | None,
    coefficients: Tensor,
    rates: Tensor,
    active: Tensor,
    steps: Tensor,
    decayed_count: int,
) -> None:
    """SGD, or AdamW where there are moments, on gradients times `coefficients`; `rounded` follows the parameters.

    Runs that are not `active` stay as they are. `steps` is how many were made before; weights decay (AdamW) up to
    `decayed_count`.
    """
    runs, count = parameters.shape
    first, second = moments or (parameters, parameters)
    corrections = coefficients
    if moments:  # in float64: 0.999^n is near 1
        number = (steps + 1).double()
        corrections = torch.stack([1.0 - beta**number for beta in BETAS]).float()
    _step[(triton.cdiv(count, BLOCK), runs)](
        parameters,
        rounded,
        gradients,
        first,
        second,
        coefficients,
        rates,
        corrections,
        active,
        count,
        decayed_count,
        BETA1=BETAS[0],
        BETA2=BETAS[1],
        EPSILON=EPSILON,
        DECAY=DECAY,
        ADAM=moments is not None,
        ROUND=rounded is not parameters,
        BLOCK=BLOCK,
        num_warps=8,
    )
