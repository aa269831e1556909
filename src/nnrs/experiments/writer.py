"""What a run writes while it trains: its records, its checkpoints, its best model.

On a GPU the run trains on meanwhile: it would otherwise wait for the disk at every epoch's end.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass

from torch import Tensor

from nnrs.run_directory import Json, RunDirectory
from nnrs.training.checkpoint import Live
from nnrs.training.events import Callback, EpochMetrics, EpochTiming

WAITING = 3  # jobs at most: an epoch's lines, its best model and its checkpoint


class Writer:
    """Jobs of one run, done in order; in the background, or at once.

    What goes wrong is raised by the next call, and the jobs behind it are not done: a checkpoint must not stand
    where the best model that it speaks of could not be written.
    """

    def __init__(self, *, background: bool) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1) if background else None
        self._jobs: deque[Future[None]] = deque()
        self._failed = False

    def submit(self, job: Callable[[], None]) -> None:
        """Have a job done; waits where too many are under way already, so that little is lost to a kill."""
        if self._threads is None:
            job()
            return
        self._wait_for_all_but(WAITING - 1)
        self._jobs.append(self._threads.submit(self._do, job))

    def wait(self) -> None:
        """Wait until everything is written."""
        self._wait_for_all_but(0)

    def _do(self, job: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            job()
        except BaseException:
            self._failed = True
            raise

    def _wait_for_all_but(self, count: int) -> None:
        while len(self._jobs) > count:
            self._jobs.popleft().result()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of a run after a step."""

    step: int
    tensors: dict[str, Tensor]
    values: Json


class Saver(Callback):
    """Writes a run's records, checkpoints and best models; in the background it goes on before they are on disk."""

    def __init__(self, directory: RunDirectory, *, background: bool) -> None:
        self._directory, self._background = directory, background
        self._writer = Writer(background=background)
        self._taken: Snapshot | None = None

    def epoch_end(self, metrics: EpochMetrics, timing: EpochTiming) -> None:
        """A line each of metrics.jsonl and timing.jsonl."""
        lines = {"metrics": metrics.as_dict(), "timing": asdict(timing)}

        def append() -> None:
            for name, line in lines.items():
                self._directory.append(name, line)

        self._writer.submit(append)

    def save(self, live: Live) -> None:
        """A checkpoint."""
        taken = self._snapshot(live)
        self._writer.submit(lambda: self._directory.write_checkpoint(taken.tensors, taken.values))
        self._taken = None  # the checkpoint is the last to need it

    def save_best(self, live: Live) -> None:
        """The model and what the policy learned, without what only training needs."""
        taken, position = self._snapshot(live), asdict(live.position)
        kept = {
            name: tensor for name, tensor in taken.tensors.items() if name.startswith(("model.", "policy."))
        }
        self._writer.submit(lambda: self._directory.write_best(kept, position))

    def wait(self) -> None:
        """Wait until everything that was saved is on disk."""
        self._writer.wait()

    def _snapshot(self, live: Live) -> Snapshot:
        """The state of the moment in main memory; an epoch's best and its checkpoint share one."""
        if self._taken is None or self._taken.step != live.position.step:
            tensors, values = live.snapshot()
            copies = {name: tensor.to("cpu", copy=self._background) for name, tensor in tensors.items()}
            self._taken = Snapshot(live.position.step, copies, values)
        return self._taken
