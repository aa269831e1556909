"""Ids as (batch, time) windows for truncated backpropagation."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from nnrs.errors import ConfigError, DataError
from nnrs.seeding import Random
from nnrs.wording import counted

IGNORED = -100  # a target that is not scored; PyTorch's cross_entropy skips it by default


@dataclass(frozen=True, eq=False)
class Window:
    """One step of all rows: `targets[b, t]` follows `inputs[b, t]`, which follows `previous[b, t]`."""

    inputs: Int[Tensor, "batch time"]
    targets: Int[Tensor, "batch time"]
    previous: Int[Tensor, "batch time"]
    source: Int[Tensor, "batch source_time"] | None = None  # what is translated; filled up with IGNORED
    padding: int = 0  # how many targets are IGNORED, known without asking the device

    @property
    def num_tokens(self) -> int:
        """How many targets are scored."""
        return self.targets.numel() - self.padding

    @property
    def scored(self) -> Bool[Tensor, "batch time"]:
        """Which targets are scored."""
        return self.targets != IGNORED


@runtime_checkable  # for the shape checks in the tests
class Batches(Protocol):
    """Where a trainer's windows come from, and whether each goes on where the one before it ended."""

    @property
    def continuous(self) -> bool:
        """Whether the state is carried from window to window; else each begins anew."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Window: ...

    def shuffled(self, random: Random) -> "Batches":
        """The same in the order of an epoch, as many windows."""


class Windows:
    """Consecutive windows over a text that is cut into `batch_size` contiguous rows.

    Every token is a target, the first one too: the text is read as if `<eos>` stood before it. Rows have
    equal lengths. Training drops the remainder; with `pad_remainder` the rows are filled up with IGNORED
    targets, so that every token is scored exactly once.

    >>> windows = Windows(torch.tensor([5, 6, 7, 8, 9]), batch_size=2, length=35, eos_id=0)
    >>> windows[0].inputs, windows[0].targets
    (tensor([[0, 5], [6, 7]]), tensor([[5, 6], [7, 8]]))
    """

    continuous = True

    def __init__(
        self,
        ids: Int[Tensor, " tokens"],
        *,
        batch_size: int,
        length: int,
        eos_id: int,
        pad_remainder: bool = False,
    ) -> None:
        _check(len(ids), batch_size, length, pad_remainder)
        self.length = length
        row = -(-len(ids) // batch_size) if pad_remainder else len(ids) // batch_size
        self.num_tokens = min(len(ids), batch_size * row)
        used, surplus = ids[: self.num_tokens], batch_size * row - self.num_tokens
        # A row of inputs begins one token early, so that `previous` is the same row read one step behind.
        stream = torch.cat([ids.new_full((2,), eos_id), used[:-1], ids.new_full((surplus,), eos_id)])
        self._inputs = stream.unfold(0, row + 1, row).contiguous()
        self._targets = torch.cat([used, ids.new_full((surplus,), IGNORED)]).view(batch_size, row)

    def __len__(self) -> int:
        return -(-self._targets.shape[1] // self.length)

    def __getitem__(self, index: int) -> Window:
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        row = self._targets.shape[1]
        start = index * self.length
        stop = min(start + self.length, row)
        # Where each row's tokens end.
        ends = (self.num_tokens - first for first in range(0, self._targets.numel(), row))
        return Window(
            inputs=self._inputs[:, start + 1 : stop + 1].long(),
            targets=self._targets[:, start:stop].long(),
            previous=self._inputs[:, start:stop].long(),
            padding=sum(max(stop - max(start, end), 0) for end in ends),
        )

    def __iter__(self) -> Iterator[Window]:
        return (self[index] for index in range(len(self)))

    def shuffled(self, random: Random) -> "Windows":
        """The same: a text has one order."""
        return self

    def equals(self, other: "Windows") -> bool:
        """Whether these are the same windows of the same text."""
        return self.length == other.length and torch.equal(self._targets, other._targets)

    def to(self, device: torch.device | str) -> "Windows":
        """The same windows with their ids on `device`: moved once, sliced there without a transfer."""
        moved = copy.copy(self)
        moved._inputs, moved._targets = self._inputs.to(device), self._targets.to(device)
        return moved


def _check(tokens: int, batch_size: int, length: int, pad_remainder: bool) -> None:
    if batch_size < 1 or length < 1:
        raise ConfigError(f"batch size and window length must be at least 1, got {batch_size} and {length}.")
    # A row of one token has no history to learn from; scoring needs no history.
    needed = batch_size if pad_remainder else 2 * batch_size
    if tokens < needed:
        raise DataError(
            f"{counted(tokens, 'token')} cannot fill a batch of {counted(batch_size, 'row')} (at least {needed:,}). "
            f"Give more text or a smaller batch size."
        )
