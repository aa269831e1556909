"""What runs must have in common to train as one batched model; in all else they may differ."""

from collections.abc import Hashable

from nnrs.models.base import ModelConfig
from nnrs.training.loop import TrainingConfig
from nnrs.training.optimize import OptimizerConfig

BATCHED = ("lstm", "gru", "highway")  # the models that a fleet can train


def shared_settings(
    model: ModelConfig, training: TrainingConfig, optimizer: OptimizerConfig
) -> dict[str, Hashable]:
    """The settings that the runs of a fleet agree in, by name; they also share a text and stand at one step."""
    return {
        "architecture": f"{model.label()}, {'tied' if model.tied else 'untied'}",
        "training": training,
        "optimizer": optimizer.name,
    }
