"""`nnrs grid`: many runs from one file, which may be killed and started again at any time."""

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nnrs.cli.output import DeviceOption, JsonOption, duration, note, print_json, print_table
from nnrs.wording import counted

if TYPE_CHECKING:
    from nnrs.experiments.grid import GridOutcome, Progress
    from nnrs.experiments.plan import Plan
    from nnrs.experiments.records import Records
    from nnrs.experiments.store import Result
    from nnrs.run_directory import Json

JobsOption = Annotated[
    int | None,
    typer.Option(
        help="Runs at a time. [default: one for each core; a GPU trains a fleet, or one run that makes none, and "
        "measures 4 at a time]",
    ),
]
FleetOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="On a GPU, at most N runs train side by side; elsewhere no matter. [default: as many as it holds]",
    ),
]
RecordsOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Results of runs that are not to be trained again; repeatable."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="List the runs and what is done of them; change nothing.")
]
RayOption = Annotated[
    str | None, typer.Option(metavar="ADDRESS|auto", help="Run on a Ray cluster that shares --out.")
]
QUIET = 60.0  # seconds between two lines of a log, where no run ends


def grid(
    file: Annotated[Path, typer.Argument(help="TOML: settings of `nnrs train`, with lists for what varies.")],
    out: Annotated[Path, typer.Option(help="The folder for the runs; the same again continues.")],
    jobs: JobsOption = None,
    fleet: FleetOption = None,
    records: RecordsOption = None,
    ray: RayOption = None,
    device: DeviceOption = "auto",
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Run what is missing of a grid, skip what is done, retry what failed."""
    from nnrs.experiments.plan import read_plan

    command = shlex.join(["nnrs", "grid", file.name, "--out", out.name])
    plan = read_plan(file, command)
    carry_out(
        plan,
        out,
        jobs=jobs,
        fleet=fleet,
        records=records,
        device=device,
        ray=ray,
        listed=("json" if json else "table") if dry_run else None,
        tell=partial(_tell, plan.title, out, json),
    )


def _tell(title: str, out: Path, json: bool, failed: Mapping[str, str]) -> None:
    """The results that there are, which of them came apart, and in JSON also what became of the runs that failed."""
    from nnrs.experiments.findings import training_warnings
    from nnrs.experiments.store import collect

    results = collect(out)
    for warning in training_warnings(results):
        note(warning)
    if json:
        print_json([*(result.record for result in results), *listed_failures(failed)])
    elif results:
        _report(results, title, out)


def listed_failures(failed: Mapping[str, str]) -> "list[Json]":
    """Runs that failed as JSON names them."""
    return [{"name": name, "error": error} for name, error in failed.items()]


def _list_runs(lines: "list[Json]", title: str, format: str) -> None:
    """What would be run, on standard output: a table, csv or json."""
    from nnrs.experiments.outlook import TO_RUN
    from nnrs.experiments.table import lines_csv

    if format == "table":
        rows = [[line["run"], line["state"], f"{line['trained']} of {line['epochs']}"] for line in lines]
        print_table(title, ("run", "state", "epochs"), rows)
    else:
        print_json(lines) if format == "json" else typer.echo(lines_csv(lines), nl=False)
    to_train = [line["epochs"] - line["trained"] for line in lines if line["state"] in TO_RUN]
    note(
        f"{counted(len(lines), 'run')}, {len(to_train)} of them to be run, {counted(sum(to_train), 'epoch')}. "
        "Nothing was changed."
    )


def carry_out(
    plan: "Plan",
    out: Path,
    *,
    jobs: int | None,
    fleet: int | None = None,
    records: list[Path] | None = None,
    device: str,
    ray: str | None,
    listed: str | None = None,
    remarks: Sequence[str] = (),
    tell: Callable[[Mapping[str, str]], None] = lambda failed: None,
) -> None:
    """Run a plan with its progress on standard error, then `tell` what came of it; returns where every run is done.

    `tell` hears which runs failed and why; where some did, this leaves with 2 after it. With a format for a list of
    the runs, that is all it does. Remarks are made once nothing is refused any more.
    """
    from nnrs.cli.interrupt import Interruptible
    from nnrs.experiments.grid import run_grid

    _check_counts({"jobs": jobs, "fleet": fleet}, ray)
    _foresee(plan, out, records or [], device, bool(ray), listed, remarks)
    with Interruptible() as interruption, GridProgress() as shown:
        if ray:
            from nnrs.experiments.on_ray import run_on_ray

            outcome = run_on_ray(
                plan, out, address=ray, device=device, watch=shown.show, should_stop=interruption.asked
            )
        else:
            outcome = run_grid(
                plan,
                out,
                jobs=jobs,
                fleet=fleet,
                device=device,
                watch=shown.show,
                should_stop=interruption.asked,
            )
    for name, error in outcome.failed.items():
        typer.echo(f"error: {name}: {error}", err=True)
    if not outcome.remaining:
        tell(outcome.failed)
    _explain(outcome, out, interruption.exit_code)


def _foresee(
    plan: "Plan",
    out: Path,
    records: list[Path],
    device: str,
    elsewhere: bool,
    listed: str | None,
    remarks: Sequence[str],
) -> None:
    """Refuse what cannot be run, take over what is done, and say what is to be known before the rest is trained.

    With a format for a list of the runs, leave after it. What is read for this is let go at the end.
    """
    from nnrs.experiments.outlook import look_ahead, outlook, rate_remarks, text_remarks
    from nnrs.experiments.prepare import Shelf

    shelf = Shelf()
    board, found = look_ahead(plan, out, records, device, elsewhere=elsewhere, shelf=shelf)
    lines = outlook(board, found) if listed else []
    if records and not listed:
        _take_over(plan, out, records, found)
    for remark in (*remarks, *rate_remarks(board, found)):
        note(remark)
    if listed:
        _list_runs(lines, plan.title, listed)
        raise typer.Exit
    for remark in [] if elsewhere else text_remarks(board, found, shelf):
        note(remark)


def _check_counts(counts: Mapping[str, int | None], ray: str | None) -> None:
    """Refuse less than one of something, and what is about this machine where another trains."""
    from nnrs.errors import ConfigError

    for name, given in counts.items():
        if given is not None and given < 1:
            raise ConfigError(f"--{name} must be at least 1, got {given}.")
        if ray and given:
            raise ConfigError(f"--{name} is about this machine: leave it out with --ray.")


def _take_over(plan: "Plan", out: Path, records: list[Path], found: "Records") -> None:
    """Put what is done elsewhere into the folder, and say how much that is."""
    from nnrs.experiments.records import take_over

    done, names = take_over(plan, out, found), ", ".join(path.name for path in records)
    here = f"; here already: {done.here}" if done.here else ""
    note(f"taken from {names}: {done.taken} of {counted(len(plan.cells), 'run')}{here}")


def _explain(outcome: "GridOutcome", out: Path, stopped: int) -> None:
    """Leave with 2 where runs failed, with the code of a stop where some are left after one."""
    if outcome.remaining:
        note(
            f"stopped with {counted(outcome.done, 'run')} done and {outcome.remaining} left; saved. "
            "Run it again to continue."
        )
        raise typer.Exit(stopped)
    if outcome.failed:
        again = len(outcome.failed) - outcome.diverged
        told = [f"{counted(outcome.done, 'run')} done, {len(outcome.failed)} failed."]
        told += [f"{outcome.diverged} of them diverged, and would again."] if outcome.diverged else []
        told += [f"Run it again to retry {again}: {out}"] if again else []
        note(" ".join(told))
        raise typer.Exit(2)


class GridProgress:
    """A bar on a terminal; elsewhere a line whenever a run ends, and one a minute while epochs do."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
        self._bar = Progress(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        )
        self._task = self._bar.add_task("", left="")
        self._clock = clock
        self._ended, self._epochs, self._told = -1, 0, 0.0  # what the last line said, and when

    def __enter__(self) -> "GridProgress":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def show(self, progress: "Progress") -> None:
        """Where the grid stands."""
        line = progress_line(progress)
        left = _left(progress)
        self._bar.update(
            self._task, description=line, total=progress.all_epochs, completed=progress.epochs, left=left
        )
        ended, now = progress.done + progress.failed, self._clock()
        goes_on = progress.epochs != self._epochs and now - self._told >= QUIET
        if (ended != self._ended or goes_on) and not self._console.is_terminal:
            note(f"{line}, {left}" if left else line)
            self._ended, self._epochs, self._told = ended, progress.epochs, now


def progress_line(progress: "Progress") -> str:
    """How many runs are done, failed and under way, and how many epochs that is."""
    failed = f", {progress.failed} failed" if progress.failed else ""
    return (
        f"{progress.done} of {counted(progress.total, 'run')} done{failed}, {progress.running} running, "
        f"epoch {progress.epochs:,} of {progress.all_epochs:,}"
    )


def _left(progress: "Progress") -> str:
    if progress.seconds_left is None or progress.done + progress.failed == progress.total:
        return ""
    return f"about {duration(progress.seconds_left)} left"


def _report(results: "list[Result]", title: str, out: Path) -> None:
    """A row for each configuration, over its seeds."""
    from nnrs.experiments.groups import Spread, grouped

    names = list(dict.fromkeys(name for result in results for name in result.labels))
    rows = []
    for group in grouped(results):
        replaced = Spread.of([result.record["effective"]["all"] for result in group.results])
        cells = [group.labels.get(name, "") for name in names] + [str(len(group.results))]
        cells += [str(group.perplexity(split)) for split in ("valid", "test")]
        rows.append([*cells, f"{replaced.mean:.3f}"])
    columns = (*names, "seeds", "valid", "test", "replaced")
    print_table(f"{title}: perplexity, lower is better; mean ± sd over seeds", columns, rows)
    note(f"runs and results in {out}; as a table: nnrs results {out} --format csv")
