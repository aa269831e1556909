"""Whether a model can fit the memory at all, told before it is made: the system may end a process without a word."""

import os
from contextlib import suppress
from pathlib import Path

import torch

from nnrs.errors import ConfigError
from nnrs.models import MODELS
from nnrs.models.base import ModelConfig
from nnrs.registry import look_up

WEIGHT = 8  # bytes: float32 and its gradient, or float32, its bfloat16 copy and that one's gradient
LOGIT = 2  # bytes: bfloat16, the smallest it is kept in
GIGA = 1e9
# What a container may use, of either version of control groups; more than a machine has, or "max", where it may all.
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_memory(config: ModelConfig, device: torch.device, vocab_size: int = 0, window: int = 0) -> None:
    """Refuse a model whose weights, with its logits of a window of so many tokens, are more than the memory.

    What else training needs is not guessed at, nor what other processes have taken. Without a vocabulary it is the
    layers' weights alone.
    """
    weights = look_up(MODELS, config.kind, "model").least_parameters(config, vocab_size)
    needed, there = WEIGHT * weights + LOGIT * window * vocab_size, memory_of(device)
    if needed > there:
        raise ConfigError(
            f"training {config.label()} takes at least {needed / GIGA:,.1f} GB of memory, and this "
            f"{'GPU' if device.type == 'cuda' else 'machine'} has {there / GIGA:,.1f} GB. Use a smaller --preset, "
            "--units, --layers, --batch-size or --bptt."
        )


def memory_of(device: torch.device) -> int:
    """How many bytes a device has, whoever uses them; of a machine those that this container may."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    least = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in LIMITS:
        with suppress(OSError, ValueError):  # not there, or "max"
            least = min(least, int(Path(path).read_text(encoding="ascii")))
    return least
