"""Numbers and devices as users give them, of any library: checked, and brought to Python's and torch's own."""

import operator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nnrs.errors import ConfigError


def whole(name: str, value: Any, at_least: int | None = None) -> int:
    """A whole number of any library's, as Python's; anything else (a truth value, too), or less, is refused."""
    truth = isinstance(value, bool) or getattr(value, "dtype", None) in (torch.bool, np.bool_)
    try:
        number = None if truth else operator.index(value)
    except TypeError:
        number = None
    if number is None or (at_least is not None and number < at_least):
        least = "" if at_least is None else f" of at least {at_least}"
        raise ConfigError(f"{name} must be a whole number{least}, got {value!r:.60}.")
    return number


def at_hand(name: str, number: Any) -> Any:
    """The number that a tensor on the CPU holds, else the argument as it is; a tensor with a shape is refused.

    Looking at one on a GPU would be a CPU-GPU sync point, and in a graph that is being compiled it would break it.
    """
    if not isinstance(number, Tensor):
        return number
    if number.ndim > 0:
        raise ConfigError(
            f"{name} must be one number, got a tensor of the shape {tuple(number.shape)}. Use a plain number, or a "
            "tensor of the shape ()."
        )
    if number.device.type != "cpu" or torch.compiler.is_compiling():
        return number
    try:
        return number.item()
    except RuntimeError:  # one that stands for several (vmap) or for any
        return number


def is_whole(numbers: Tensor) -> bool:
    """Whether a tensor holds whole numbers."""
    return not (numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool)


def checked_device(device: torch.device | str | int, *, beside: str = "") -> torch.device:
    """The device, if torch knows its kind and this machine has it; `beside` are names that there are, too."""
    try:
        found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, TypeError):
        raise ConfigError(f"unknown device '{device}'. Use {beside}cpu, cuda or cuda:0.") from None
    if not _is_there(found):
        raise ConfigError(f"device '{device}' is not there{_why_not(found)}. Use the device cpu.")
    return found


def _why_not(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    if not torch.cuda.is_available():  # also where the driver is too old for the devices that it counts
        return ": torch.cuda.is_available() is False"
    return f": this machine's CUDA devices number {torch.cuda.device_count()}"


def _is_there(device: torch.device) -> bool:
    if device.type == "cuda":  # asked without taking memory there
        return torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    try:
        return not torch.empty(0, device=device).is_meta  # which holds no numbers
    except (RuntimeError, AssertionError, ImportError):
        return False
