"""Perplexity: exp of the mean negative log-likelihood (Eq. 1), over any number of batches."""

from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.batches import IGNORED
from nnrs.temperature import perplexity_of


@dataclass
class Perplexity:
    """`update` with logits and targets, then `compute`. Targets of −100 do not count."""

    nats: Tensor | float = 0.0  # on the device until it is read
    tokens: Tensor | int = 0

    def update(
        self, logits: Float[Tensor, "*shape vocab"], targets: Int[Tensor, "*shape"]
    ) -> Float[Tensor, "*shape"]:
        """Count these targets. Gives the loss of each, 0 where it does not count."""
        flat = targets.flatten()
        losses = F.cross_entropy(logits.flatten(0, -2).float(), flat, ignore_index=IGNORED, reduction="none")
        self.nats = self.nats + losses.double().sum()
        self.tokens = self.tokens + (flat != IGNORED).sum()
        return losses.view(targets.shape)

    def nats_per_token(self) -> float:
        """The mean negative log-likelihood."""
        return float(self.nats) / int(self.tokens)

    def compute(self) -> float:
        """Exp of `nats_per_token`; inf where it overflows."""
        return perplexity_of(self.nats_per_token())


def perplexity(logits: Float[Tensor, "*shape vocab"], targets: Int[Tensor, "*shape"]) -> float:
    """The perplexity of one batch.

    >>> import torch
    >>> round(perplexity(torch.zeros(2, 3, 10), torch.zeros(2, 3, dtype=torch.long)), 4)  # uniform over 10
    10.0
    """
    metric = Perplexity()
    metric.update(logits, targets)
    return metric.compute()
