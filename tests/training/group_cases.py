"""What both a process alone and the processes of a group train, to be compared."""

from dataclasses import replace

import torch
from tests.training.test_loop import TRAIN, VOCAB, make_trainer

from nnrs.models import build_model
from nnrs.pairs import Pairs, Sentences
from nnrs.seeding import Random, Stream

CASES = {
    "mle": {"method": "mle", "lr": 2.0},
    "nnrs": {"method": "nnrs", "lr": 2.0},
    "ss, parallel": {"method": "ss", "lr": 2.0},
    "ss, exact": {"method": "ss", "unroll": "exact", "lr": 2.0},
    "ss-nnrs, transformer": {
        "method": "ss-nnrs",
        "kind": "transformer",
        "granularity": "position",
        "optimizer": "adamw",
        "lr": 0.01,
    },
    "ss, weights dropped": {"method": "ss", "weight_dropout": 0.4, "lr": 2.0},
    "gsns": {"method": "gsns", "optimizer": "adamw", "lr": 0.01},
    "translate": {"method": "ss-nnrs", "unroll": "exact", "translates": True, "lr": 2.0},
    "targets": {"method": "ss-nnrs", "replace": "targets", "rule": "effective", "lr": 2.0},
}
RESUMED = "ss, parallel"
HALF = 37  # windows: in the second of two epochs


def trainer_of(name, group):
    """The trainer of a case, and what is heard of it."""
    settings = dict(CASES[name])
    translates = settings.pop("translates", False)
    trainer, heard = make_trainer(epochs=2, **settings)
    if translates:
        model = build_model(trainer.model.config, VOCAB, Random(1, Stream.INITIALISATION), VOCAB)
        trainer = replace(trainer, model=model, windows=pairs(), validate=lambda _: 20.0)
    return replace(trainer, group=group), heard


def pairs(count=21):
    """Sentences of different lengths, translated into themselves: of 21 the last batch of 6 has 3."""
    lengths = torch.arange(count) % 5 + 2
    sentences = Sentences(TRAIN[: int(lengths.sum())], lengths)
    return Pairs(sentences, sentences, batch_size=6, eos_id=0)
