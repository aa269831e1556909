"""The processes that train one run together: each its rows of every batch, all with the same weights.

Every process draws for the whole batch and keeps its own rows, so that the numbers are those of one process; what is
summed over the rows is then summed over the processes.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nnrs.errors import ConfigError, RunError
from nnrs.wording import counted

PATIENCE = timedelta(minutes=10)  # with a process that is there but says nothing


class Group:
    """A process alone: what it has is all there is."""

    rank = 0
    size = 1

    @property
    def leads(self) -> bool:
        """Whether it is this process that writes and speaks."""
        return self.rank == 0

    def check_shares(self, batch_size: int, last: int) -> None:
        """Refuse a batch size that cannot be shared equally, and a last batch that leaves a process without rows."""

    def rows(self, batch: int) -> slice:
        """Which rows of a batch are its own."""
        return slice(0, batch)

    def add_up(self, parameters: Sequence[nn.Parameter], parts: Sequence[Tensor]) -> Sequence[Tensor]:
        """Each part, a number, summed over all processes; and so are the parameters' gradients, where they are."""
        return parts

    def highest(self, value: int) -> int:
        """The highest of all processes' values."""
        return value

    def leaders(self, value: float) -> float:
        """What the leader has, whatever the last digits of the others'."""
        return value

    def whole(self, rows: Tensor) -> Tensor:
        """The rows of all processes, of which each has as many, in the order of the batch."""
        return rows

    def agreed(self, asked: Callable[[], bool]) -> Callable[[], bool]:
        """A question that all processes answer alike, with yes where any would; all must ask it equally often."""
        return asked

    def meet(self) -> None:
        """Wait for the others."""

    def check_agreement(self, facts: Mapping[str, Hashable]) -> None:
        """Meet, and refuse to go on where another process has other facts."""


ALONE = Group()


class Processes(Group):
    """A process and its peers, once `dist.init_process_group` has brought them together."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def check_shares(self, batch_size: int, last: int) -> None:
        """The last batch of sentence pairs has what is left."""
        advice = "Change --batch-size or torchrun's --nproc-per-node."
        if batch_size % self.size:
            raise ConfigError(
                f"a batch of {counted(batch_size, 'row')} cannot be shared equally by {self.size} processes. {advice}"
            )
        if last < self.size:
            raise ConfigError(
                f"the last batch has {last} of {batch_size} rows, too few for {self.size} processes. {advice}"
            )

    def rows(self, batch: int) -> slice:
        """Consecutive rows, and as many for each as can be."""
        return slice(self.rank * batch // self.size, (self.rank + 1) * batch // self.size)

    def add_up(self, parameters: Sequence[nn.Parameter], parts: Sequence[Tensor]) -> Sequence[Tensor]:
        """In one message. Which parameters have a gradient depends on the rates alone: it is the same everywhere."""
        reached = {parameter: parameter.grad for parameter in parameters if parameter.grad is not None}
        numbers = torch.stack([part.float() for part in parts])  # counts within a window: exact
        message = torch.cat([numbers, *(gradient.flatten() for gradient in reached.values())])
        with _together():
            dist.all_reduce(message)
        sums, *gradients = message.split([len(parts), *(gradient.numel() for gradient in reached.values())])
        for parameter, gradient in zip(reached, gradients, strict=True):
            parameter.grad = gradient.view_as(parameter)
        return [total.to(part.dtype) for total, part in zip(sums, parts, strict=True)]

    def highest(self, value: int) -> int:
        """By way of the CPU: no GPU is waited for."""
        found = torch.tensor(value)
        with _together():
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return int(found)

    def leaders(self, value: float) -> float:
        """Sent by rank 0."""
        sent = torch.tensor(value, dtype=torch.float64)
        with _together():
            dist.broadcast(sent, src=0)
        return float(sent)

    def whole(self, rows: Tensor) -> Tensor:
        """Gathered from all."""
        parts = [torch.empty_like(rows) for _ in range(self.size)]
        with _together():
            dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    def agreed(self, asked: Callable[[], bool]) -> Callable[[], bool]:
        """Signals reach the processes at different moments, or only one of them."""
        return lambda: bool(self.highest(int(asked())))

    def meet(self) -> None:
        """Nobody hears the others before all have spoken."""
        self.highest(0)

    def check_agreement(self, facts: Mapping[str, Hashable]) -> None:
        """Compared with the leader's."""
        everyones: list[Mapping[str, Hashable]] = [{}] * self.size
        with _together():
            dist.all_gather_object(everyones, dict(facts))
        for rank, others in enumerate(everyones):
            for name, fact in everyones[0].items():
                if others[name] != fact:
                    raise RunError(
                        f"process {rank} of this run has another {name} than process 0. "
                        "Give all of them the same command, files and version of nnrs."
                    )


@contextmanager
def _together() -> Iterator[None]:
    """Say in one line that a peer is gone, as gloo and NCCL tell it."""
    try:
        yield
    except RuntimeError as error:
        raise RunError(
            "another process of this run has ended, and so does this one. What was saved is there: "
            "mend what ended it and add --resume."
        ) from error
