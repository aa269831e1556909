"""The parameters of R models of one architecture, in one buffer that every launch reads."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nnrs.models import SequenceModel

ALIGNMENT = 64  # numbers; tensor cores want rows and matrices that begin at multiples of 16 bytes
VOCAB_ALIGNMENT = 16


def padded(count: int, multiple: int) -> int:
    """The next multiple from a count on."""
    return -(-count // multiple) * multiple


class Parameters:
    """The parameters of every run, a row each; the runs' own become views of it, so that they see every step.

    `rounded` is what the products read: bfloat16, or `values` themselves in float32. Gradients are as exact as that.
    `learned` is what a policy teaches beside its model; it stands last, and is not decayed.
    """

    def __init__(
        self,
        models: Sequence[SequenceModel],
        learned: Sequence[dict[str, nn.Parameter]],
        dtype: torch.dtype,
        *,
        adaptive: bool,
    ) -> None:
        device = next(models[0].parameters()).device
        self._places: dict[str, tuple[int, tuple[int, ...]]] = {}
        count = 0
        for name, parameter in models[0].named_parameters():
            count = self._place(name, parameter.shape, count)
        self.decayed_count = count
        for name in sorted({name for extra in learned for name in extra}):
            shapes = [extra[name].shape for extra in learned if name in extra]  # k may differ between runs
            count = self._place(name, [max(sizes) for sizes in zip(*shapes, strict=True)], count)
        runs = len(models)
        self.values = torch.zeros(runs, count, device=device)
        self.rounded = self.values if dtype == torch.float32 else torch.zeros_like(self.values, dtype=dtype)
        self.gradients = torch.zeros_like(self.values, dtype=dtype)
        self.moments = (torch.zeros_like(self.values), torch.zeros_like(self.values)) if adaptive else None
        for run, (model, extra) in enumerate(zip(models, learned, strict=True)):
            for name, parameter in (*model.named_parameters(), *extra.items()):
                view = self.of_run(self.values, name, run, parameter.shape)
                view.copy_(parameter.detach())
                parameter.data = view
        if dtype != torch.float32:
            self.rounded.copy_(self.values)

    def _place(self, name: str, shape: Sequence[int], offset: int) -> int:
        self._places[name] = offset, tuple(shape)
        rows = padded(shape[0], VOCAB_ALIGNMENT)
        return offset + padded(rows * (shape[1] if len(shape) > 1 else 1), ALIGNMENT)

    def of(self, buffer: Tensor, name: str, *, spare: bool = False) -> Tensor:
        """One parameter of every run in one of the buffers; `spare`: with its spare rows."""
        offset, shape = self._places[name]
        rows = padded(shape[0], VOCAB_ALIGNMENT) if spare else shape[0]
        whole = (rows, *shape[1:])
        size = rows * (shape[1] if len(shape) > 1 else 1)
        return buffer[:, offset : offset + size].view(len(buffer), *whole)

    def of_run(self, buffer: Tensor, name: str, run: int, shape: Sequence[int]) -> Tensor:
        """One parameter of one run, which may be smaller than the largest of that name."""
        whole = self.of(buffer, name)[run]
        return whole[tuple(slice(0, size) for size in shape)]
