"""Worker processes, seen from the one that started them."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import asdict
from functools import partial

import torch

from nnrs.errors import NnrsError
from nnrs.experiments.plan import Cell
from nnrs.experiments.subject import Request
from nnrs.experiments.together import can_batch, is_finished
from nnrs.experiments.work import News
from nnrs.grid_directory import GridDirectory
from nnrs.run_directory import Json, RunDirectory
from nnrs.training.agreement import shared_settings

KILLED = (
    "its process was killed (SIGKILL), perhaps because the memory was used up. Run fewer at a time (--jobs), or take "
    "a smaller preset or batch, or less text."
)


class Worker:
    """One process, and the cells it was given and has not ended yet. It dies with this process."""

    def __init__(self, command: Sequence[str], heard: "Heard") -> None:
        self.cells: dict[str, Cell] = {}
        self.measuring = False
        self.alone = False  # it was given what has the GPU to itself
        self.fleet = False  # it was given several at once
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "OMP_NUM_THREADS": command[-1]},
        )
        self._last_words: deque[str] = deque(maxlen=1)
        listeners = (partial(self._listen, heard), self._overhear)
        self._threads = [threading.Thread(target=listen, daemon=True) for listen in listeners]
        for thread in self._threads:
            thread.start()

    def give(self, cells: Sequence[Cell], request: Request, *, alone: bool) -> None:
        """Have it work on cells."""
        self.cells, self.measuring = {cell.name: cell for cell in cells}, False
        self.alone, self.fleet = alone, len(cells) > 1
        self._send({"cells": [cell.as_dict() for cell in cells], "request": asdict(request)})

    def stop(self) -> None:
        """Have it save and stop. Measuring is cut short: it writes nothing that would be missed."""
        if self.measuring:
            self._process.kill()
        else:
            self._send({"stop": True})

    def epitaph(self) -> str:
        """Why it died, on one line: its own last words, or how it was ended."""
        code = self.end()
        if code == -signal.SIGKILL:  # as the kernel ends a process where there is no memory left
            return KILLED
        return self._last_words[0] if self._last_words and code > 0 else f"its process ended with {code}"

    def end(self) -> int:
        """Kill it, wherever it is; its exit code."""
        self._process.kill()
        code = self._process.wait()
        for thread in self._threads:
            thread.join()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        return code

    def _send(self, order: Json) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it died: its silence will be heard
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def _listen(self, heard: "Heard") -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                heard.put((self, News(**json.loads(line))))
        heard.put((self, None))

    def _overhear(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as words:
            self._last_words.extend(line.strip() for line in words if line.strip())


Heard = queue.SimpleQueue[tuple[Worker, News | None]]  # None: it died


class Workers:
    """As many processes as there is work for. Use as a context: they end with it."""

    def __init__(
        self, grid: GridDirectory, device: torch.device, jobs: int, threads: int, *, shares: bool = False
    ) -> None:
        module = ["-P", "-m", "nnrs.experiments.worker"]
        self._command = [sys.executable, *module, str(grid.path), str(device), str(threads)]
        self._heard: Heard = queue.SimpleQueue()
        self._grid, self._device, self._jobs, self._all = grid, device, jobs, list[Worker]()
        self._shares = shares  # on a GPU, whether runs that make no fleet train beside each other

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._all:
            worker.end()

    @property
    def cells(self) -> list[str]:
        """The names of what is being worked on."""
        return [name for worker in self._all for name in worker.cells]

    @property
    def have_time(self) -> bool:
        """Whether one of them is idle, or would be if started; none is beside one that has the GPU to itself."""
        if any(worker.alone for worker in self._busy):
            return False
        return len(self._all) < self._jobs or len(self._busy) < len(self._all)

    def takes(self, cell: Cell) -> bool:
        """Whether it can be begun beside what they are at."""
        return not self._busy or not self._needs_all(cell)

    def kind(self, cell: Cell) -> Hashable | None:
        """What cells have in common that train as a fleet; None where each is trained or measured alone."""
        config = cell.config
        if not can_batch(config, self._device) or self._is_trained(cell):
            return None
        return config.data, *shared_settings(config.model, config.training, config.optimizer).values()

    def give(self, cells: Sequence[Cell], request: Request) -> None:
        """Have one that is idle work on cells, a new one if need be."""
        free = next((worker for worker in self._all if not worker.cells), None)
        if free is None:
            free = Worker(self._command, self._heard)
            self._all.append(free)
        free.give(cells, request, alone=any(map(self._needs_all, cells)))

    def hear(self, seconds: float) -> list[News]:
        """The next news; of a worker that died, that its cells are lost; none where all is quiet for so long."""
        try:
            worker, news = self._heard.get(timeout=seconds)
        except queue.Empty:
            return []
        if news is None:
            if worker not in self._all:
                return []
            self._all.remove(worker)
            why = worker.epitaph()
            return [News(name=name, how="lost", error=why) for name in worker.cells]
        if news.how == "measuring":
            worker.measuring = True
        else:
            del worker.cells[news.name]
        if worker.fleet and not worker.cells:  # give back the memory that its runs had
            self._all.remove(worker)
            worker.end()
        return [news]

    def stop(self) -> None:
        """Have all save and stop."""
        for worker in self._all:
            worker.stop()

    @property
    def _busy(self) -> list[Worker]:
        return [worker for worker in self._all if worker.cells]

    def _needs_all(self, cell: Cell) -> bool:
        """Whether it is to train on a GPU and has its memory to itself: in a fleet, or where none is shared."""
        shared = self._shares and not can_batch(cell.config, self._device)
        return self._device.type == "cuda" and not shared and not self._is_trained(cell)

    def _is_trained(self, cell: Cell) -> bool:
        directory = RunDirectory(self._grid.run_path(cell.name))
        try:
            return is_finished(directory)
        except NnrsError:  # damaged: whoever works on the cell will say so
            return False
