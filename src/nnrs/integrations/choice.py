"""What each input of a batch becomes, settled by a policy's own steps or, on a GPU, by one kernel."""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from nnrs.batches import Window
from nnrs.policies.base import Choice, InputPolicy, Rates
from nnrs.seeding import Random, Stream


class Key(NamedTuple):
    """What the draws of one forward depend on."""

    seed: int
    step: int
    rank: int


def choose(
    policy: InputPolicy,
    gold: Int[Tensor, "batch time"],
    may_change: Bool[Tensor, "batch time"],
    rates: Rates,
    key: Key,
    counts: Int[Tensor, "3"],
) -> tuple[Int[Tensor, "batch time"], Choice]:
    """A new tensor of inputs, neighbors in place and gold where a prediction is to come; and the choice behind it.

    Inputs that may change, predictions, and neighbors other than the token itself are added to `counts`.
    """
    if gold.is_cuda:
        from nnrs.integrations import kernel  # Triton is there where CUDA is

        with torch.cuda.device(gold.device):  # kernels are launched for the current one
            return kernel.choose(policy, gold, may_change, rates, key, counts)
    rows = gold.clamp(0, max(len(policy.replaceable) - 1, 0))
    known = rows == gold  # other ids, an image's placeholder say, have no neighbors
    choice = _drawn(policy, rows, rates, key)
    takes_prediction = choice.takes_prediction
    if policy.proposal and (may_change & ~known).any():
        # The same draws without neighbors, which cannot claim these.
        alone = _drawn(policy, rows, replace(rates, neighbor=0.0), key)
        takes_prediction = torch.where(known, takes_prediction, alone.takes_prediction)
    choice = replace(
        choice,
        gold=gold,
        targets=gold,
        takes_prediction=takes_prediction & may_change,
        takes_neighbor=choice.takes_neighbor & may_change & known,
    )
    counts.add_(torch.stack([may_change.sum(), *choice.replaced()]))
    return choice.inputs(gold), choice


def _drawn(policy: InputPolicy, ids: Int[Tensor, "batch time"], rates: Rates, key: Key) -> Choice:
    random = Random(key.seed, Stream.DRAWS, key.step, key.rank)
    return policy.choose(Window(inputs=ids, targets=ids, previous=ids), rates, random)
