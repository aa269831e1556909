"""Optimisers and how their learning rate falls."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nnrs.errors import ConfigError
from nnrs.registry import look_up

PLATEAU_FACTOR = 4.0
OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], float]] = {
    "sgd": (torch.optim.SGD, 20.0),  # the paper's
    "adamw": (torch.optim.AdamW, 1e-3),
}
ANNEALINGS = ("cosine", "plateau", "constant")


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig:
    """How the parameters are updated."""

    name: str = "sgd"
    learning_rate: float | None = None  # None: the optimiser's usual one
    annealing: str = "cosine"
    clip: float = 0.25  # of the gradient's norm

    def __post_init__(self) -> None:
        _, usual = look_up(OPTIMIZERS, self.name, "optimizer")
        look_up(dict.fromkeys(ANNEALINGS), self.annealing, "annealing")
        if self.learning_rate is None:
            object.__setattr__(self, "learning_rate", usual)
        for name in ("learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}.")

    def build(
        self, parameters: Iterable[nn.Parameter], undecayed: Iterable[nn.Parameter] = ()
    ) -> torch.optim.Optimizer:
        """The live optimiser; `undecayed` parameters only move where they have a gradient."""
        make, _ = OPTIMIZERS[self.name]
        groups: list[dict[str, Any]] = [{"params": list(parameters)}]
        if rest := list(undecayed):
            groups.append({"params": rest, "weight_decay": 0.0})
        return make(groups, lr=self.learning_rate)

    def rate_for(self, epoch: int, num_epochs: int, drops: int) -> float:
        """The learning rate of an epoch; `drops` counts the epochs so far that brought no improvement.

        >>> OptimizerConfig(learning_rate=20.0).rate_for(20, 40, drops=0)
        10.0
        """
        first = self.learning_rate or 0.0
        if self.annealing == "cosine":
            return first * 0.5 * (1.0 + math.cos(math.pi * epoch / num_epochs))
        if self.annealing == "plateau":
            return first / PLATEAU_FACTOR**drops
        return first
