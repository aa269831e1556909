"""Rare and frequent words apart: the tenths of a training text."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

DECILES = 10


def frequency_deciles(counts: Float[Tensor, " vocab"]) -> Int[Tensor, " vocab"]:
    """The tenth of the training text that each word belongs to, 0 the most frequent words, 9 the rarest.

    Words are lined up from the most to the least frequent (ties by id); a word belongs to the tenth in which the
    middle of its occurrences falls. So each tenth has about as many tokens to be scored, and the last one most words.

    >>> frequency_deciles(torch.tensor([50.0, 25.0, 5.0, 5.0, 5.0, 5.0, 5.0]).double())
    tensor([2, 6, 7, 8, 8, 9, 9])
    """
    order = counts.argsort(descending=True, stable=True)
    ends = counts[order].double().cumsum(0)
    middles = (ends - counts[order] / 2) / ends[-1].clamp(min=1.0)
    deciles = torch.empty_like(order)
    deciles[order] = (middles * DECILES).long().clamp(max=DECILES - 1)
    return deciles


def decile_perplexities(
    nats: Float[Tensor, " tokens"], targets: Int[Tensor, " tokens"], deciles: Int[Tensor, " vocab"]
) -> Float[Tensor, " deciles"]:
    """The perplexity of the tokens of each tenth; NaN where there is none."""
    places = deciles[targets.long()]
    totals = torch.zeros(DECILES, dtype=torch.float64).index_add_(0, places, nats.double())
    return (totals / torch.bincount(places, minlength=DECILES)).exp()
