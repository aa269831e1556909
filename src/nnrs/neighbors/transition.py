"""The TPRS baseline: bigram counts of the training text -> neighbors (docs/paper.md#tprs).

Counts stay sparse: 2 MB on PTB, where the dense matrix would be 400 MB.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nnrs.neighbors.cache import fingerprint_of
from nnrs.neighbors.table import FORMAT, NeighborTable, checked_k, fill_empty
from nnrs.registry import look_up

# Whose row a proposal comes from: the replaced token's own (the paper's reading), or its predecessor's. Any
# token may be a predecessor, so with "previous" every row is filled; a word may then also follow itself.
ROWS: Mapping[str, bool] = {"own": False, "previous": True}


class Bigrams(NamedTuple):
    """Distinct (word, next word) pairs in order, how often each occurs, and its share of the word's row."""

    words: Int[Tensor, " pairs"]
    nexts: Int[Tensor, " pairs"]
    counts: Int[Tensor, " pairs"]
    shares: Float[Tensor, " pairs"]


def count_bigrams(
    ids: Int[Tensor, " tokens"], replaceable: Bool[Tensor, " vocab"], rows: str = "own"
) -> Bigrams:
    """The pairs that may be proposed from: the next word replaceable, and the row wanted.

    Shares are of the whole row, protected successors included, so they are transition probabilities.
    """
    every_row = look_up(ROWS, rows, "transition row")
    vocab_size, tokens = len(replaceable), ids.long()
    pairs, counts = torch.unique(tokens[:-1] * vocab_size + tokens[1:], return_counts=True)
    words, nexts = pairs // vocab_size, pairs % vocab_size
    totals = torch.zeros(vocab_size, dtype=torch.int64, device=ids.device).index_add_(0, words, counts)
    proposed = replaceable[nexts]
    if not every_row:
        proposed &= replaceable[words] & (words != nexts)  # a word in its own place replaces nothing
    shares = counts.double() / totals[words]
    return Bigrams(words[proposed], nexts[proposed], counts[proposed], shares[proposed])


def transition_table(
    ids: Int[Tensor, " tokens"],
    k: int | None,
    replaceable: Bool[Tensor, " vocab"],
    rows: str = "own",
) -> NeighborTable:
    """The k most frequent successors of each row; similarities are log probabilities.

    So at temperature 1 the softmax (Eq. 3) gives back the row's probabilities, renormalised over the k.
    With `rows="previous"`, draw with the tokens *before* those that are replaced.
    """
    k, vocab_size = checked_k(k, replaceable), len(replaceable)
    bigrams = count_bigrams(ids, replaceable, rows)
    # By row, then falling count, then id: the pairs come sorted by (row, id), and both sorts are stable.
    order = bigrams.counts.argsort(descending=True, stable=True)
    order = order[bigrams.words[order].argsort(stable=True)]
    words = bigrams.words[order]
    sizes = torch.bincount(words, minlength=vocab_size)
    slots = torch.arange(len(words), device=ids.device) - (sizes.cumsum(0) - sizes)[words]
    kept = slots < k
    table = torch.zeros(vocab_size, k, dtype=torch.int64, device=ids.device)
    similarities = torch.full((vocab_size, k), -torch.inf, dtype=torch.float32, device=ids.device)
    table[words[kept], slots[kept]] = bigrams.nexts[order][kept]
    similarities[words[kept], slots[kept]] = bigrams.shares[order][kept].log().float()
    made_from = fingerprint_of(FORMAT, "transitions", rows, k, ids, replaceable)
    return NeighborTable(fill_empty(table, similarities), similarities, made_from)


@dataclass(frozen=True, eq=False)
class TransitionRows:
    """Whole rows of bigram counts to draw from, instead of their top k."""

    starts: Int[Tensor, " bounds"]  # vocab + 1 of them: the counts that stand before each row
    nexts: Int[Tensor, " pairs"]
    ends: Int[Tensor, " pairs"]  # the running sum of all counts, row after row

    @classmethod
    def of(
        cls, ids: Int[Tensor, " tokens"], replaceable: Bool[Tensor, " vocab"], rows: str = "own"
    ) -> "TransitionRows":
        """The rows of a text; `rows` as in `transition_table`."""
        bigrams = count_bigrams(ids, replaceable, rows)
        sizes = torch.zeros(len(replaceable) + 1, dtype=torch.int64, device=ids.device)
        sizes.index_add_(0, bigrams.words + 1, bigrams.counts)
        return cls(sizes.cumsum(0), bigrams.nexts, bigrams.counts.cumsum(0))

    @cached_property
    def replaceable(self) -> Bool[Tensor, " vocab"]:
        """Which words have something to propose."""
        return self.starts[1:] > self.starts[:-1]

    def draw(
        self,
        tokens: Int[Tensor, "*shape"],
        uniform: Float[Tensor, "*shape"],
        temperature: float | Float[Tensor, ""],
    ) -> Int[Tensor, "*shape"]:
        """A successor of each token, by its count at any temperature; itself where it has none."""
        if len(self.nexts) == 0:
            return tokens.clone()
        first, last = self.starts[tokens], self.starts[tokens + 1]
        # Which of the row's occurrences: below their number, as the draw is below 1 and float64 exact here.
        occurrence = first + (uniform.double() * (last - first)).long()
        pair = torch.searchsorted(self.ends, occurrence, right=True).clamp(max=len(self.nexts) - 1)
        return torch.where(last > first, self.nexts[pair], tokens)

    def to(self, device: torch.device | str) -> "TransitionRows":
        """The same rows on another device."""
        return TransitionRows(self.starts.to(device), self.nexts.to(device), self.ends.to(device))
