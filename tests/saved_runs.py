"""What the tests of a run's directory and of its checkpoints share."""

import torch


def names(run):
    """The files of a run."""
    return sorted(path.name for path in run.path.iterdir())


def save(run, step, best=False):
    """A checkpoint at a step, and where it is the best so far, the model."""
    tensors = {"weight": torch.full((3,), float(step))}
    if best:
        run.write_best(tensors, {"step": step})
    run.write_checkpoint(tensors, {"step": step, "note": "ö"})
