"""Small runs that are begun and finished together, and what they leave on disk."""

import math

import torch
from safetensors.numpy import load_file

from nnrs.experiments.config import RunConfig
from nnrs.experiments.together import finish_together, start_together

CPU = torch.device("cpu")
EPOCHS, WINDOWS = 3, 6  # 54 lines of 9 tokens in 8 rows: 60 columns, 10 at a time


def config(text, method="ss-nnrs", seed=1, **training):
    rate = {"shape": "static", "end": 0.5}
    return RunConfig.from_dict(
        {
            "data": {"source": str(text)},
            "policy": {"method": method, "neighbor_rate": None if method in ("mle", "ss") else rate},
            "model": {"preset": "tiny", "units": 8},
            "optimizer": {"name": "adamw", "learning_rate": 0.02},
            "training": {"epochs": EPOCHS, "batch_size": 8, "bptt": 10, **training},
            "seed": seed,
        }
    )


def seeds(text, *numbers, **settings):
    return [config(text, seed=number, **settings) for number in numbers]


def begin(configs, out):
    return start_together(configs, out, [f"seed-{config.seed}" for config in configs], CPU)


def finish(runs, should_stop=lambda: False):
    return finish_together(runs, [()] * len(runs), should_stop)


def content(path):
    """A file's bytes; of safetensors each tensor's, for the order of the metadata is left to chance there."""
    if path.suffix != ".safetensors":
        return path.read_bytes()
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in load_file(path).items()}


def files(run):
    """Every file of a run that does not depend on the clock."""
    return {path.name: content(path) for path in run.iterdir() if path.name != "timing.jsonl"}


def ruin(run):
    """Have this run diverge at the end of its second epoch."""
    validate = run.trainer.validate
    run.trainer.validate = lambda model: math.nan if run.trainer.live.position.epoch == 1 else validate(model)
