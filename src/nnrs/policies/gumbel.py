"""GSNS: the neighbor distribution itself is learned, through a Gumbel-softmax (Eq. 7)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nnrs.batches import Window
from nnrs.neighbors.probabilities import centroid, effective_neighbors
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.base import Choice, Embed, InputPolicy, Rates, put, take
from nnrs.policies.functional import gumbel_neighbors, positions_of
from nnrs.seeding import Random

NEVER = -1e4  # the logit of an empty slot: exp gives exactly 0, and unlike -inf it cannot make a NaN


@dataclass(eq=False, kw_only=True)
class GumbelPolicy(InputPolicy):
    """NNRS whose V×k logits start at Eq. 3 and follow the training loss.

    Only rows of tokens that the curriculum replaces get a gradient: a replaced input is the one-hot (in value)
    mixture of its neighbors' embeddings, and the rest of the window never touches the logits.
    """

    proposal: NeighborTable

    def __post_init__(self) -> None:
        super().__post_init__()
        logits = (self.proposal.similarities / self.temperature).clamp(min=NEVER)
        self.learned["neighbor_logits"] = nn.Parameter(logits)

    @property
    def logits(self) -> Float[Tensor, "vocab k"]:
        """Log α, unnormalised."""
        return self.learned["neighbor_logits"]

    def vectors(
        self, embed: Embed, inputs: Int[Tensor, "batch time"], choice: Choice
    ) -> Float[Tensor, "batch time dim"]:
        """Embeddings of `inputs`, with the straight-through mixture where a neighbor was taken."""
        vectors = embed(inputs)
        if choice.mixture_uniform is None:
            return vectors
        positions = positions_of(choice.takes_neighbor, choice.neighbor_capacity)
        rows = take(choice.gold, positions)
        uniform = choice.mixture_uniform.flatten(0, 1)[positions.clamp(max=choice.gold.numel() - 1)]
        weights = gumbel_neighbors(self.logits[rows], uniform, self.temperature)
        return put(vectors, positions, centroid(weights, embed(self.proposal.ids[rows])))

    def effective_neighbors(self) -> float:
        """exp(entropy) of the learned distribution, averaged by how often each token is met."""
        return effective_neighbors(self.logits.detach(), 1.0, self.token_weights)

    def _propose(
        self, window: Window, originals: Tensor, rates: Rates, random: Random
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        if self.proposal.k == 0:
            return originals, torch.zeros_like(originals, dtype=torch.bool), None
        uniform = random.uniform(*originals.shape, self.proposal.k)
        with torch.no_grad():  # the same winner that `vectors` will find
            slot = gumbel_neighbors(self.logits[originals], uniform, self.temperature).argmax(
                -1, keepdim=True
            )
        neighbors = self.proposal.ids[originals].gather(-1, slot).squeeze(-1)
        return neighbors, self.replaceable[originals] & self.proposal.replaceable[originals], uniform
