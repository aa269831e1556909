"""Tokens to ids and back: a frozen vocabulary, ordered by frequency in the training split."""

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from nnrs.corpus import Corpus
from nnrs.errors import ConfigError, DataError
from nnrs.wording import counted

EOS = "<eos>"  # ends every line
UNK = "<unk>"  # stands for every word outside the vocabulary
PAD = "<pad>"  # never ours, but a user's text may bring it
MARKS = (EOS, UNK, PAD)  # stand among the words and are none


@dataclass(frozen=True)
class Vocabulary:
    """Words with their training counts, the most frequent first, ties in alphabetical order.

    >>> vocabulary = Vocabulary(words=("the", "<eos>", "<unk>"), counts=(3, 2, 0))
    >>> vocabulary.encode(["the", "cat", "<eos>"])
    [0, 2, 1]
    """

    words: tuple[str, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.words) == len(self.counts) == len(self.ids):
            raise DataError(
                f"a vocabulary needs one count for each word and no word twice, "
                f"got {counted(len(self.words), 'word')} ({len(self.ids)} different) and "
                f"{counted(len(self.counts), 'count')}."
            )
        missing = {EOS, UNK} - self.ids.keys()
        if missing:
            raise DataError(
                f"a vocabulary must contain {' and '.join(sorted(missing))}. Add it with count 0."
            )

    @classmethod
    def from_corpus(
        cls, corpus: Corpus, min_count: int = 1, max_vocabulary: int | None = None
    ) -> "Vocabulary":
        """The vocabulary of the training split; its rare words count as `<unk>`.

        `max_vocabulary` is the size in all, `<eos>` and `<unk>` included.
        """
        if min_count < 1:
            raise ConfigError(f"min_count must be at least 1 (keep every word), got {min_count}.")
        if max_vocabulary is not None and max_vocabulary < 3:
            raise ConfigError(
                f"max_vocabulary must be at least 3 ({EOS}, {UNK} and a word), got {max_vocabulary}."
            )
        counts = _count(corpus)
        special = Counter({EOS: counts.pop(EOS), UNK: counts.pop(UNK, 0)})
        if not counts:
            raise DataError(
                f"{corpus.name}: the training text has no word but {UNK}: there is nothing to learn. Use a text "
                "whose words are written out."
            )
        kept = [item for item in _by_frequency(counts) if item[1] >= min_count]
        if not kept:
            raise ConfigError(
                f"no word of {corpus.name} occurs {min_count:,} times: the commonest has {max(counts.values()):,}. "
                "Lower --min-count."
            )
        kept = kept[: None if max_vocabulary is None else max_vocabulary - 2]
        special[UNK] += counts.total() - sum(count for _, count in kept)
        ordered = _by_frequency({**dict(kept), **special})
        return cls(tuple(word for word, _ in ordered), tuple(count for _, count in ordered))

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The id of each word."""
        return {word: i for i, word in enumerate(self.words)}

    @property
    def eos_id(self) -> int:
        """The id of `<eos>`."""
        return self.ids[EOS]

    @property
    def unk_id(self) -> int:
        """The id of `<unk>`."""
        return self.ids[UNK]

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The ids of `tokens`, that of `<unk>` for unknown ones; no `<eos>` is added."""
        ids, unknown = self.ids, self.unk_id
        return [ids.get(token, unknown) for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words with these ids."""
        return [self.words[i] for i in ids]

    def case_groups(self) -> Int[Tensor, " vocab"]:
        """A number for each word, shared by the words that differ only in case (`US`, `us`)."""
        groups: dict[str, int] = {}
        return torch.tensor([groups.setdefault(word.lower(), len(groups)) for word in self.words])

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of words and counts: two vocabularies with one fingerprint give the same ids."""
        return hashlib.sha256(json.dumps(self.to_json()).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Plain lists from which `from_json` makes an equal vocabulary."""
        return {"words": list(self.words), "counts": list(self.counts)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Vocabulary":
        """The vocabulary that `to_json` described."""
        return cls(tuple(value["words"]), tuple(value["counts"]))


def token_ids(corpus: Corpus, split: str, vocabulary: Vocabulary) -> Int[Tensor, " tokens"]:
    """The ids of a whole split as int32, `<eos>` after each line."""
    ids = array("i")  # 4 bytes a token while it grows; a list would take 8 and an object
    for line in corpus.lines(split):
        ids.extend(vocabulary.encode(line))
        ids.append(vocabulary.eos_id)
    return torch.from_numpy(np.asarray(ids, dtype=np.int32))


def count_tokens(corpus: Corpus, split: str, most: int) -> int:
    """The tokens of a split, `<eos>` after each line; it is read no further than to `most` of them."""
    tokens = (token for line in corpus.lines(split) for token in (*line, EOS))
    return sum(1 for _ in zip(range(most), tokens, strict=False))


def _count(corpus: Corpus) -> Counter[str]:
    counts = Counter({EOS: 0})
    for line in corpus.lines("train"):
        counts.update(line)
        counts[EOS] += 1
    return counts


def _by_frequency(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
