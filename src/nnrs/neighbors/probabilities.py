"""Ñ from N and τ (Eq. 3), drawing from Ñ, and the centroid w̃ (Eq. 4): tensors in, tensors out."""

import math
from numbers import Real
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.arguments import at_hand
from nnrs.errors import ConfigError

COLDEST, HOTTEST = 1e-3, 1e3  # below, only exact ties share a draw; above, cosines are uniform to 1e-3
# What may be asked for. Further out float32 would soon divide by 0 or by infinity, and nothing is left to gain: a
# cosine or a logit that is larger by 0.01 has all the mass at the least, and no more than others at the most.
LEAST, MOST = 1e-4, 1e4
BISECTIONS = 50  # halves the twenty octaves between them down to float64's own resolution


def neighbor_probabilities(
    similarities: Float[Tensor, "*rows k"], temperature: float | Float[Tensor, ""]
) -> Float[Tensor, "*rows k"]:
    """Ñ, the softmax of each row of N / τ (Eq. 3).

    Low temperatures favor the closest neighbor; high ones approach uniform over the k. A slot with similarity
    -inf is empty: its probability is 0, and a row of empty slots sums to 0.

    >>> neighbor_probabilities(torch.tensor([[0.6931, 0.0]]), temperature=1.0)
    tensor([[0.6667, 0.3333]])
    """
    known = at_hand("temperature", temperature)
    if not isinstance(known, Tensor):
        check_temperature(known)
    if similarities.shape[-1] == 0:
        return similarities.clone()
    # Written out, because torch.softmax takes four times as long on rows this short (on the CPU) and has NaN
    # for a row of empty slots. Here the two bounds make that exp(-inf) / tiny = 0.
    bounds = torch.finfo(similarities.dtype)
    highest = similarities.amax(-1, keepdim=True).clamp(min=bounds.min)
    weights = ((similarities - highest) / temperature).exp()
    return weights / weights.sum(-1, keepdim=True).clamp(min=bounds.tiny)


def check_temperature(temperature: Any) -> None:
    """Refuse what float32 cannot divide by."""
    if not is_temperature(temperature):
        raise ConfigError(
            f"temperature must be in [{LEAST:g}, {MOST:g}], got {temperature!r}. "
            "For the closest neighbor every time, use k=1."
        )


def is_temperature(value: Any) -> bool:
    """Whether a softmax can be computed at this temperature."""
    return isinstance(value, Real) and LEAST <= float(value) <= MOST


def pick(probabilities: Float[Tensor, "*rows k"], uniform: Float[Tensor, "*rows"]) -> Int[Tensor, "*rows"]:
    """The slot on which each draw from [0, 1) falls; never one with probability 0, unless all are.

    >>> pick(torch.tensor([[0.25, 0.0, 0.75]]).expand(3, 3), torch.tensor([0.2, 0.25, 0.99]))
    tensor([0, 2, 2])
    """
    # A slot of probability 0 is made to end at 0, not above any draw: a GPU sums in parallel, and may round its
    # end differently from its predecessor's. Draws are scaled by the last end, which rounding may leave on either
    # side of 1; a draw is at most 1 - 2^-24, and (1 - 2^-24) x < x in float32 too.
    ends = probabilities.cumsum(-1) * (probabilities > 0)
    draws = uniform * ends.amax(-1)
    return (ends > draws.unsqueeze(-1)).to(torch.uint8).argmax(-1)  # the first of equal maxima


def centroid(
    weights: Float[Tensor, "*rows k"], vectors: Float[Tensor, "*rows k dim"]
) -> Float[Tensor, "*rows dim"]:
    """w̃, the neighbors' vectors averaged by their probabilities (Eq. 4).

    The print also divides by k, although the weights already sum to one: see docs/paper.md#eq-4.

    >>> centroid(torch.tensor([0.75, 0.25]), torch.tensor([[4.0, 0.0], [0.0, 4.0]]))
    tensor([3., 1.])
    """
    return (weights.unsqueeze(-1) * vectors).sum(-2).to(vectors.dtype)  # no matmul: autocast would round it


def effective_neighbors(
    similarities: Float[Tensor, "vocab k"],
    temperature: float | Float[Tensor, ""],
    weights: Float[Tensor, " vocab"],
) -> float:
    """exp(entropy) of Ñ's rows, averaged by `weights` over the rows that have neighbors; 0 where none has.

    >>> effective_neighbors(torch.tensor([[0.5, 0.5], [0.9, -torch.inf]]), 1.0, torch.tensor([3.0, 1.0]))
    1.75
    """
    return _mean_perplexity(*_weighted_rows(similarities, weights), temperature)


def temperature_for(
    similarities: Float[Tensor, "vocab k"], target: float, weights: Float[Tensor, " vocab"]
) -> float:
    """The τ at which the rows have `target` effective neighbors, by bisection of log τ.

    Where no τ in [0.001, 1000] does, the end that comes closer.
    """
    rows, shares = _weighted_rows(similarities, weights)
    low, high = math.log(COLDEST), math.log(HOTTEST)
    if _mean_perplexity(rows, shares, COLDEST) >= target:
        return COLDEST
    if _mean_perplexity(rows, shares, HOTTEST) <= target:
        return HOTTEST
    for _ in range(BISECTIONS):  # the entropy of a softmax only rises with τ
        middle = (low + high) / 2
        below = _mean_perplexity(rows, shares, math.exp(middle)) < target
        low, high = (middle, high) if below else (low, middle)
    return math.exp((low + high) / 2)


def _weighted_rows(
    similarities: Float[Tensor, "vocab k"], weights: Float[Tensor, " vocab"]
) -> tuple[Float[Tensor, "rows k"], Float[Tensor, " rows"]]:
    """The rows that count, in float64, and their shares of the weight."""
    counts = (similarities > -torch.inf).any(-1) & (weights > 0)
    shares = weights[counts].double()
    return similarities[counts].double(), shares / shares.sum()


def _mean_perplexity(
    rows: Float[Tensor, "rows k"],
    shares: Float[Tensor, " rows"],
    temperature: float | Float[Tensor, ""],
) -> float:
    probabilities = neighbor_probabilities(rows, temperature)
    return float(torch.special.entr(probabilities).sum(-1).exp() @ shares)
