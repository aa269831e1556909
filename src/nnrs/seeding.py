"""Every random number as a pure function of (seed, stream, step, rank).

Nothing here is saved or restored: a resumed run asks for step 812 and gets what an unbroken run got. Two
methods with one seed share initialisation, order and dropout because those are streams of their own.
"""

import enum

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


class Stream(enum.IntEnum):
    """What the numbers are for. Streams never share numbers."""

    INITIALISATION = 0
    ORDER = 1
    DROPOUT = 2
    DRAWS = 3
    TEXT = 4


class Random:
    """The random numbers of one (seed, stream, step, rank), consumed in order.

    On the CPU they come from Philox with the four as its key and counter, so no two ever overlap (a
    `torch.Generator` would keep 32 bits of a seed, and is three times slower at dropout masks). On a GPU
    they come from that device's own Philox, seeded by the four; CPU and GPU differ from each other.
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
        key = np.array([seed % 2**64, int(stream)], dtype=np.uint64)
        counter = np.array([0, 0, step, rank], dtype=np.uint64)  # the low half counts the numbers drawn
        self._bits = np.random.Philox(key=key, counter=counter)
        self._generator: torch.Generator | None = None
        if self.device.type != "cpu":
            self._generator = torch.Generator(self.device)
            self._generator.manual_seed(int(self._bits.random_raw()) >> 1)

    def uniform(self, *shape: int) -> Float[Tensor, "..."]:
        """float32 numbers in [0, 1).

        >>> a = Random(1, Stream.DRAWS, step=7).uniform(2, 3)
        >>> bool((a == Random(1, Stream.DRAWS, step=7).uniform(2, 3)).all()), a.shape
        (True, torch.Size([2, 3]))
        """
        if self._generator is not None:
            return torch.rand(shape, generator=self._generator, device=self.device)
        count = int(np.prod(shape, dtype=np.int64))
        raw = self._bits.random_raw((count + 1) // 2).view(np.uint32)[:count]
        return torch.from_numpy((raw >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)).view(shape)

    def dropout_mask(self, *shape: int, rate: float) -> Float[Tensor, "..."]:
        """0 with probability `rate` and 1 / (1 - rate) otherwise; the rate is met to one part in 65,536."""
        if self._generator is not None:
            mask = torch.empty(shape, device=self.device).bernoulli_(1.0 - rate, generator=self._generator)
            return mask.div_(1.0 - rate)
        count = int(np.prod(shape, dtype=np.int64))
        raw = torch.from_numpy(self._bits.random_raw((count + 3) // 4).view(np.int16)[:count])
        threshold = round(rate * 65536)
        kept = raw >= threshold - 32768  # int16 shifts the range [0, 65536) down by half
        return kept.float().mul_(65536.0 / (65536 - threshold)).view(shape)
