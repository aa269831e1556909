"""What a gain must be compared with: noise on the same tokens at the same rates, without the neighbors' meaning.

A method that beats teacher forcing but none of these owes its gain to noise, not neighbors (docs/paper.md#controls).
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nnrs.neighbors.cache import fingerprint_of
from nnrs.neighbors.table import NeighborTable
from nnrs.seeding import Random

BUCKET = 100  # words of neighboring frequency ranks that exchange rows in the shuffled table


@dataclass(frozen=True, eq=False)
class WordDropout:
    """Every proposal is `<unk>`."""

    replaceable: Bool[Tensor, " vocab"]
    unknown_id: int

    def draw(
        self, tokens: Int[Tensor, "*shape"], uniform: Float[Tensor, "*shape"], temperature: float
    ) -> Int[Tensor, "*shape"]:
        """`<unk>` for each token."""
        return torch.full_like(tokens, self.unknown_id)

    def to(self, device: torch.device | str) -> "WordDropout":
        """The same, on another device."""
        return replace(self, replaceable=self.replaceable.to(device))


@dataclass(frozen=True, eq=False)
class UnigramNoise:
    """Proposals follow the training frequency of the replaceable tokens; a token never proposes itself."""

    replaceable: Bool[Tensor, " vocab"]
    counts: Float[Tensor, " vocab"]  # float64, 0 where not replaceable
    cumulative: Float[Tensor, " vocab"]  # of counts, inclusive

    @classmethod
    def of(cls, counts: Float[Tensor, " vocab"], replaceable: Bool[Tensor, " vocab"]) -> "UnigramNoise":
        """The noise of these training counts."""
        counts = torch.where(replaceable, counts.double(), 0.0)
        return cls(replaceable, counts, counts.cumsum(0))

    def draw(
        self, tokens: Int[Tensor, "*shape"], uniform: Float[Tensor, "*shape"], temperature: float
    ) -> Int[Tensor, "*shape"]:
        """A token by frequency, its own share taken out: the draw steps over the token's own interval."""
        own = self.counts[tokens]
        value = uniform.double() * (self.cumulative[-1] - own)
        value = torch.where(value >= self.cumulative[tokens] - own, value + own, value)
        return torch.searchsorted(self.cumulative, value, right=True).clamp(max=len(self.counts) - 1)

    def to(self, device: torch.device | str) -> "UnigramNoise":
        """The same, on another device."""
        return UnigramNoise(self.replaceable.to(device), self.counts.to(device), self.cumulative.to(device))


def shuffled(table: NeighborTable, counts: Float[Tensor, " vocab"], random: Random) -> NeighborTable:
    """`table` with its rows exchanged among words of similar frequency: real neighbors, but another word's.

    Within each bucket of frequency ranks the rows move one place along a random cycle, so that no word keeps its
    own. A word found in the row it was given is taken out of it.
    """
    words = table.replaceable.nonzero().squeeze(1)
    if len(words) < 2:
        return table
    by_rank = words[torch.argsort(counts[words], descending=True, stable=True)]
    bucket = torch.arange(len(words)).div(BUCKET, rounding_mode="floor")
    bucket = bucket.clamp(max=max(len(words) // BUCKET - 1, 0))  # the last bucket takes the remainder
    order = torch.argsort(bucket.double() + random.uniform(len(words)).double(), stable=True)
    cycle, bucket = by_rank[order], bucket[order]
    last = torch.searchsorted(bucket, bucket, right=True) - 1  # where each bucket ends
    first = torch.searchsorted(bucket, bucket)
    here = torch.arange(len(words))
    giver = cycle[torch.where(here == last, first, here + 1)]
    ids, similarities = table.ids.clone(), table.similarities.clone()
    ids[cycle], similarities[cycle] = table.ids[giver], table.similarities[giver]
    return _without_self(ids, similarities)


def _without_self(ids: Int[Tensor, "vocab k"], similarities: Float[Tensor, "vocab k"]) -> NeighborTable:
    own = torch.arange(len(ids)).unsqueeze(1)
    similarities = similarities.masked_fill(ids == own, -torch.inf)
    order = similarities.argsort(dim=-1, descending=True, stable=True)
    ids, similarities = ids.gather(-1, order), similarities.gather(-1, order)
    ids = torch.where(similarities.isinf(), own, ids)
    return NeighborTable(ids, similarities, fingerprint_of("shuffled", ids, similarities))
