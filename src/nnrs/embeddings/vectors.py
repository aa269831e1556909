"""Embeddings: one vector for each word of a vocabulary, or none."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Bool, Float
from torch import Tensor

from nnrs.vocabulary import MARKS
from nnrs.wording import counted

MISSING_SHOWN = 10
FEW = 0.3  # of the tokens: fewer are seldom meant


@dataclass(frozen=True)
class Coverage:
    """How much of a vocabulary, and of the text it counts, are words with a vector."""

    types: int
    types_covered: int
    tokens: int
    tokens_covered: int
    missing: tuple[str, ...]  # the most frequent of the rest

    def __str__(self) -> str:
        types, tokens = self.types_covered / self.types, self.tokens_covered / max(self.tokens, 1)
        told = (
            f"vectors cover {self.types_covered:,} of {counted(self.types, 'word')} ({types:.1%}) and {tokens:.1%} "
            f"of tokens; most frequent of the rest: {' '.join(self.missing) or 'none'}"
        )
        few = ". That is little: are vectors and text of one language and spelling?"
        return told + few * (tokens < FEW)


@dataclass(frozen=True, eq=False)
class Embeddings:
    """The vectors of a vocabulary's words, row by row; a row of zeros is a word without a vector."""

    vectors: Float[Tensor, "vocab dim"]
    source: str  # a short name for signatures: the file's, or "corpus"
    rejected: int = 0  # rows of the file that were wanted but hold a number that is not finite

    @cached_property
    def covered(self) -> Bool[Tensor, " vocab"]:
        """Which words have a vector."""
        return self.vectors.ne(0).any(-1)

    def coverage(self, words: Sequence[str], counts: Sequence[int]) -> Coverage:
        """The share of types and of tokens that are words with a vector, and the most frequent that are not.

        `<eos>` and `<unk>` count as not covered: they are never replaced, also where they have a vector, as in a
        text's own.
        """
        has_vector = self.covered.tolist()
        covered = [has and word not in MARKS for word, has in zip(words, has_vector, strict=True)]
        entries = list(zip(words, counts, covered, strict=True))
        missing = sorted((entry for entry in entries if not entry[2]), key=lambda entry: -entry[1])
        return Coverage(
            types=len(entries),
            types_covered=sum(covered),
            tokens=sum(counts),
            tokens_covered=sum(count for _, count, has in entries if has),
            missing=tuple(word for word, _, _ in missing[:MISSING_SHOWN]),
        )
