"""The runs that have no result yet: what is said of those that have must not be read as all there is."""

from collections.abc import Sequence
from pathlib import Path

from nnrs.experiments.plan import several
from nnrs.experiments.store import has_result
from nnrs.grid_directory import GridDirectory
from nnrs.run_directory import RunDirectory
from nnrs.wording import counted

# What a run without a result is called, by how its last try ended. One whose process died (lost) did not fail by
# itself: it goes on where it stood.
CALLED = {"diverged": "diverged", "error": "failed", "lost": "not finished"}


def missing_runs(sources: Sequence[Path]) -> list[str]:
    """A sentence for each folder among the sources that lacks results: of its plan, or of the runs in it."""
    folders = dict.fromkeys(source.resolve() for source in sources)
    return [sentence for folder in folders if (sentence := _missing_of(_grid_at(folder)))]


def _grid_at(folder: Path) -> GridDirectory:
    """The grid that a folder is, or whose runs it holds: those are told of, and continued, by their plan."""
    around = GridDirectory(folder.parent)
    return around if folder == around.runs_path and around.plan() else GridDirectory(folder)


def _missing_of(grid: GridDirectory) -> str | None:
    plan = grid.plan()
    if plan is None:
        return _unfinished_in(grid.path)
    names = [cell["name"] for cell in plan["cells"]]
    missing = [name for name in names if not has_result(grid.run_path(name))]
    if not missing:
        return None
    failed = grid.failed()
    known = {name: became_of(grid, name, failed.get(name)) for name in missing}
    told = several([f"{name} ({what})" if what else name for name, what in known.items()])
    of = f"of {counted(len(names), 'run')} of the plan '{plan['title']}'"
    return f"{len(missing)} {of} {_verb(missing)} missing: {told}."


def _unfinished_in(folder: Path) -> str | None:
    """Of a folder of runs, which has its last name alone: the page, which may be read elsewhere, says it, too."""
    runs = RunDirectory.within(folder)
    left = [run.path.name for run in runs if run.summary() is None]
    if not left:
        return None
    return (
        f"{len(left)} of {counted(len(runs), 'run')} in {folder.name} {_verb(left)} not finished and left out: "
        f"{several(left)}. `nnrs train --resume` with that folder as its --out goes on; what diverged would again."
    )


def _verb(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def became_of(grid: GridDirectory, name: str, failure: str | None) -> str | None:
    """What became of a run without a result, by how its last try ended; None where it was not begun."""
    if failure:
        return CALLED.get(failure, CALLED["lost"])
    return CALLED["lost"] if grid.run_path(name).exists() else None
