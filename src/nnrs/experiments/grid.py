"""A plan carried out in a folder: what is missing is run, what is done is skipped, whatever was killed before.

Several processes may carry out one plan in one folder. They share the work through claims on its cells.
"""

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from nnrs.errors import NnrsError, RunError
from nnrs.experiments.explorer import FORMAT as EXPLORER_FORMAT
from nnrs.experiments.explorer import make_explorer
from nnrs.experiments.plan import Cell, Plan
from nnrs.experiments.prepare import choose_device
from nnrs.experiments.processes import Workers
from nnrs.experiments.subject import Request
from nnrs.experiments.work import News, is_done
from nnrs.files import read_json
from nnrs.grid_directory import EXPLORER_ANEW, GridDirectory
from nnrs.policies.methods import METHODS
from nnrs.run_directory import Json, RunDirectory

EXPLORED = ("ss-nnrs", "nnrs")  # the methods whose neighbors the page shows, if it can choose
TICK = 0.2  # seconds between two looks at the folder
TRIES = 3  # of a cell whose worker dies, in one go
MOST_TOGETHER = (
    128  # cells that a GPU is given at once; it trains as many of them side by side as it can hold
)
MEASURED_TOGETHER = 4  # runs that one GPU measures at a time, unless told otherwise
LOSSES = 10  # workers that die in a row before it is given up


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a grid stands."""

    total: int
    done: int
    failed: int
    running: int  # here; another process may be at others
    epochs: int
    all_epochs: int
    seconds_left: float | None  # None until something was done


@dataclass(frozen=True, kw_only=True)
class GridOutcome:
    """How a grid ended: how many cells are done, which failed and why, how many are left after a stop."""

    done: int
    failed: dict[str, str]
    diverged: int  # of those that failed: they would again
    remaining: int


def open_grid(plan: Plan, out: Path | str) -> tuple[GridDirectory, Plan]:
    """The folder and the plan as it stands there from now on: this one, with the names that its runs have already."""
    grid = GridDirectory(out)
    with grid.opened():
        before, merged = _continued(plan, grid)
        if merged != before:
            grid.write_plan(merged.as_dict())
    return grid, merged


def look_at(plan: Plan, out: Path | str) -> "Board":
    """What is known of a plan's cells in a folder that is left as it is, or is not there yet."""
    grid = GridDirectory(out)
    grid.refuse_others()
    return Board(grid, _continued(plan, grid)[1])


def _continued(plan: Plan, grid: GridDirectory) -> tuple[Plan | None, Plan]:
    """The plan that a folder holds, and this one as it continues it."""
    plan.check_measurable()
    stored = grid.plan()
    before = None if stored is None else Plan.from_dict(stored)
    return before, plan if before is None else plan.following(before, grid.path)


def run_grid(
    plan: Plan,
    out: Path | str,
    *,
    jobs: int | None = None,
    fleet: int | None = None,
    device: str = "auto",
    watch: Callable[[Progress], None] = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> GridOutcome:
    """Carry out what is missing of a plan, in worker processes; `watch` hears of the progress about once a second.

    There are `jobs` of them. On a GPU one trains as much side by side as it can, or `fleet` runs, and all of them
    measure what is trained; small fleets mean that the first runs are measured and safe early. What makes no fleet is
    trained one by one there, or by all of them where `jobs` is given: then the memory holds so many.
    A cell that fails is recorded and the others go on; the next call tries it again. Ends when every cell is done or
    has failed here, also those that another process is at.
    """
    chosen = choose_device(device)
    grid, plan = open_grid(plan, out)
    board = Board(grid, plan)
    if board.left:
        cores = len(os.sched_getaffinity(0))
        most = min(cores, MEASURED_TOGETHER) if chosen.type == "cuda" else cores
        shares, jobs = jobs is not None, min(jobs or most, len(plan.cells))
        # Of all cells, not of those that are left: a run begun after a restart has as many as one begun before.
        threads = torch.get_num_threads() if "OMP_NUM_THREADS" in os.environ else max(1, cores // jobs)
        with Workers(grid, chosen, jobs, threads, shares=shares) as workers:
            share_out(board, workers, watch, should_stop, fleet or MOST_TOGETHER)
    if not board.left:
        ensure_explorer(grid, plan)
    return board.outcome()


def ensure_explorer(grid: GridDirectory, plan: Plan) -> None:
    """Write explorer.json where none of this version is, from the finished run whose neighbors are most worth it."""
    path = grid.explorer_path
    if path.exists() and read_json(path, EXPLORER_ANEW).get("format") == EXPLORER_FORMAT:
        return
    near = [
        cell for cell in plan.cells if METHODS[cell.config.policy.method].rules
    ]  # the others have no table
    for cell in sorted(near, key=lambda cell: _rank(cell.config.policy.method)):
        explorer = _explorer_of(grid.run_path(cell.name), plan.request)
        if explorer:
            grid.write_explorer(explorer)
            return


def _explorer_of(path: Path, request: Request) -> Json | None:
    """What the explorers show of a run; None where it is not done, or its model is elsewhere, lost or damaged."""
    try:
        here = RunDirectory(path).parameters() is not None  # and not its record alone
        return make_explorer(path) if here and is_done(path, request) else None
    except NnrsError:
        return None


def _rank(method: str) -> int:
    return EXPLORED.index(method) if method in EXPLORED else len(EXPLORED)


class Board:
    """What is known of every cell."""

    def __init__(self, grid: GridDirectory, plan: Plan) -> None:
        self.grid, self.plan = grid, plan
        self.done = {cell.name for cell in plan.cells if is_done(grid.run_path(cell.name), plan.request)}
        self.failed: dict[str, str] = {}
        self._diverged = 0
        self.taken: set[str] = set()
        self._tries: Counter[str] = Counter()
        self._epochs = {cell.name: self.trained(cell.name) for cell in self.left}
        self._began, self._before = time.monotonic(), self._work()

    @property
    def left(self) -> list[Cell]:
        """What is neither done nor has failed, in the plan's order."""
        return [
            cell for cell in self.plan.cells if cell.name not in self.done and cell.name not in self.failed
        ]

    def free(self) -> Iterator[Cell]:
        """What nobody is at."""
        for cell in self.left:
            if cell.name in self.taken:
                continue
            if is_done(self.grid.run_path(cell.name), self.plan.request):
                self.done.add(cell.name)  # by another process
            elif not self.grid.is_claimed(cell.name):
                yield cell

    def hear(self, news: News) -> None:
        """Note what became of a cell, also in failures.jsonl. One that was lost is tried again, but not for ever."""
        if news.how == "measuring":
            return
        self.taken.discard(news.name)
        if news.how == "done":
            self.done.add(news.name)
        if not news.error:
            return
        self._tries[news.name] += 1
        tries, now = self._tries[news.name], datetime.now(UTC).isoformat(timespec="seconds")
        error = self.plan.worded(news.error)
        record = {"name": news.name, "kind": news.how, "error": error, "try": tries, "time": now}
        self.grid.add_failure(record)
        if news.how != "lost":
            self.failed[news.name] = error
            self._diverged += news.how == "diverged"
        elif tries == TRIES:
            self.failed[news.name] = f"lost {tries} times: {error}"

    def progress(self) -> Progress:
        """Where things stand, from the metrics that the runs under way have written."""
        self._epochs |= {name: self.trained(name) for name in self.taken}
        gained, total = self._work() - self._before, sum(_work_of(cell) for cell in self.plan.cells)
        seconds = time.monotonic() - self._began
        finished = {
            cell.name: cell.config.training.epochs for cell in self.plan.cells if cell.name in self.done
        }
        return Progress(
            total=len(self.plan.cells),
            done=len(self.done),
            failed=len(self.failed),
            running=len(self.taken),
            epochs=sum({**self._epochs, **finished}.values()),
            all_epochs=sum(cell.config.training.epochs for cell in self.plan.cells),
            seconds_left=seconds * (total - self._before - gained) / gained if gained else None,
        )

    def outcome(self) -> GridOutcome:
        """How it ended."""
        left = len(self.plan.cells) - len(self.done) - len(self.failed)
        return GridOutcome(
            done=len(self.done), failed=dict(self.failed), diverged=self._diverged, remaining=left
        )

    def trained(self, name: str) -> int:
        """The epochs that a cell has behind it."""
        try:
            return len(RunDirectory(self.grid.run_path(name)).records("metrics"))
        except RunError:  # damaged: whoever works on the cell will say so
            return 0

    def _work(self) -> int:
        """What is behind us, failures included."""
        over = self.done | self.failed.keys()
        return sum(
            _work_of(cell) if cell.name in over else self._epochs[cell.name] for cell in self.plan.cells
        )


def _work_of(cell: Cell) -> int:
    return cell.config.training.epochs + 1  # one for preparing and measuring


@runtime_checkable  # for the type checks in the tests
class Hands(Protocol):
    """Whoever does the work: processes of this machine, or tasks on a cluster."""

    @property
    def cells(self) -> list[str]:
        """The names of what is being worked on."""

    @property
    def have_time(self) -> bool:
        """Whether more can be given."""

    def takes(self, cell: Cell) -> bool:
        """Whether a cell can be begun beside what is being worked on."""

    def kind(self, cell: Cell) -> Hashable | None:
        """What cells have in common that are given together; None where each is given alone."""

    def give(self, cells: Sequence[Cell], request: Request) -> None:
        """Have cells worked on."""

    def hear(self, seconds: float) -> list[News]:
        """What became of cells; nothing where all is quiet for so long."""

    def stop(self) -> None:
        """Have all save and stop."""


def share_out(
    board: Board,
    hands: Hands,
    watch: Callable[[Progress], None],
    should_stop: Callable[[], bool],
    most: int = MOST_TOGETHER,
) -> None:
    """Give cells away until none is left, or until asked to stop; of a kind, at most so many together."""
    stopping, shown, losses = False, 0.0, 0
    while hands.cells if stopping else board.left:
        if should_stop() and not stopping:
            stopping = True
            hands.stop()
        free = filter(hands.takes, board.free())
        while not stopping and hands.have_time and (cell := next(free, None)):
            _give(cell, free, board, hands, most)
        heard = hands.hear(TICK)  # of a worker that died: of all its cells
        if stopping:
            heard = [
                news for news in heard if news.how != "lost"
            ]  # whoever is measuring is stopped by a kill
        for news in heard:
            board.hear(news)
        if heard:
            losses = losses + 1 if heard[0].how == "lost" else 0
            if losses == LOSSES:
                raise RunError(f"{losses} workers died one after the other, the last with: {heard[0].error}")
        if time.monotonic() - shown > 1.0:
            watch(board.progress())
            shown = time.monotonic()
    watch(board.progress())


def _give(cell: Cell, free: Iterator[Cell], board: Board, hands: Hands, most: int) -> None:
    """A cell, and with it those that are free and of its kind."""
    kind = hands.kind(cell)
    alike = (other for other in free if hands.kind(other) == kind) if kind else iter(())
    cells = [cell, *itertools.islice(alike, most - 1)]
    board.taken |= {each.name for each in cells}
    hands.give(cells, board.plan.request)
