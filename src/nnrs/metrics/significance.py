"""How sure a mean is: bootstrap over sentences."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from nnrs.seeding import Random, Stream

RESAMPLES = 1000
LEVEL = 0.95


def resampled_means(
    rows: Float[Tensor, "n values"], *, resamples: int = RESAMPLES, seed: int = 0
) -> Float[Tensor, "resamples values"]:
    """Column means of as many samples of n rows with replacement; columns of a row stay together."""
    count = len(rows)
    means = []
    for first in range(0, resamples, 50):  # a block at a time: n x 50 indices in memory
        some = min(50, resamples - first)
        drawn = Random(seed, Stream.DRAWS, first).uniform(some, count).double() * count
        picks = torch.zeros(some, count, dtype=rows.dtype).scatter_add_(
            1, drawn.long().clamp(max=count - 1), torch.ones(some, count, dtype=rows.dtype)
        )
        means.append(picks @ rows / count)
    return torch.cat(means)


def bootstrap_interval(
    rows: Float[Tensor, "n values"],
    statistic: Callable[[Tensor], Tensor] = lambda means: means,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Float[Tensor, " out"], Float[Tensor, " out"]]:
    """The ends of the percentile interval of a statistic of column means; it maps (..., values) to (..., out).

    >>> low, high = bootstrap_interval(torch.tensor([[1.0], [1.0], [1.0]]).double())
    >>> low.item(), high.item()
    (1.0, 1.0)
    """
    values = statistic(resampled_means(rows, resamples=resamples, seed=seed))
    tail = (1.0 - LEVEL) / 2
    ends = torch.quantile(values, torch.tensor([tail, 1.0 - tail], dtype=values.dtype), dim=0)
    return ends[0], ends[1]
