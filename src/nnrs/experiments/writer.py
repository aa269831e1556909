"""Writing a run's files while it trains on: a GPU would otherwise wait for the disk at every epoch's end."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

WAITING = 2  # jobs at most: an epoch's best model and its checkpoint


class Writer:
    """Jobs of one run, done in order; in the background, or at once.

    What goes wrong is raised by the next call, and the jobs behind it are not done: a checkpoint must not stand
    where the best model that it speaks of could not be written.
    """

    def __init__(self, *, background: bool) -> None:
        self.background = background
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
