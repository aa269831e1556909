"""What follows the output layer, for every run: the loss and its gradient in one go, and drawing a prediction."""

import triton
import triton.language as tl
from torch import Tensor

# A row is read twice, the second time from the cache: keeping it in registers is slower.
BLOCK, WARPS = 1024, 4


@triton.jit
def _normaliser(logits, bias, vocab, BLOCK: tl.constexpr):
    """The log of the sum of exponentials of a row, in one reading."""
    highest = tl.full([BLOCK], -3.4028234663852886e38, tl.float32)  # not -inf, whose differences are NaN
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, vocab, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < vocab
        values = tl.load(logits + columns, mask=inside, other=-float("inf")).to(tl.float32)
        values += tl.load(bias + columns, mask=inside, other=0.0)
        higher = tl.maximum(highest, values)
        total = total * tl.exp(highest - higher) + tl.exp(values - higher)
        highest = higher
    top = tl.max(highest, 0)
    return top + tl.log(tl.sum(total * tl.exp(highest - top), 0))


@triton.jit
def _cross_entropy(
    logits, bias, targets, losses, weight, logits_run, bias_run, targets_run, losses_run, vocab, row_width,
    GRADIENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    run, row = tl.program_id(1).to(tl.int64), tl.program_id(0)
    logits += run * logits_run + row.to(tl.int64) * row_width
    bias += run * bias_run
    target = tl.load(targets + run * targets_run + row)
    scored = target >= 0
    wanted = tl.maximum(target, 0)
    gold = tl.load(logits + wanted).to(tl.float32) + tl.load(bias + wanted)
    log_total = _normaliser(logits, bias, vocab, BLOCK)
    tl.store(losses + run * losses_run + row, tl.where(scored, log_total - gold, 0.0))
    if GRADIENT:
        for start in range(0, row_width, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            inside = columns < vocab
            values = tl.load(logits + columns, mask=inside, other=-float("inf")).to(tl.float32)
            values += tl.load(bias + columns, mask=inside, other=0.0)
            slope = tl.exp(values - log_total) - tl.where(columns == target, 1.0, 0.0)
            slope = tl.where(scored & inside, slope * weight, 0.0)
            tl.store(logits + columns, slope.to(logits.dtype.element_ty), mask=columns < row_width)


def cross_entropy(
    logits: Tensor, bias: Tensor, targets: Tensor, losses: Tensor, *, gradient_weight: float | None = None
) -> None:
    """The negative log-likelihood of each target; with a weight, `logits` becomes the weighted gradient, in place.

    Rows of `logits` may be padded beyond the vocabulary (the width of `bias`); a negative target does not count.
    """
    runs, rows, row_width = logits.shape
    _cross_entropy[(rows, runs)](
        logits,
        bias,
        targets,
        losses,
        gradient_weight or 0.0,
        logits.stride(0),
        bias.stride(0),
        targets.stride(0),
        losses.stride(0),
        bias.shape[1],
        row_width,
        GRADIENT=gradient_weight is not None,
        BLOCK=BLOCK,
        num_warps=WARPS,
    )


@triton.jit(do_not_specialize=["num_inputs"])
def _predict(
    logits, bias, positions, uniform, greedy, inputs, changed, wanted, logits_run, bias_run, uniform_run, num_inputs,
    inputs_run, vocab, row_width, BLOCK: tl.constexpr,
):  # fmt: skip
    run, row = tl.program_id(1).to(tl.int64), tl.program_id(0)
    position = tl.load(positions + run * tl.num_programs(0) + row)
    if (position < num_inputs) & (tl.load(wanted + run) != 0):
        logits += run * logits_run + row.to(tl.int64) * row_width
        bias += run * bias_run
        log_total = _normaliser(logits, bias, vocab, BLOCK)
        is_greedy = tl.load(greedy + run) != 0
        draw = tl.load(uniform + run * uniform_run + position)
        best = -float("inf")
        reached = 0.0
        token = vocab - 1
        found = 0
        for start in range(0, vocab, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            inside = columns < vocab
            values = tl.load(logits + columns, mask=inside, other=-float("inf")).to(tl.float32)
            values += tl.load(bias + columns, mask=inside, other=0.0)
            if is_greedy:
                top = tl.max(values, 0)
                first = tl.min(tl.where(values == top, columns, vocab), 0)
                token = tl.where(top > best, first, token)
                best = tl.maximum(best, top)
            else:
                ends = reached + tl.cumsum(tl.where(inside, tl.exp(values - log_total), 0.0), 0)
                first = tl.min(tl.where(inside & (ends > draw), columns, vocab), 0)
                token = tl.where((found == 0) & (first < vocab), first, token)
                found = tl.where(first < vocab, 1, found)
                reached = tl.max(tl.where(inside, ends, 0.0), 0)
        place = inputs + run * inputs_run + position
        if tl.load(place) != token:
            tl.store(changed + run, 1)
        tl.store(place, token.to(tl.int64))


def predict(
    logits: Tensor,
    bias: Tensor,
    positions: Tensor,
    uniform: Tensor,
    greedy: Tensor,
    wanted: Tensor,
    inputs: Tensor,
    changed: Tensor,
) -> None:
    """Write ŷ into `inputs[r, positions[r, i]]`, from the logits of row i; says in `changed[r]` if any is new.

    ŷ is the token on which `uniform[r, position]` falls in the cumulative softmax, or the likeliest where `greedy`.
    Positions one past the end are padding; runs not `wanted` are left as they are.
    """
    runs, rows, row_width = logits.shape
    _predict[(rows, runs)](
        logits,
        bias,
        positions,
        uniform,
        greedy,
        inputs,
        changed,
        wanted,
        logits.stride(0),
        bias.stride(0),
        uniform.stride(0),
        inputs.shape[1],
        inputs.stride(0),
        bias.shape[1],
        row_width,
        BLOCK=BLOCK,
        num_warps=WARPS,
    )
