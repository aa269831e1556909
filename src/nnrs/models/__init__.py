"""The four sequence models by name, and those of them that translate."""

from collections.abc import Callable
from functools import partial

import torch

from nnrs.models.base import PRESETS, Masks, ModelConfig, SequenceModel, State
from nnrs.models.highway import Highway
from nnrs.models.recurrent import GRU, LSTM
from nnrs.models.transformer import Transformer
from nnrs.models.translator import GRUTranslator, LSTMTranslator, Translator
from nnrs.registry import look_up
from nnrs.seeding import Random

__all__ = [
    "MODELS",
    "PRESETS",
    "TRANSLATORS",
    "Masks",
    "ModelConfig",
    "SequenceModel",
    "State",
    "Translator",
    "build_model",
]

MODELS: dict[str, type[SequenceModel]] = {
    "lstm": LSTM,
    "gru": GRU,
    "highway": Highway,
    "transformer": Transformer,
}
TRANSLATORS: dict[str, type[Translator]] = {"lstm": LSTMTranslator, "gru": GRUTranslator}


def build_model(
    config: ModelConfig, vocab_size: int, random: Random, source_vocab_size: int | None = None
) -> SequenceModel:
    """A model on the CPU, every parameter drawn from `random`; torch's global generator is left alone.

    It is a translator where there is a vocabulary to translate from.
    """
    make: Callable[[], SequenceModel]
    if source_vocab_size is None:
        make = partial(look_up(MODELS, config.kind, "model"), config, vocab_size)
    else:
        make = partial(look_up(TRANSLATORS, config.kind, "translator"), config, vocab_size, source_vocab_size)
    # torch's layers draw from the global generator when they are made. (The meta device would avoid the drawing, but
    # entering it imports the compiler, a second at every start.)
    with torch.random.fork_rng(devices=()):
        model = make()
    model.initialise(random)
    return model
