"""Sentence pairs as (batch, time) windows: sources to read, targets to learn."""

import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from nnrs.batches import IGNORED, Window
from nnrs.corpus import Corpus
from nnrs.errors import ConfigError, DataError
from nnrs.seeding import Random
from nnrs.vocabulary import Vocabulary, token_ids
from nnrs.wording import counted

JITTER = 4.0  # source words by which sentences of one batch may differ that a new order brings together


@dataclass(frozen=True, eq=False)
class Sentences:
    """Sentences of any lengths, one behind the other, `<eos>` at the end of each."""

    ids: Int[Tensor, " tokens"]
    lengths: Int[Tensor, " sentences"]

    @staticmethod
    def of(corpus: Corpus, split: str, vocabulary: Vocabulary) -> "Sentences":
        """The lines of a split."""
        lengths = torch.tensor([len(line) + 1 for line in corpus.lines(split)])
        return Sentences(token_ids(corpus, split, vocabulary), lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Int[Tensor, " sentences"]:
        """Where each begins."""
        return self.lengths.cumsum(0) - self.lengths

    def padded(self, rows: Int[Tensor, " batch"], time: int) -> Int[Tensor, "batch time"]:
        """Some of them side by side, filled up to `time` with IGNORED.

        >>> Sentences(torch.tensor([5, 0, 6, 7, 0]), torch.tensor([2, 3])).padded(torch.tensor([1, 0]), 3)
        tensor([[   6,    7,    0],
                [   5,    0, -100]])
        """
        columns = torch.arange(time, device=rows.device)
        places = (self.starts[rows, None] + columns).clamp(max=len(self.ids) - 1)
        return torch.where(columns < self.lengths[rows, None], self.ids[places].long(), IGNORED)

    def to(self, device: torch.device | str) -> "Sentences":
        """The same on another device."""
        return Sentences(self.ids.to(device), self.lengths.to(device))


class Pairs:
    """Batches of sentences and their translations, those of like lengths together.

    The decoder reads `<eos>` and the target up to its last word; it is taught the target and its `<eos>`. What fills
    a row up is IGNORED as a target and `<eos>` as an input. Without `shuffled` the shortest come first.

    >>> both = Sentences(torch.tensor([5, 0, 6, 7, 0]), torch.tensor([2, 3]))
    >>> window = Pairs(both, both, batch_size=2, eos_id=0)[0]
    >>> window.inputs, window.targets
    (tensor([[0, 5, 0], [0, 6, 7]]), tensor([[   5,    0, -100], [   6,    7,    0]]))
    """

    continuous = False

    def __init__(self, source: Sentences, target: Sentences, *, batch_size: int, eos_id: int) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch size must be at least 1, got {batch_size}.")
        if len(source) != len(target):
            raise DataError(f"{counted(len(source), 'sentence')} cannot be paired with {len(target)}.")
        self._source, self._target, self._eos_id = source, target, eos_id
        self._lengths = source.lengths.numpy(), target.lengths.numpy()  # stay here: no device need be asked
        self._spans = [slice(first, first + batch_size) for first in range(0, len(target), batch_size)]
        self._sort(*self._lengths)

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, index: int) -> Window:
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        here = self.rows(index)
        source_time, time = (int(lengths[here].max()) for lengths in self._lengths)
        rows = self._order[self._spans[index]]
        targets = self._target.padded(rows, time)
        begin = targets.new_full((len(here), 2), self._eos_id)
        read = torch.cat([begin, targets.where(targets != IGNORED, self._eos_id)[:, :-1]], dim=1)
        return Window(
            inputs=read[:, 1:],
            targets=targets,
            previous=read[:, :-1],
            source=self._source.padded(rows, source_time),
            padding=len(here) * time - int(self._lengths[1][here].sum()),
        )

    def rows(self, index: int) -> Int[np.ndarray, " batch"]:
        """Which sentences a batch holds."""
        return self._here[self._spans[index]]

    def shuffled(self, random: Random) -> "Pairs":
        """The same pairs in other batches, and these in another order, both drawn from `random`."""
        moved = copy.copy(self)
        source, target = self._lengths
        moved._sort(source + JITTER * random.uniform(len(source)).numpy(), target)
        places = random.uniform(len(self)).argsort(stable=True).tolist()
        moved._spans = [self._spans[place] for place in places]
        return moved

    def to(self, device: torch.device | str) -> "Pairs":
        """The same with their ids on `device`: moved once, gathered there without a transfer."""
        moved = copy.copy(self)
        moved._source, moved._target = self._source.to(device), self._target.to(device)
        moved._order = self._order.to(device)
        return moved

    def _sort(self, second: np.ndarray, first: np.ndarray) -> None:
        """By target length, so that the costly side is filled up least, then by source length."""
        self._here = np.lexsort((second, first))
        self._order = torch.from_numpy(self._here).to(self._target.ids.device)
