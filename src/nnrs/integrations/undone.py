"""A forward that leaves no trace in its model: what it wrote into buffers, and what it bound to attributes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

# Whole numbers in a buffer: more are a mask or packed weights, which no forward changes.
MOST_COUNTS = 1 << 16


@contextmanager
def undone(model: nn.Module) -> Iterator[None]:
    """Have a model's buffers and plain attributes afterwards as they were.

    What is written into a buffer is undone; one that is put in the place of another stays, for it is a cache. All are
    copied: torch does not tell which of them a forward changes (a BatchNorm's means have no new version). What was
    bound to a plain attribute is bound to it again: the hidden state that a model carries from window to window, say.
    What is written into the very object that an attribute holds stays.
    """
    held = [(buffer, buffer.clone()) for buffer in model.buffers() if _may_be_written(buffer)]
    bound = [(part, dict(vars(part))) for part in model.modules() if not _is_of_torch(part)]
    try:
        yield
    finally:
        for buffer, copy in held:
            buffer.data.copy_(copy)  # unseen by autograd: a backward to come may need it, and it is as it was
        for part, before in bound:
            _bind_again(part, before)


def _may_be_written(buffer: Tensor) -> bool:
    if nn.parameter.is_lazy(buffer) or (buffer.layout == torch.strided and 0 in buffer.stride()):
        return False
    return buffer.is_floating_point() or buffer.is_complex() or buffer.numel() <= MOST_COUNTS


def _is_of_torch(part: nn.Module) -> bool:
    """Whether a layer is one of torch's own, which keep nothing between forwards but in buffers; or its FSDP."""
    return type(part).__module__.startswith("torch.")


def _bind_again(part: nn.Module, before: dict[str, Any]) -> None:
    """Let a part have the attributes that it had, but for those that are parts, weights or buffers by now."""
    now = vars(part)
    for name in now.keys() - before.keys():
        del now[name]
    registered = {*part._modules, *part._parameters, *part._buffers}
    now.update({name: value for name, value in before.items() if name not in registered})
