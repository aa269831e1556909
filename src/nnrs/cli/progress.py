"""A run's progress on standard error: a bar on a terminal, a line per epoch elsewhere."""

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from nnrs.training.events import Beat, Callback, EpochMetrics, EpochStart, EpochTiming


def epoch_line(metrics: EpochMetrics, timing: EpochTiming) -> str:
    """What an epoch gave, on one line."""
    parts = [
        f"epoch {metrics.epoch:3d}",
        f"train {metrics.train_perplexity:8.2f}",
        f"valid {metrics.valid_perplexity:8.2f}",
        f"ε {metrics.prediction_rate:.3f}",
        f"γ {metrics.neighbor_rate:.3f}",
        f"replaced {metrics.effective_rate:.3f}",
        f"τ {metrics.temperature:.3f}",
        f"{timing.tokens_per_second:,.0f} tokens/s",
    ]
    return "  ".join(parts)


class ProgressBar(Callback):
    """Use as a context: `with ProgressBar() as bar: run.finish([bar])`."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("ppl {task.fields[perplexity]}"),
            TextColumn("{task.fields[rates]}"),
            TextColumn("{task.fields[speed]} tokens/s"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: Any = None
        self._epoch_size = 1

    def __enter__(self) -> "ProgressBar":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def epoch_start(self, record: EpochStart) -> None:
        """The bar counts the windows of all epochs, so that the time left is the whole run's."""
        self._epoch_size = record.num_windows
        rates = f"ε {record.prediction_rate:.3f} γ {record.neighbor_rate:.3f} τ {record.temperature:.2f}"
        description = f"epoch {record.epoch}/{record.num_epochs - 1}"
        if self._task is None:
            total = record.num_epochs * record.num_windows
            self._task = self._progress.add_task(
                description, total=total, perplexity="-", speed="-", rates=rates
            )
        done = record.epoch * record.num_windows + record.window
        self._progress.update(self._task, description=description, completed=done, rates=rates)

    def batch_end(self, record: Beat) -> None:
        """Moves the bar."""
        self._progress.update(
            self._task,
            completed=record.epoch * self._epoch_size + record.window,
            perplexity=f"{record.perplexity:.1f}",
            speed=f"{record.tokens_per_second:,.0f}",
        )

    def epoch_end(self, metrics: EpochMetrics, timing: EpochTiming) -> None:
        """A line that stays."""
        self._console.print(epoch_line(metrics, timing), highlight=False, soft_wrap=True)
