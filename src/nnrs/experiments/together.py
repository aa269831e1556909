"""Several runs prepared together and finished side by side: as fleets on a GPU, else one after the other.

A single run is the same with one. What comes out of a run does not depend on those beside it.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from nnrs.batches import Windows
from nnrs.errors import DivergenceError, RunError
from nnrs.experiments.config import TRANSLATE, RunConfig
from nnrs.experiments.load import config_of
from nnrs.experiments.prepare import Shelf, prepare
from nnrs.experiments.run import SCORED, Run, claim_unfinished, reopened, steps_to_continue
from nnrs.run_directory import Json, RunDirectory, folder_at_once
from nnrs.training.agreement import BATCHED, shared_settings
from nnrs.training.events import Callback
from nnrs.wording import counted


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with a summary, with an error, or with neither where it was stopped before its end."""

    run: Run
    summary: Json | None = None
    error: DivergenceError | None = None


@contextmanager
def fitting_memory(what: Path | str) -> Iterator[None]:
    """Say in one line that the GPU does not hold `what`."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise RunError(
            f"{what} does not fit the GPU's memory. Use a smaller --preset or --batch-size; where runs share the GPU "
            "(--jobs), fewer at a time."
        ) from None


def can_batch(config: RunConfig, device: torch.device) -> bool:
    """Whether such a run trains in a fleet."""
    alike = config.model.kind in BATCHED and config.data.task != TRANSLATE  # sentences differ in length
    return device.type == "cuda" and alike


def trains_in_fleet(run: Run) -> bool:
    """Whether it does: one that several processes share does not."""
    return run.group.size == 1 and can_batch(run.parts.config, run.device)


def start_together(
    configs: Sequence[RunConfig], out: Path, names: Sequence[str], device: torch.device
) -> list[Run]:
    """New runs in the directories `out`/name, which appear all at once, when everything is read and built."""
    _refuse_runs(configs, out, names)  # before any work is done
    RunDirectory(out).check_free()
    shelf = Shelf()
    runs = [
        Run(RunDirectory(out / name), prepare(config, device, shelf))
        for config, name in zip(configs, names, strict=True)
    ]
    with folder_at_once(out) as hidden:
        for run in runs:
            run.write_beginning(hidden / run.directory.path.name)
    return runs


def _refuse_runs(configs: Sequence[RunConfig], out: Path, names: Sequence[str]) -> None:
    """An error where there are runs already, which says how to have those that are missing beside them."""
    held = [run.path.name for run in RunDirectory.within(out)]
    if not held:
        return
    told = f"{out} holds {counted(len(held), 'run')} already, and nothing is overwritten. "
    told += f"Continue with --out {out} --resume alone."
    missing = [(config.seed, name) for config, name in zip(configs, names, strict=True) if name not in held]
    if missing:
        seed, name = missing[0]
        told += f" Add a seed by itself: --seed {seed} --out {out / name}."
    raise RunError(told)


def resume_together(out: Path, device: torch.device, *, previous: bool = False) -> list[Run]:
    """All runs in `out`: a finished one as it ended, the others from their newest checkpoints (or those before).

    A kill may have come while a fleet was saving. Its runs then go back to the newest step that all of them have, to
    train side by side again.
    """
    directories = RunDirectory.within(out)
    if not directories:
        raise RunError(f"{out} holds no run directories. Were they made by `nnrs train --seeds`?")
    claim_unfinished(directories)
    chosen = zip(directories, chosen_steps(directories, device, previous), strict=True)
    found = [directory.checkpoint(step) if step else None for directory, step in chosen]
    shelf = Shelf()
    runs = [reopened(directory, device, shelf) for directory in directories]
    for run, checkpoint in zip(runs, found, strict=True):
        run.go_back(checkpoint)
    for run in runs:  # only now that none was refused
        if not run.finished:
            run.forget_later()
    return runs


def finish_together(
    runs: Sequence[Run], callbacks: Sequence[Sequence[Callback]], should_stop: Callable[[], bool]
) -> list[Outcome]:
    """Train every run to its end and write its summary.json; what became of each, in the order given.

    A run that diverges is left with its last checkpoint while the others go on. Runs that turn out too many for the
    GPU's memory go on in smaller fleets from their checkpoints. Once asked to stop, what is under way is saved and
    nothing more is begun.
    """
    if not runs:
        return []
    should_stop = runs[0].group.agreed(should_stop)
    for run, heard in zip(runs, callbacks, strict=True):
        run.trainer.callbacks = (run.saver, *heard) if run.group.leads else ()
        run.trainer.should_stop = should_stop
    try:
        claim_unfinished([run.directory for run in runs], runs[0].group)
        return _finish_all(runs, should_stop)
    finally:
        for run in runs:
            run.directory.release()


def _finish_all(runs: Sequence[Run], should_stop: Callable[[], bool]) -> list[Outcome]:
    outcomes = {run: Outcome(run, run.directory.summary()) for run in runs if run.finished}
    most = len(runs)
    while (waiting := [run for run in runs if run not in outcomes]) and not should_stop():
        fleet = _next_fleet(waiting, most)
        ended = _finish(fleet)
        if ended is None:  # it was measured to fit, and did not
            _take_back(fleet)
            most = len(fleet) // 2
        else:
            outcomes |= {outcome.run: outcome for outcome in ended}
    return [outcomes.get(run, Outcome(run)) for run in runs]


def common_steps(kept: Sequence[Sequence[int]]) -> list[int | None]:
    """Where runs that kept these checkpoints go on so that most train together, none where one kept none.

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


def chosen_steps(
    directories: Sequence[RunDirectory], device: torch.device, previous: bool
) -> list[int | None]:
    """Where each run goes on: those of a fleet at a common step, any other from its own newest."""
    kept = [
        steps_to_continue(directory, previous=previous and not is_finished(directory))
        for directory in directories
    ]
    chosen: list[int | None] = [steps[-1] if steps else None for steps in kept]
    fleets: dict[Hashable, list[int]] = {}
    for index, directory in enumerate(directories):
        config = config_of(directory)
        if can_batch(config, device) and not is_finished(directory):
            fleets.setdefault(_kind(config, directory.config()["text_sha256"]), []).append(index)
    for indices in fleets.values():
        shared = common_steps([kept[index] for index in indices])
        for index, step in zip(indices, shared, strict=True):
            chosen[index] = step
    return chosen


def is_finished(directory: RunDirectory) -> bool:
    """Whether its scores are written; one that was taken back has none."""
    return directory.summary() is not None


def _kind(config: RunConfig, text_sha256: str) -> Hashable:
    """What the runs of a fleet have in common, wherever they stand. The vocabulary is part of the text."""
    return text_sha256, *shared_settings(config.model, config.training, config.optimizer).values()


def _next_fleet(runs: Sequence[Run], most: int) -> list[Run]:
    """The first run and those that train beside it: as many as the device can hold, and `most`, of its kind."""

    def kind(run: Run) -> Hashable:
        return _kind(run.parts.config, run.parts.text.fingerprint), run.trainer.live.position.step

    if not trains_in_fleet(runs[0]):
        return [runs[0]]
    alike = [run for run in runs if kind(run) == kind(runs[0])]
    fleets = -(-len(alike) // min(most, _affordable(alike)))
    return alike[: -(-len(alike) // fleets)]  # about as many as in the fleets to come


def _affordable(runs: Sequence[Run]) -> int:
    from nnrs.training.fleet import affordable

    return affordable([run.trainer for run in runs], _valid_windows(runs[0]))


def _valid_windows(run: Run) -> Windows:
    return run.windows_of("valid", run.parts.config.training.valid_streams)


def _finish(runs: Sequence[Run]) -> list[Outcome] | None:
    """What became of each; None where the GPU's memory does not hold so many."""
    if len(runs) == 1:
        with fitting_memory(runs[0].directory.path):
            return _batched(runs) if trains_in_fleet(runs[0]) else [_alone(runs[0])]
    try:
        return _batched(runs)
    except torch.OutOfMemoryError:
        return None


def _take_back(runs: Sequence[Run]) -> None:
    """Have runs that broke off stand where a resume would find them."""
    shelf, steps = Shelf(), common_steps([run.directory.steps() for run in runs])
    for run, step in zip(runs, steps, strict=True):
        run.start_over(shelf)
        run.go_back(run.directory.checkpoint(step) if step else None)
        run.forget_later()


def _alone(run: Run) -> Outcome:
    try:
        done = run.trainer.fit()
    except DivergenceError as error:
        return Outcome(run, error=error)
    finally:
        run.wait()
    run.group.meet()  # torchrun ends all processes soon after the first: none may go while the leader saves
    if not done:
        return Outcome(run)
    if not run.group.leads:
        return Outcome(run, {})  # the scores are the leader's
    run.load_best()
    return Outcome(run, run.summarise({split: run.losses(split) for split in SCORED}))


def _batched(runs: Sequence[Run]) -> list[Outcome]:
    from nnrs.training.fleet import Fleet

    try:
        fleet = Fleet([run.trainer for run in runs], valid=_valid_windows(runs[0]))
        done = fleet.fit()
    finally:
        for run in runs:
            run.wait()
    outcomes = [Outcome(run, error=fleet.failures.get(index)) for index, run in enumerate(runs)]
    survivors = [index for index in range(len(runs)) if index not in fleet.failures]
    if not done or not survivors:
        return outcomes
    for index in survivors:
        runs[index].load_best()
    losses = {split: fleet.losses(runs[0].windows_of(split)) for split in SCORED}
    for index in survivors:
        made = {split: rows[index] for split, rows in losses.items()}
        outcomes[index] = Outcome(runs[index], runs[index].summarise(made))
    return outcomes
