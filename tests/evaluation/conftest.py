"""A small model that is sure of what it says."""

from collections.abc import Callable

import pytest
import torch

from nnrs.models import ModelConfig, build_model
from nnrs.models.base import SequenceModel
from nnrs.seeding import Random, Stream


@pytest.fixture(scope="session")
def make_model() -> Callable[..., SequenceModel]:
    """`make_model(kind, vocab)`: untrained, in float64, its embeddings large enough for its words to differ."""

    def make(kind: str = "lstm", vocab: int = 19) -> SequenceModel:
        config = ModelConfig(kind=kind, units=16, dropout=0.5, heads=2, context=2000)
        model = build_model(config, vocab, Random(1, Stream.INITIALISATION)).double()
        with torch.no_grad():
            model.embedding.weight.mul_(20)
        return model

    return make
