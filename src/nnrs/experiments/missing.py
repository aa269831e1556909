"""The runs of plans that have no result yet: what is said of those that have must not be read as all there is."""

from collections.abc import Sequence
from pathlib import Path

from nnrs.experiments.plan import several
from nnrs.experiments.store import has_result
from nnrs.grid_directory import GridDirectory
from nnrs.wording import counted

# What a run without a result is called, by how its last try ended. One whose process died (lost) did not fail by
# itself: it goes on where it stood.
CALLED = {"diverged": "diverged", "error": "failed", "lost": "not finished"}


def missing_runs(sources: Sequence[Path]) -> list[str]:
    """A sentence for each grid's folder among the sources that lacks results of its plan."""
    folders = dict.fromkeys(source.resolve() for source in sources)
    return [sentence for folder in folders if (sentence := _missing_of(GridDirectory(folder)))]


def _missing_of(grid: GridDirectory) -> str | None:
    plan = grid.plan()
    names = [cell["name"] for cell in plan["cells"]] if plan else []
    missing = [name for name in names if not has_result(grid.run_path(name))]
    if not plan or not missing:
        return None
    failed = grid.failed()
    known = {name: became_of(grid, name, failed.get(name)) for name in missing}
    told = several([f"{name} ({what})" if what else name for name, what in known.items()])
    verb = "is" if len(missing) == 1 else "are"
    return f"{len(missing)} of {counted(len(names), 'run')} of the plan '{plan['title']}' {verb} missing: {told}."


def became_of(grid: GridDirectory, name: str, failure: str | None) -> str | None:
    """What became of a run without a result, by how its last try ended; None where it was not begun."""
    if failure:
        return CALLED.get(failure, CALLED["lost"])
    return CALLED["lost"] if grid.run_path(name).exists() else None
