"""The progress of runs on standard error: a bar on a terminal, a line per epoch elsewhere."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from nnrs.training.events import Beat, Callback, EpochMetrics, EpochStart, EpochTiming

Ended = tuple[str, EpochMetrics, EpochTiming]  # the name of a run, and what its epoch gave


def epoch_line(ended: Sequence[Ended]) -> str:
    """What an epoch gave, on one line: of a run, or the means of runs side by side and their range of valid."""
    metrics, timings = [item[1] for item in ended], [item[2] for item in ended]
    valid = [record.valid_perplexity for record in metrics]
    several = len(ended) > 1
    parts = [
        *([ended[0][0]] if ended[0][0] and not several else []),
        f"epoch {metrics[0].epoch:3d}",
        *([f"{len(ended)} runs"] if several else []),
        f"train {mean(record.train_perplexity for record in metrics):8.2f}",
        f"valid {mean(valid):8.2f}" + (f" ({min(valid):.2f}-{max(valid):.2f})" if several else ""),
        f"ε {mean(record.prediction_rate for record in metrics):.3f}",
        f"γ {mean(record.neighbor_rate for record in metrics):.3f}",
        f"replaced {mean(record.effective_rate for record in metrics):.3f}",
        f"τ {mean(record.temperature for record in metrics):.3f}",
        f"{sum(timing.tokens_per_second for timing in timings):,.0f} tokens/s",
    ]
    return "  ".join(parts)


@dataclass
class Round:
    """One epoch of the runs that are under way: one, or the members of a fleet in step."""

    opened: dict[str, EpochStart] = field(default_factory=dict)
    beating: str | None = None  # the run whose beats move the bar: the first one heard
    ended: list[Ended] = field(default_factory=list)


@dataclass
class Shown:
    """What the views of one bar share."""

    progress: Progress
    round: Round = field(default_factory=Round)
    task: TaskID | None = None
    name: str = ""  # whose task it is


class ProgressBar(Callback):
    """Use as a context: `with ProgressBar() as bar: run.finish([bar])`; `bar.of(name)` is for one run of several.

    The members of a fleet open, beat and end their epochs in step, and get one bar and one line between them.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        progress = Progress(
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
        self._shown, self._name = Shown(progress), ""

    def of(self, name: str) -> "ProgressBar":
        """The same bar, as the run of this name reports to it."""
        view = copy.copy(self)
        view._name = name
        return view

    def __enter__(self) -> "ProgressBar":
        self._shown.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end_round()
        self._shown.progress.stop()

    def epoch_start(self, record: EpochStart) -> None:
        """Whoever opens an epoch after another has trained or ended one begins a new round, and leads it."""
        if self._shown.round.beating is not None or self._shown.round.ended:
            self._end_round()
        self._shown.round.opened[self._name] = record
        if len(self._shown.round.opened) == 1:
            self._lead(record)

    def batch_end(self, record: Beat) -> None:
        """Moves the bar."""
        current = self._shown.round
        if current.beating is None:
            current.beating = self._name
            self._lead(current.opened[self._name])
        if current.beating != self._name or self._shown.task is None:
            return
        self._shown.progress.update(
            self._shown.task,
            completed=record.epoch * current.opened[self._name].num_windows + record.window,
            perplexity=f"{record.perplexity:.1f}",
            speed=f"{record.tokens_per_second:,.0f}",
        )

    def epoch_end(self, metrics: EpochMetrics, timing: EpochTiming) -> None:
        """Part of a line that stays."""
        self._shown.round.ended.append((self._name, metrics, timing))

    def fit_end(self, epochs: int) -> None:
        """No epoch will open to end the round."""
        self._end_round()

    def _end_round(self) -> None:
        if self._shown.round.ended:
            line = epoch_line(self._shown.round.ended)
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
        self._shown.round = Round()

    def _lead(self, record: EpochStart) -> None:
        """The bar counts the windows of all epochs, so that the time left is the whole run's."""
        shown, progress = self._shown, self._shown.progress
        if shown.task is not None and shown.name != self._name:
            progress.remove_task(shown.task)  # its speed and its time left were another run's
            shown.task = None
        if shown.task is None:
            total = record.num_epochs * record.num_windows
            shown.task = progress.add_task("", total=total, perplexity="-", speed="-", rates="")
        shown.name = self._name
        progress.update(
            shown.task,
            description=f"{self._name} epoch {record.epoch}/{record.num_epochs - 1}".lstrip(),
            completed=record.epoch * record.num_windows + record.window,
            rates=f"ε {record.prediction_rate:.3f} γ {record.neighbor_rate:.3f} τ {record.temperature:.2f}",
        )
