"""What is otherwise in a user's program than while the tests run."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import config


@contextmanager
def unchecked() -> Iterator[None]:
    """No types and shapes are checked: a wrong argument meets our own words."""
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", False)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Tensors are made in another precision where none is named."""
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
