"""Eq. 6 for one batch in one launch, random numbers included: a compiled training step has no time for eighty."""

import math

import torch
import triton
from torch import Tensor

from nnrs.integrations.choice import Key
from nnrs.philox import choose_inputs
from nnrs.policies.base import Choice, InputPolicy, Rates
from nnrs.policies.functional import GRANULARITIES, capacity_for, draw_shape
from nnrs.seeding import Stream

BLOCK = 64


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
    choose_inputs[(triton.cdiv(batch * time, BLOCK),)](
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
        (key.seed + 2**63) % 2**64 - 2**63,  # the same 64 bits, with a sign
        key.step,
        key.rank,
        rates.prediction,
        rates.neighbor,
        float(policy.temperature),  # a whole number would be compiled in
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
    draws = math.prod(draw_shape(policy.reading.granularity, batch, time))
    choice = Choice(
        gold=gold,
        targets=gold,
        neighbors=inputs,
        takes_neighbor=takes_neighbor,
        takes_prediction=takes_prediction,
        prediction_uniform=uniforms,
        prediction_capacity=capacity_for(rates.prediction, draws, batch * time // draws),
    )
    return inputs, choice
