"""The four sequence models, by name."""

import torch

from nnrs.models.base import PRESETS, Masks, ModelConfig, SequenceModel, State
from nnrs.models.highway import Highway
from nnrs.models.recurrent import GRU, LSTM
from nnrs.models.transformer import Transformer
from nnrs.registry import look_up
from nnrs.seeding import Random

__all__ = ["MODELS", "PRESETS", "Masks", "ModelConfig", "SequenceModel", "State", "build_model"]

MODELS: dict[str, type[SequenceModel]] = {
    "lstm": LSTM,
    "gru": GRU,
    "highway": Highway,
    "transformer": Transformer,
}


def build_model(config: ModelConfig, vocab_size: int, random: Random) -> SequenceModel:
    """A model on the CPU, every parameter drawn from `random`; torch's global generator is left alone."""
    model_type = look_up(MODELS, config.kind, "model")
    # torch's layers draw from the global generator when they are made. (The meta device would avoid the drawing, but
    # entering it imports the compiler, a second at every start.)
    with torch.random.fork_rng(devices=()):
        model = model_type(config, vocab_size)
    model.initialise(random)
    return model
