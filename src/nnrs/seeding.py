"""Every random number as a pure function of (seed, stream, step, rank).

Nothing here is saved or restored: a resumed run asks for step 812 and gets what an unbroken run got. Two
methods with one seed share initialisation, order and dropout because those are streams of their own.
"""

import enum
import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.errors import ConfigError

SEEDS = 2**63  # as many as a signed word of 64 bits counts, in which kernels take them


class Stream(enum.IntEnum):
    """What the numbers are for. Streams never share numbers."""

    INITIALISATION = 0
    ORDER = 1
    DROPOUT = 2
    DRAWS = 3
    TEXT = 4
    WEIGHTS = 5  # which of them are dropped


def check_seed(seed: int, name: str = "seed") -> None:
    """Refuse what is no seed."""
    if not 0 <= seed < SEEDS:
        raise ConfigError(f"{name} must be in [0, 2^63), got {seed}.")


class Random:
    """The random numbers of one (seed, stream, step, rank), consumed in order.

    They come from Philox with the four as its key and counter, so no two ever overlap (a `torch.Generator` would
    keep 32 bits of a seed, and is three times slower at dropout masks). Every device gives the same numbers.
    """

    def __init__(
        self,
        seed: int,
        stream: Stream,
        step: int = 0,
        rank: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.device = torch.device(device)
        self._key = np.array([seed % 2**64, int(stream)], dtype=np.uint64)
        self._counter = np.array([0, 0, step, rank], dtype=np.uint64)  # the low half counts the words drawn
        self._bits = np.random.Philox(key=self._key, counter=self._counter)
        self._drawn = 0  # words, where the device counts for itself

    def uniform(self, *shape: int) -> Float[Tensor, "..."]:
        """float32 numbers in [0, 1).

        >>> a = Random(1, Stream.DRAWS, step=7).uniform(2, 3)
        >>> bool((a == Random(1, Stream.DRAWS, step=7).uniform(2, 3)).all()), a.shape
        (True, torch.Size([2, 3]))
        """
        count = math.prod(shape)
        raw = self._bits_as(torch.int32, count)
        return raw.bitwise_right_shift(8).bitwise_and_(0xFFFFFF).float().mul_(2**-24).view(shape)

    def dropout_mask(self, *shape: int, rate: float) -> Float[Tensor, "..."]:
        """0 with probability `rate` and 1 / (1 - rate) otherwise; the rate is met to one part in 65,536."""
        count = math.prod(shape)
        raw = self._bits_as(torch.int16, count)
        threshold, scale = dropout_threshold(rate)
        return (raw >= threshold).float().mul_(scale).view(shape)

    def _bits_as(self, dtype: torch.dtype, count: int) -> Int[Tensor, " count"]:
        """So many random integers; each call begins a new word."""
        if count == 0:
            return torch.empty(0, dtype=dtype, device=self.device)
        per_word = 8 // dtype.itemsize
        return self._words(-(-count // per_word)).view(dtype)[:count]

    def _words(self, count: int) -> Int[Tensor, " words"]:
        """The next words of 64 random bits."""
        if self.device.type == "cpu":
            return torch.from_numpy(self._bits.random_raw(count).view(np.int64))
        from nnrs.philox import fill

        (seed, stream), (step, rank) = self._key.view(np.int64).tolist(), self._counter[2:].tolist()
        words = torch.empty(1, count, dtype=torch.int64, device=self.device)
        seeds, at = (
            words.new_full((1,), seed),
            words.new_full((1,), step),
        )  # made there: no transfer to wait for
        with torch.cuda.device(self.device):  # kernels are launched for the current one
            fill(words, seeds, at, stream, rank, first_word=self._drawn)
        self._drawn += count
        return words[0]


class Drawn(Random):
    """Numbers from words that are already there: those of one run, drawn for many runs at once."""

    def __init__(self, words: Int[Tensor, " n"]) -> None:
        self.device = words.device
        self._rest = words

    def _words(self, count: int) -> Int[Tensor, " count"]:
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken


def dropout_threshold(rate: float) -> tuple[int, float]:
    """The int16 below which 16 random bits drop a value, and what the others are multiplied by."""
    dropped = round(rate * 65536)
    return dropped - 32768, 65536.0 / (65536 - dropped)  # int16 shifts the range [0, 65536) down by half
