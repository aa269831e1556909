"""What a run directory holds, as live objects: its configuration and its best model."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nnrs.arguments import checked_device
from nnrs.errors import RunError
from nnrs.experiments.config import TRANSLATE, RunConfig, settings_of
from nnrs.models import build_model
from nnrs.models.base import SequenceModel
from nnrs.neighbors.table import NeighborTable
from nnrs.run_directory import RunDirectory
from nnrs.seeding import Random, Stream
from nnrs.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False, repr=False)
class LoadedRun:
    """What `nnrs.load` gives: the best model of a run, its vocabulary and its neighbor table.

    Of a gsns run the similarities are the learned logits: its probabilities are those at temperature 1.
    """

    model: SequenceModel
    vocabulary: Vocabulary
    source_vocabulary: Vocabulary | None  # of what it translates from, where it does
    table: NeighborTable | None
    config: RunConfig
    best_epoch: int
    valid_perplexity: float  # of that epoch, as training measured it: in several streams at once
    path: Path

    def __repr__(self) -> str:
        which = f"{self.config.policy.method} {self.config.model.label()}"
        return (
            f"<LoadedRun {self.path}: {which}, best epoch {self.best_epoch}, "
            f"validation perplexity {self.valid_perplexity:.2f}>"
        )


def load(path: Path | str, device: torch.device | str = "cpu") -> LoadedRun:
    """The best model of a run directory, ready for evaluation."""
    device, directory = checked_device(device), RunDirectory.open(path)
    config = config_of(directory)
    vocabulary = Vocabulary.from_json(directory.vocabulary())
    sources = Vocabulary.from_json(directory.source_vocabulary()) if config.data.task == TRANSLATE else None
    tensors, state = directory.best()
    random = Random(config.seed, Stream.INITIALISATION)
    model = build_model(config.model, len(vocabulary), random, len(sources) if sources else None)
    with fitting(directory):
        model.load_state_dict(model_tensors(tensors))
    table = NeighborTable.load(directory.table_path) if directory.table_path.is_file() else None
    if table and "policy.neighbor_logits" in tensors:
        table = table.reweighted(tensors["policy.neighbor_logits"])
    return LoadedRun(
        model.to(device),
        vocabulary,
        sources,
        table,
        config,
        best_epoch=state["best_epoch"],
        valid_perplexity=state["best_valid_perplexity"],
        path=directory.path,
    )


def config_of(directory: RunDirectory) -> RunConfig:
    """The configuration that a run directory holds."""
    return RunConfig.from_dict(settings_of(directory.config()))


def model_tensors(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The model's own among the tensors of a checkpoint."""
    return {
        name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")
    }


@contextmanager
def fitting(directory: RunDirectory) -> Iterator[None]:
    """Say in one line that tensors are not those of the model that config.json describes."""
    try:
        yield
    except RuntimeError:
        raise RunError(
            f"the weights in {directory.path} do not fit the model in its config.json. Are they of another run?"
        ) from None
