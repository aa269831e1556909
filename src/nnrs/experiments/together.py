"""Several runs prepared together and finished side by side: as fleets on a GPU, else one after the other.

A single run is the same with one. What comes out of a run does not depend on its company.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from nnrs.batches import Windows
from nnrs.errors import DivergenceError, RunError
from nnrs.experiments.config import RunConfig
from nnrs.experiments.load import config_of
from nnrs.experiments.prepare import Shelf, prepare
from nnrs.experiments.run import Run, reopened, steps_to_continue
from nnrs.experiments.writer import Recorder
from nnrs.run_directory import Json, RunDirectory, folder_at_once
from nnrs.training.events import Callback

BATCHED = ("lstm", "gru")  # the models that a fleet can train


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with a summary, with an error, or with neither where it was stopped before its end."""

    run: Run
    summary: Json | None = None
    error: DivergenceError | None = None


def can_batch(config: RunConfig, device: torch.device) -> bool:
    """Whether such a run trains in a fleet."""
    return device.type == "cuda" and config.model.kind in BATCHED


def start_together(
    configs: Sequence[RunConfig], out: Path, names: Sequence[str], device: torch.device
) -> list[Run]:
    """New runs in the directories `out`/name, which appear all at once, when everything is read and built."""
    RunDirectory(out).check_free()  # before any work is done
    shelf = Shelf()
    runs = [
        Run(RunDirectory(out / name), prepare(config, device, shelf))
        for config, name in zip(configs, names, strict=True)
    ]
    with folder_at_once(out) as hidden:
        for run in runs:
            run.write_beginning(hidden / run.directory.path.name)
    return runs


def resume_together(out: Path, device: torch.device, *, previous: bool = False) -> list[Run]:
    """All runs in `out`: a finished one as it ended, the others from their newest checkpoints (or those before).

    A kill may have come while a fleet was saving. Its members then go back to the newest step that all of them
    have, to train side by side again.
    """
    directories = RunDirectory.within(out)
    if not directories:
        raise RunError(f"{out} holds no run directories. Were they made by `nnrs train --seeds`?")
    chosen = zip(directories, _chosen_steps(directories, device, previous), strict=True)
    found = [directory.checkpoint(step) if step else None for directory, step in chosen]
    shelf = Shelf()
    runs = [reopened(directory, device, shelf) for directory in directories]
    for run, checkpoint in zip(runs, found, strict=True):
        run.go_back(checkpoint)
    for run in runs:  # only now that none was refused
        run.forget_later()
    return runs


def finish_together(
    runs: Sequence[Run], callbacks: Sequence[Sequence[Callback]], should_stop: Callable[[], bool]
) -> list[Outcome]:
    """Train every run to its end and write its summary.json; what became of each, in the order given.

    A run that diverges is left with its last checkpoint while the others go on. Once asked to stop, what is under
    way is saved and nothing more is begun.
    """
    for run, heard in zip(runs, callbacks, strict=True):
        run.trainer.callbacks = (Recorder(run.directory), *heard)
        run.trainer.should_stop = should_stop
    outcomes = {run: Outcome(run, run.directory.summary()) for run in runs if run.finished}
    for crew in _crews([run for run in runs if run not in outcomes]):
        if should_stop():
            break
        ended = _finish_fleet(crew) if _can_batch(crew[0]) else [_finish_alone(run) for run in crew]
        outcomes |= {outcome.run: outcome for outcome in ended}
    return [outcomes.get(run, Outcome(run)) for run in runs]


def common_steps(kept: Sequence[Sequence[int]]) -> list[int | None]:
    """Where members that kept these checkpoints go on so that most train together, none where one kept none.

    The step that most of them have, and of several such the newest; the rest among themselves likewise.

    >>> common_steps([[20, 30], [20, 30], [10, 20]]), common_steps([[20, 30], [10], []])
    ([20, 20, 20], [30, 10, None])
    """
    chosen: list[int | None] = [None] * len(kept)
    waiting = {index for index, steps in enumerate(kept) if steps}
    while waiting:
        having = Counter(step for index in waiting for step in kept[index])
        common = max(having, key=lambda step: (having[step], step))
        for index in [index for index in waiting if common in kept[index]]:
            chosen[index] = common
            waiting.remove(index)
    return chosen


def _chosen_steps(
    directories: Sequence[RunDirectory], device: torch.device, previous: bool
) -> list[int | None]:
    """Where each run goes on: those of a fleet at a common step, any other from its own newest."""
    kept = [
        steps_to_continue(directory, previous=previous and not _is_finished(directory))
        for directory in directories
    ]
    chosen: list[int | None] = [steps[-1] if steps else None for steps in kept]
    fleets: dict[Hashable, list[int]] = {}
    for index, directory in enumerate(directories):
        config = config_of(directory)
        if can_batch(config, device) and not _is_finished(directory):
            fleets.setdefault(_kin(config, directory.config()["text_sha256"]), []).append(index)
    for members in fleets.values():
        shared = common_steps([kept[index] for index in members])
        for index, step in zip(members, shared, strict=True):
            chosen[index] = step
    return chosen


def _is_finished(directory: RunDirectory) -> bool:
    """Whether its scores are written and belong to its last epoch: a run that was taken back has them, too."""
    epochs = config_of(directory).training.epochs
    return directory.summary() is not None and len(directory.records("metrics")) == epochs


def _crews(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Runs that train side by side: as many of a kind as the device can hold, else each alone."""
    groups: dict[Hashable, list[Run]] = {}
    for run in runs:
        groups.setdefault(_company(run) if _can_batch(run) else run, []).append(run)
    for group in groups.values():
        while group:
            crews = -(-len(group) // (_affordable(group) if _can_batch(group[0]) else 1))
            size = -(-len(group) // crews)  # about the same for each
            yield group[:size]
            group = group[size:]


def _can_batch(run: Run) -> bool:
    return can_batch(run.parts.config, run.device)


def _company(run: Run) -> Hashable:
    """What the members of a fleet have in common."""
    position = run.trainer.live.position
    kin = _kin(run.parts.config, run.parts.text.fingerprint)
    return kin, position.epoch, position.window, position.step


def _kin(config: RunConfig, text_sha256: str) -> Hashable:
    """What the members of a fleet have in common, wherever they stand. The vocabulary is part of the text."""
    model = config.model
    shape = (model.kind, model.units, model.layers, model.tied)
    return text_sha256, shape, config.training, config.optimizer.name


def _affordable(group: Sequence[Run]) -> int:
    from nnrs.training.fleet import affordable

    return affordable([run.trainer for run in group], _valid_windows(group[0]))


def _valid_windows(run: Run) -> Windows:
    return run.windows_of("valid", run.parts.config.training.valid_streams)


def _finish_alone(run: Run) -> Outcome:
    try:
        done = run.trainer.fit()
    except DivergenceError as error:
        return Outcome(run, error=error)
    finally:
        run.wait()
    if not done:
        return Outcome(run)
    run.load_best()
    return Outcome(run, run.summarise(run.perplexity("valid"), run.perplexity("test")))


def _finish_fleet(crew: Sequence[Run]) -> list[Outcome]:
    from nnrs.training.fleet import Fleet

    try:
        fleet = Fleet([run.trainer for run in crew], valid=_valid_windows(crew[0]))
        done = fleet.fit()
    except torch.OutOfMemoryError:
        raise RunError(
            f"{len(crew)} runs do not fit the GPU's memory. Use a smaller --preset or --batch-size, or fewer seeds."
        ) from None
    finally:
        for run in crew:
            run.wait()
    outcomes = [Outcome(run, error=fleet.failures.get(index)) for index, run in enumerate(crew)]
    if not done:
        return outcomes
    survivors = [index for index in range(len(crew)) if index not in fleet.failures]
    for index in survivors:
        crew[index].load_best()
    if survivors:
        valid, test = (fleet.perplexities(crew[0].windows_of(split)) for split in ("valid", "test"))
        for index in survivors:
            outcomes[index] = Outcome(crew[index], crew[index].summarise(valid[index], test[index]))
    return outcomes
