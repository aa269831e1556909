"""Everything that a resumed run needs, as named tensors and plain values, and back again."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from nnrs.models.base import SequenceModel
from nnrs.policies.base import InputPolicy
from nnrs.temperature import TemperatureState
from nnrs.training.unroll import Carry


@dataclass
class Position:
    """Where a run stands: the next window of an epoch, and what is known so far."""

    epoch: int = 0
    window: int = 0  # the next one of this epoch
    step: int = 0  # windows trained on in all: the step of every random stream
    drops: int = 0  # epochs without improvement, for plateau annealing
    best_valid_perplexity: float = float("inf")
    best_epoch: int = -1


@dataclass
class Tally:
    """Sums over the windows of an epoch. The tensors stay on the device: reading them waits for it."""

    nats: Tensor | float = 0.0
    predictions: Tensor | int = 0
    neighbors: Tensor | int = 0
    tokens: int = 0
    passes: int = 0
    windows: int = 0

    def read(self) -> "Tally":
        """The same as plain numbers."""
        return Tally(
            float(self.nats),
            int(self.predictions),
            int(self.neighbors),
            self.tokens,
            self.passes,
            self.windows,
        )


@dataclass
class Live:
    """The parts of a run that change while it trains."""

    model: SequenceModel
    policy: InputPolicy
    optimizer: torch.optim.Optimizer
    position: Position
    tally: Tally
    carry: Carry | None = None  # None at the start of an epoch

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors and the plain values of a checkpoint."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= {f"policy.{name}": tensor for name, tensor in self.policy.learned.items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {
                f"optimizer.{index}.{name}": value for name, value in state.items() if value is not None
            }
        if self.carry is not None:
            tensors |= {f"carry.{index}": part for index, part in enumerate(self.carry.state)}
            if self.carry.hidden is not None:
                tensors["carry.hidden"] = self.carry.hidden
        values = {
            **asdict(self.position),
            "tally": asdict(self.tally.read()),
            "temperature": asdict(self.policy.temperature_state),
        }
        return {name: tensor.detach() for name, tensor in tensors.items()}, values

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        values = dict(values)
        self.tally = Tally(**values.pop("tally"))
        self.policy.temperature_state = TemperatureState(**values.pop("temperature"))
        self.position = Position(**values)
        parts = _by_owner(tensors)
        self.model.load_state_dict(parts.get("model", {}))
        with torch.no_grad():
            for name, tensor in parts.get("policy", {}).items():
                self.policy.learned[name].copy_(tensor)
        self._restore_optimizer(parts.get("optimizer", {}))
        self._restore_carry(parts.get("carry", {}))

    def _restore_optimizer(self, flat: dict[str, Tensor]) -> None:
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in flat.items():
            index, _, key = name.partition(".")
            state.setdefault(int(index), {})[key] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def _restore_carry(self, flat: dict[str, Tensor]) -> None:
        device = next(self.model.parameters()).device
        placed = {name: tensor.to(device) for name, tensor in flat.items()}
        hidden = placed.pop("hidden", None)
        state = tuple(placed[str(index)] for index in range(len(placed)))
        self.carry = Carry(state, hidden) if state else None


def _by_owner(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    owners: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        owner, _, rest = name.partition(".")
        owners.setdefault(owner, {})[rest] = tensor
    return owners
