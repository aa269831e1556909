"""What the tests of a run's directory and of its checkpoints share."""

import json

import torch

from nnrs.run_directory import RunDirectory


def reconfigure(path, change):
    """Change the configuration of a run as if it had begun with another."""
    config = RunDirectory(path).config()
    change(config)
    (path / "config.json").unlink()
    other = RunDirectory.create(path / "other", config)
    (other.path / "config.json").rename(path / "config.json")
    other.path.rmdir()


def edit_config(path, section, **values):
    """Edit settings by hand, in a section of config.json or beside them."""
    config = json.loads((path / "config.json").read_text())
    (config[section] if section else config).update(values)
    (path / "config.json").write_text(json.dumps(config))


def names(run):
    """The files of a run."""
    return sorted(path.name for path in run.path.iterdir())


def save(run, step, best=False):
    """A checkpoint at a step, and where it is the best so far, the model."""
    tensors = {"weight": torch.full((3,), float(step))}
    if best:
        run.write_best(tensors, {"step": step})
    run.write_checkpoint(tensors, {"step": step, "note": "ö"})
