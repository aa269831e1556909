"""A forward that leaves no trace in its model: what it wrote into buffers, and what it noted in attributes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

# Whole numbers in a buffer: more are a mask or packed weights, which no forward changes.
MOST_COUNTS = 1 << 16
MOST_TENSORS = 64  # of a state, in one tuple or list


@contextmanager
def undone(model: nn.Module) -> Iterator[None]:
    """Have a model's buffers and plain attributes afterwards as they were.

    What is written into a buffer is undone; one that is put in the place of another stays, for it is a cache. All are
    copied: torch does not tell which of them a forward changes (a BatchNorm's means have no new version). Of plain
    attributes those of tensors and numbers are put back, alone or in tuples and lists: a hidden state that a model
    carries from window to window, say. What is written into their very tensors stays.
    """
    held = [(buffer, buffer.clone()) for buffer in model.buffers() if _may_be_written(buffer)]
    noted = [(part, _notes(part)) for part in model.modules() if not _is_of_torch(part)]
    try:
        yield
    finally:
        for buffer, copy in held:
            buffer.data.copy_(copy)  # unseen by autograd: a backward to come may need it, and it is as it was
        for part, notes in noted:
            for name in _notes(part).keys() - notes.keys():
                del vars(part)[name]
            vars(part).update(notes)


def _may_be_written(buffer: Tensor) -> bool:
    if nn.parameter.is_lazy(buffer) or (buffer.layout == torch.strided and 0 in buffer.stride()):
        return False
    return buffer.is_floating_point() or buffer.is_complex() or buffer.numel() <= MOST_COUNTS


def _is_of_torch(part: nn.Module) -> bool:
    """Whether a layer is one of torch's own, which keep nothing between forwards but in buffers; or its FSDP."""
    return type(part).__module__.startswith("torch.")


def _notes(part: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(part).items() if _is_note(value)}


def _is_note(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return len(value) <= MOST_TENSORS and all(map(_is_note, value))
    return value is None or isinstance(value, Tensor | int | float)
