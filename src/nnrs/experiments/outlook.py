"""What a plan would run in a folder, and what of it is there: a look that changes nothing."""

from collections.abc import Sequence
from pathlib import Path

from nnrs.experiments.grid import look_at
from nnrs.experiments.plan import Plan
from nnrs.experiments.records import matching_records
from nnrs.run_directory import Json


def outlook(plan: Plan, out: Path | str, sources: Sequence[Path | str], device: str) -> list[Json]:
    """A line for each run: its name, whether it is done, in the records, begun or new, and its epochs."""
    board = look_at(plan, out)
    found = matching_records(plan, sources, device) if sources else {}
    lines = []
    for cell in board.plan.cells:
        epochs, trained = cell.config.training.epochs, board.trained(cell.name)
        if cell.name in board.done:
            state, trained = "done", epochs
        elif board.grid.run_path(cell.name).exists():
            state = "begun"
        else:
            state = "in the records" if cell.config in found else "new"
        lines.append({"run": cell.name, "state": state, "trained": trained, "epochs": epochs})
    return lines
