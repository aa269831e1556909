"""The same grid on a Ray cluster: one plain task for each missing cell, on a folder that all machines share."""

import logging
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from nnrs.errors import ConfigError, RunError
from nnrs.experiments.grid import TRIES, Board, GridOutcome, Progress, ensure_explorer, open_grid, share_out
from nnrs.experiments.plan import Cell, Plan, request_of
from nnrs.experiments.prepare import Shelf, choose_device
from nnrs.experiments.subject import Request
from nnrs.experiments.work import News, Place, work_on
from nnrs.grid_directory import GridDirectory
from nnrs.run_directory import Json

QUEUE = 1000


def run_on_ray(
    plan: Plan,
    out: Path | str,
    *,
    address: str,
    device: str = "auto",
    watch: Callable[[Progress], None] = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> GridOutcome:
    """Carry out what is missing of a plan on the cluster at `address` (`auto`: the one this machine belongs to).

    Each cell has one CPU, and a GPU where the cluster has some and `device` does not say otherwise. Ray retries a
    task whose machine is lost, and it goes on from the last checkpoint.
    """
    with redirect_stdout(
        sys.stderr
    ):  # Ray prints there when a machine is lost, and results belong there alone
        return _run_on(_connected(address), plan, Path(out).resolve(), device, watch, should_stop)


def _run_on(
    ray: Any,
    plan: Plan,
    out: Path,
    device: str,
    watch: Callable[[Progress], None],
    should_stop: Callable[[], bool],
) -> GridOutcome:
    try:
        grid, plan = open_grid(plan, out)
        board = Board(grid, plan)
        has_gpus = ray.cluster_resources().get("GPU", 0) > 0
        chosen = "cuda" if device == "auto" and has_gpus else "cpu" if device == "auto" else device
        share_out(board, Tasks(ray, grid, chosen), watch, should_stop)
        if not board.left:
            ensure_explorer(grid, plan)
        return board.outcome()
    finally:
        ray.shutdown()  # leaves the cluster; where it was started elsewhere, it stays


class Tasks:
    """Cells as Ray tasks. Which machine does what, and when, is Ray's affair."""

    def __init__(self, ray: Any, grid: GridDirectory, device: str) -> None:
        self._ray, self._folder, self._device = ray, str(grid.path), device
        needs = {"num_cpus": 1, "num_gpus": 1 if device.startswith("cuda") else 0}
        self._task = ray.remote(**needs, max_retries=TRIES)(carry_out)
        self._names: dict[Any, str] = {}

    @property
    def cells(self) -> list[str]:
        """The names of what was given."""
        return list(self._names.values())

    @property
    def have_time(self) -> bool:
        """Ray keeps a queue; it need not be longer than this."""
        return len(self._names) < QUEUE

    def takes(self, cell: Cell) -> bool:
        """Ray finds a place for it."""
        return True

    def kind(self, cell: Cell) -> None:
        """Every cell is a task of its own."""

    def give(self, cells: Sequence[Cell], request: Request) -> None:
        """Have each worked on, wherever there is room."""
        for cell in cells:
            reference = self._task.remote(self._folder, self._device, cell.as_dict(), asdict(request))
            self._names[reference] = cell.name

    def hear(self, seconds: float) -> list[News]:
        """What became of one of them."""
        ended, _ = self._ray.wait(list(self._names), timeout=seconds) if self._names else ([], [])
        return [self._news(reference, self._names.pop(reference)) for reference in ended]

    def stop(self) -> None:
        """End all at once: what they are at goes on from its checkpoints the next time."""
        for reference in self._names:
            self._ray.cancel(reference, force=True)

    def _news(self, reference: Any, name: str) -> News:
        try:
            return News(**self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            return News(name=name, how="lost", error=" ".join(str(error).split())[:500])


def carry_out(folder: str, device: str, cell: Json, request: Json) -> Json:
    """One cell from its start to its result, on whichever machine this runs: the last news of it."""
    place = Place(grid=GridDirectory(folder), device=choose_device(device), threads=1, shelf=_shelf())
    *_, news = work_on([Cell.from_dict(cell)], request_of(request), place)
    return asdict(news)


@cache
def _shelf() -> Shelf:
    """What the tasks of one process share: Ray gives a process one task after the other."""
    return Shelf()


def _connected(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise ConfigError("--ray needs Ray: install it with `pip install 'nnrs[ray]'`.") from None
    try:
        host, _, port = address.rpartition(":")
        if host and port.isdecimal() and "//" not in host:  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise RunError(
            f"no Ray cluster answers at '{address}': {reason}. Start one with `ray start --head`."
        ) from None
    return ray
