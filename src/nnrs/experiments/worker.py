"""A worker process: `python -m nnrs.experiments.worker OUT DEVICE THREADS`, started by `run_grid`.

It reads one JSON object a line from standard input ({"cells", "request"} or {"stop"}) and answers with one a line on
standard output. Where its input ends, its parent is gone, and it ends at once: whatever it was at can be continued.
"""

import json
import os
import queue
import signal
import sys
import threading
from dataclasses import asdict
from typing import TextIO

import torch

from nnrs.experiments.plan import Cell, request_of
from nnrs.experiments.prepare import Shelf
from nnrs.experiments.work import Place, work_on
from nnrs.grid_directory import GridDirectory
from nnrs.run_directory import Json

SHELF_LIFE = 50  # orders; then what was kept for the next run is let go, for many tables fill the memory


class Inbox:
    """What the parent sends, heard while the work goes on."""

    def __init__(self, stream: TextIO) -> None:
        self.orders: queue.SimpleQueue[Json] = queue.SimpleQueue()
        self.stopped = threading.Event()
        self._stream = stream
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self._stream:
            order = json.loads(line)
            if "stop" in order:
                self.stopped.set()
            else:
                self.orders.put(order)
        os._exit(1)


def main(out: str, device: str, threads: str) -> None:
    """Work on what is asked for, until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to hear
    answers, sys.stdout = sys.stdout, sys.stderr  # nobody else's words among the answers
    inbox, grid, shelf = Inbox(sys.stdin), GridDirectory(out), Shelf()
    served = 0
    while True:
        order = inbox.orders.get()
        served += 1
        shelf = shelf if served % SHELF_LIFE else Shelf()
        place = Place(
            grid=grid,
            device=torch.device(device),
            threads=int(threads),
            shelf=shelf,
            should_stop=inbox.stopped.is_set,
        )
        cells = [Cell.from_dict(cell) for cell in order["cells"]]
        for news in work_on(cells, request_of(order["request"]), place):
            print(json.dumps(asdict(news)), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
