"""Eq. 6 for one batch in one launch, random numbers included: a compiled training step has no time for eighty."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from nnrs.integrations.choice import Key
from nnrs.neighbors.kernel import draw_neighbor
from nnrs.philox import uniform_at
from nnrs.policies.base import Choice, InputPolicy, Rates
from nnrs.policies.functional import GRANULARITIES, capacity_for
from nnrs.seeding import Stream

BLOCK = 64


# What changes along a curriculum is compiled for once: floats always are, and these have one type at every value.
@triton.jit(do_not_specialize=["seed", "step", "rank", "batch", "time"])
def _choose(
    gold, may_change, similarities, ids, replaceable, inputs, takes_neighbor, takes_prediction, uniforms, counts,
    seed: tl.int64, step: tl.int64, rank: tl.int64, prediction_rate, neighbor_rate, temperature,
    batch: tl.int32, time: tl.int32, vocab,
    STREAM: tl.constexpr, ROWS_SHARE: tl.constexpr, STEPS_SHARE: tl.constexpr,
    K: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    count = batch * time
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    token = tl.load(gold + place, mask=inside, other=0)
    allowed = tl.load(may_change + place, mask=inside, other=0) != 0
    # Draws in the order of `InputPolicy.choose`; each call starts at a new word of two numbers.
    draw_rows = 1 if ROWS_SHARE else batch
    draw_steps = 1 if STEPS_SHARE else time
    shared = draw_rows * draw_steps
    own = (0 if ROWS_SHARE else place // time) * draw_steps + (0 if STEPS_SHARE else place % time)
    second = (3 * shared + 1) // 2 * 2
    third = second + (count + 1) // 2 * 2
    prediction_draw = uniform_at(own, seed, STREAM, step, rank)
    neighbor_draw = uniform_at(shared + own, seed, STREAM, step, rank)
    coin = uniform_at(2 * shared + own, seed, STREAM, step, rank)
    prediction_uniform = uniform_at(second + place, seed, STREAM, step, rank)
    neighbor, possible = token, tl.zeros([BLOCK], tl.int1)
    if K > 0:
        row = tl.where(allowed & (token >= 0) & (token < vocab), token, 0)
        neighbor_uniform = uniform_at(third + place, seed, STREAM, step, rank)
        neighbor = draw_neighbor(similarities, ids, row, neighbor_uniform, temperature, K, BLOCK_K)
        possible = (row == token) & (tl.load(replaceable + row) != 0)
    wants_neighbor = allowed & (neighbor_draw < neighbor_rate) & possible
    wants_prediction = allowed & (prediction_draw < prediction_rate)
    neighbors = wants_neighbor & ((wants_prediction == 0) | (coin < 0.5))
    predictions = wants_prediction & (neighbors == 0)
    tl.store(inputs + place, tl.where(neighbors, neighbor, token), mask=inside)
    tl.store(takes_neighbor + place, neighbors, mask=inside)
    tl.store(takes_prediction + place, predictions, mask=inside)
    tl.store(uniforms + place, prediction_uniform, mask=inside)
    tl.atomic_add(counts, tl.sum(allowed.to(tl.int64), 0))
    tl.atomic_add(counts + 1, tl.sum(predictions.to(tl.int64), 0))
    tl.atomic_add(counts + 2, tl.sum((neighbors & (neighbor != token)).to(tl.int64), 0))


def choose(
    policy: InputPolicy, gold: Tensor, may_change: Tensor, rates: Rates, key: Key, counts: Tensor
) -> tuple[Tensor, Choice]:
    """What `nnrs.integrations.choice.choose` gives, for a policy that `Settings` made.

    `gold` and `may_change` are contiguous. The neighbors of the choice are gold where it takes none.
    """
    batch, time = gold.shape
    rows_share, steps_share = GRANULARITIES[policy.reading.granularity]
    table, k = policy.table, policy.table.k if policy.table else 0
    inputs, uniforms = torch.empty_like(gold), torch.empty_like(gold, dtype=torch.float32)
    takes_neighbor, takes_prediction = torch.empty_like(may_change), torch.empty_like(may_change)
    _choose[(triton.cdiv(batch * time, BLOCK),)](
        gold,
        may_change,
        table.similarities.contiguous() if table else None,
        table.ids.contiguous() if table else None,
        policy.replaceable,
        inputs,
        takes_neighbor,
        takes_prediction,
        uniforms,
        counts,
        key.seed,
        key.step,
        key.rank,
        float(rates.prediction),  # whole numbers would be compiled in
        float(rates.neighbor),
        float(policy.temperature),
        batch,
        time,
        len(policy.replaceable),
        STREAM=int(Stream.DRAWS),
        ROWS_SHARE=rows_share,
        STEPS_SHARE=steps_share,
        K=k,
        BLOCK_K=triton.next_power_of_2(k),
        BLOCK=BLOCK,
        num_warps=2,
    )
    choice = Choice(
        gold=gold,
        targets=gold,
        neighbors=inputs,
        takes_neighbor=takes_neighbor,
        takes_prediction=takes_prediction,
        prediction_uniform=uniforms,
        prediction_capacity=capacity_for(rates.prediction, policy.reading.granularity, batch, time),
    )
    return inputs, choice
