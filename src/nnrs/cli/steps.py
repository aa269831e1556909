"""Which step of which run is under way, on standard error: a line that moves on a terminal, nothing elsewhere."""

from collections.abc import Callable

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Steps:
    """Use as a context, `with Steps(number_of_runs) as steps`: `steps.of(name)("bleu (test)")`, at last `done()`."""

    def __init__(self, runs: int) -> None:
        console = Console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), MofNCompleteColumn())
        self._progress = Progress(
            *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
        )
        self._task = self._progress.add_task("", total=runs)

    def of(self, name: str) -> Callable[[str], None]:
        """What the run of this name is to call at the beginning of each step."""
        return lambda step: self._progress.update(self._task, description=f"{name}: {step}", refresh=True)

    def done(self) -> None:
        """A run is through."""
        self._progress.advance(self._task)

    def __enter__(self) -> "Steps":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()
