"""Vectors from the training text itself, so that everything works with no download.

Positive pointwise mutual information of words and their contexts, reduced by a truncated SVD (Levy, Goldberg and
Dagan 2015). Contexts are few places away and know their side: words are then alike that can stand in for each
other ("is", "was"), and not merely words of one subject ("war", "after"), which is what a replacement needs. The
words x contexts matrix is never held whole: it is made block by block, twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nnrs.arguments import is_whole
from nnrs.embeddings.projection import principal_axes
from nnrs.embeddings.vectors import Embeddings
from nnrs.errors import DataError
from nnrs.wording import counted

CONTEXTS = 1_000  # the most frequent words serve as contexts, once on the left and once on the right
SMOOTHING = 0.75  # lifts the rare contexts' share, which PMI otherwise rewards too much
MIN_COUNT = 5  # times that a word with a vector occurs
BLOCK = 4_096  # words whose row is held at a time: 32 MB


def vectors_from_text(
    ids: Int[Tensor, " tokens"],
    vocab_size: int,
    *,
    dim: int = 100,
    window: int = 2,
    min_count: int = MIN_COUNT,
) -> Embeddings:
    """Vectors of at most `dim` numbers from the words that stand within `window` places of each other.

    Words that occur fewer than `min_count` times get none: theirs would be noise. Nothing here is random. Where fewer
    numbers than `dim` would do, some of those beyond are the rounding of float32, too small to change a cosine.
    """
    text = _Text.of(_checked(ids, vocab_size), vocab_size, window, min_count)
    if not bool(text.frequent.any()):
        raise DataError(
            f"no word occurs {counted(min_count, 'time')} in a text of {counted(len(ids), 'token')}. "
            "Use more text, or a vector file."
        )
    width = 2 * len(text.contexts)
    gram = torch.zeros(width, width, dtype=torch.float64)
    for _, rows in text.blocks():
        gram += rows.T @ rows
    values, axes = principal_axes(gram, dim)
    # M = U S Vᵀ with S² the eigenvalues, so the usual rows U √S are M V / √S.
    reduce = (axes * values**-0.25).float()
    vectors = torch.zeros(vocab_size, len(values), dtype=torch.float32)
    for words, rows in text.blocks():
        vectors[words] = rows @ reduce
    return Embeddings(vectors, source="corpus")


def _checked(ids: Any, vocab_size: int) -> Int[Tensor, " tokens"]:
    """`ids` as int64 on the CPU, if each is that of a word."""
    if not isinstance(ids, Tensor):
        got = type(ids).__name__
    elif ids.ndim != 1 or not is_whole(ids):
        got = f"{ids.dtype} of the shape {tuple(ids.shape)}"
    else:
        tokens = ids.cpu().long()
        if not len(tokens) or (tokens.min() >= 0 and tokens.max() < vocab_size):
            return tokens
        got = f"ids from {tokens.min()} to {tokens.max()}"
    raise DataError(
        f"ids must be a one-dimensional tensor of whole numbers from 0 to {vocab_size - 1}, got {got}."
    )


@dataclass(frozen=True, eq=False)
class _Text:
    """A text prepared for counting: where each word stands, and how many pairs it is part of."""

    tokens: Int[Tensor, " tokens"]
    places: Int[Tensor, " tokens"]  # positions in the text, ordered by the word that stands there
    starts: Int[Tensor, " bounds"]  # where each word's positions start among them
    contexts: Int[Tensor, " contexts"]
    pairs: Float[Tensor, " vocab"]  # (word, neighbor within the window) pairs of each word
    frequent: Bool[Tensor, " vocab"]
    window: int

    @classmethod
    def of(cls, tokens: Int[Tensor, " tokens"], vocab_size: int, window: int, min_count: int) -> "_Text":
        counts = torch.bincount(tokens, minlength=vocab_size)
        place = torch.arange(len(tokens))
        within = place.clamp(max=window) + place.flip(0).clamp(max=window)  # fewer at both ends of the text
        by_count = counts.argsort(descending=True, stable=True)
        return cls(
            tokens=tokens,
            places=tokens.argsort(stable=True),
            starts=torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]),
            contexts=by_count[: min(CONTEXTS, int((counts > 0).sum()))],
            pairs=torch.bincount(tokens, weights=within.double(), minlength=vocab_size),
            frequent=counts >= max(min_count, 1),
            window=window,
        )

    def blocks(self) -> Iterator[tuple[Int[Tensor, " block"], Float[Tensor, "block contexts"]]]:
        """The PPMI matrix: some words at a time, and their rows."""
        smoothed = self.pairs**SMOOTHING
        shares = (smoothed / smoothed.sum())[self.contexts].float().repeat(
            2
        ) / 2  # of each context on each side
        for words in torch.split(torch.arange(len(self.pairs)), BLOCK):
            kept = self.frequent[words]
            if bool(kept.any()):
                # log of P(word, context) / P(word) P(context); log 0 is -inf, which the clamp makes 0.
                expected = self.pairs[words].float()[:, None] * shares
                rows = self._counts(words).div_(expected).log_().clamp_(min=0.0)
                yield words[kept], rows[kept]

    def _counts(self, words: Int[Tensor, " block"]) -> Float[Tensor, "block contexts"]:
        """How often each context stands left, and right, within the window of each word of a run of words."""
        first, side = int(words[0]), len(self.contexts)
        width = 2 * side
        column = torch.full((len(self.pairs),), -1).index_copy_(0, self.contexts, torch.arange(side))
        counts = torch.zeros(len(words) * width, dtype=torch.float32)
        places = self.places[self.starts[first] : self.starts[first + len(words)]]
        for offset in (*range(-self.window, 0), *range(1, self.window + 1)):
            inside = places[(places + offset >= 0) & (places + offset < len(self.tokens))]
            columns = column[self.tokens[inside + offset]]
            cells = (self.tokens[inside] - first) * width + columns + (side if offset > 0 else 0)
            cells = cells[columns >= 0]
            counts.index_add_(0, cells, torch.ones(len(cells), dtype=torch.float32))
        return counts.view(len(words), width)
