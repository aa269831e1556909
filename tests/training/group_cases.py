"""What both a process alone and the processes of a group train, to be compared."""

from dataclasses import replace

from tests.training.test_loop import make_trainer

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
    "gsns": {"method": "gsns", "optimizer": "adamw", "lr": 0.01},
    "targets": {"method": "ss-nnrs", "replace": "targets", "rule": "effective", "lr": 2.0},
}
RESUMED = "ss, parallel"
HALF = 37  # windows: in the second of two epochs


def trainer_of(name, group):
    """The trainer of a case, and what is heard of it."""
    trainer, heard = make_trainer(epochs=2, **CASES[name])
    return replace(trainer, group=group), heard
