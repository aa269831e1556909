"""Cells of a plan from their start to their results: what a worker does, on this machine or on another.

Nothing here is lost to a kill. A run directory appears all at once, its checkpoints make up for the rest, and a cell
counts as done when its result.json is there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from nnrs.errors import DivergenceError, NnrsError, RunError
from nnrs.experiments.plan import Cell
from nnrs.experiments.prepare import Shelf, prepare
from nnrs.experiments.run import Run, reopened
from nnrs.experiments.scoring import evaluate_run
from nnrs.experiments.store import build_result, present_model, shown_request
from nnrs.experiments.subject import Request
from nnrs.experiments.together import chosen_steps, finish_together, fitting_memory
from nnrs.experiments.trajectory import trajectory_of
from nnrs.grid_directory import GridDirectory
from nnrs.run_directory import RunDirectory, folder_at_once


@dataclass(frozen=True, kw_only=True)
class News:
    """What becomes of a cell: measuring, and in the end done, trained, busy, stopped, error, diverged or lost."""

    name: str
    how: str  # trained: to be measured yet; busy: another process is at it; lost: the process that was at it died
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where work is done, and what it needs there."""

    grid: GridDirectory
    device: torch.device
    threads: int  # of a run that begins here; one that goes on keeps its own, for the same last digits
    shelf: Shelf
    should_stop: Callable[[], bool] = lambda: False


def is_done(path: Path, request: Request) -> bool:
    """Whether a run directory holds a result of its present model, with the scores that are asked for."""
    directory = RunDirectory(path)
    record = directory.result()
    if record is None or record.get("request") != shown_request(request):
        return False
    return present_model(directory) in (None, record.get("model"))


def work_on(cells: Sequence[Cell], request: Request, place: Place) -> Iterator[News]:
    """Claim the cells, train them (as a fleet where they can be one), measure one that is alone, write its result.

    Several are left as trained: each can be measured by itself, wherever there is time.
    """
    claims = {cell.name: place.grid.claim(cell.name) for cell in cells}
    try:
        mine = []
        for cell in cells:
            if claims[cell.name] is None:
                yield News(name=cell.name, how="busy")
            elif is_done(place.grid.run_path(cell.name), request):  # by someone else, a moment ago
                yield News(name=cell.name, how="done")
            else:
                mine.append(cell)
        yield from _carry_out(mine, request, place)
    finally:
        for claim in claims.values():
            if claim:
                claim.release()


def _carry_out(cells: Sequence[Cell], request: Request, place: Place) -> Iterator[News]:
    runs: dict[str, Run] = {}
    begun = {cell.name for cell in cells if place.grid.run_path(cell.name).exists()}
    for cell in cells:
        try:
            with fitting_memory(cell.name):
                runs[cell.name] = _reopened(cell, place) if cell.name in begun else _started(cell, place)
        except NnrsError as error:
            yield _failed(cell.name, error)
    again = [name for name in runs if name in begun]
    for name, step in zip(again, _steps([runs[name] for name in again], place), strict=True):
        try:
            with fitting_memory(name):
                runs[name].go_back(runs[name].directory.checkpoint(step) if step else None)
            if not runs[name].finished:
                runs[name].forget_later()
        except NnrsError as error:
            del runs[name]
            yield _failed(name, error)
    try:
        outcomes = finish_together(list(runs.values()), [()] * len(runs), place.should_stop)
    except NnrsError as error:
        yield from (_failed(name, error) for name in runs)
        return
    concerned = [cell for cell in cells if cell.name in runs]
    for cell, outcome in zip(concerned, outcomes, strict=True):
        if outcome.error:
            yield _failed(cell.name, outcome.error)
        elif outcome.summary is None or place.should_stop():
            yield News(name=cell.name, how="stopped")
        elif len(cells) > 1:
            yield News(name=cell.name, how="trained")
        else:
            yield from _measured(cell, outcome.run, request, place)


def _started(cell: Cell, place: Place) -> Run:
    """A new run, whose directory appears all at once."""
    torch.set_num_threads(place.threads)
    place.grid.drop_half_made(cell.name)
    run = Run(RunDirectory(place.grid.run_path(cell.name)), prepare(cell.config, place.device, place.shelf))
    with folder_at_once(run.directory.path) as hidden:
        run.write_beginning(hidden)
    return run


def _reopened(cell: Cell, place: Place) -> Run:
    """A run that was begun, at its start."""
    directory = RunDirectory.open(place.grid.run_path(cell.name))
    # A damaged file is this cell's error, and not that of all that train beside it.
    directory.records("metrics")
    directory.summary()
    torch.set_num_threads(directory.config()["environment"]["threads"])
    return reopened(directory, place.device, place.shelf)


def _steps(runs: Sequence[Run], place: Place) -> list[int | None]:
    """Where runs that were begun go on: at their newest checkpoints, those of a fleet at a common step."""
    return chosen_steps([run.directory for run in runs], place.device, previous=False)


def _measured(cell: Cell, run: Run, request: Request, place: Place) -> Iterator[News]:
    yield News(name=cell.name, how="measuring")
    try:
        evaluate_run(run.directory.path, place.device, request, shelf=place.shelf)
        run.load_best()  # a run that was found at its end stands at its last epoch
        run.directory.write_result(build_result(run.directory, cell, request, trajectory_of(run)).record)
    except NnrsError as error:
        yield _failed(cell.name, error)
    except torch.OutOfMemoryError:
        why = f"measuring {cell.name} does not fit the GPU's memory. Measure fewer at a time: --jobs 1."
        yield _failed(cell.name, RunError(why))
    else:
        yield News(name=cell.name, how="done")


def _failed(name: str, error: NnrsError) -> News:
    how = "diverged" if isinstance(error, DivergenceError) else "error"
    return News(name=name, how=how, error=" ".join(str(error).split()))
