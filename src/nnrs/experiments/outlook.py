"""What a plan would run in a folder, and what of it is there: a look that changes nothing."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from nnrs.corpus import is_built_in, open_corpus
from nnrs.errors import DataError, reworded
from nnrs.experiments.config import TRANSLATE, RunConfig
from nnrs.experiments.enough_memory import check_memory
from nnrs.experiments.enough_words import check_neighbors, check_protected
from nnrs.experiments.generations import WITHOUT_WINDOW, split_lack
from nnrs.experiments.grid import Board, look_at
from nnrs.experiments.held import check_held
from nnrs.experiments.missing import CALLED, became_of
from nnrs.experiments.plan import Cell, Plan
from nnrs.experiments.prepare import Shelf, choose_device
from nnrs.experiments.records import Records, matching_records
from nnrs.experiments.scoring import OF_WINDOWS, missing_package
from nnrs.experiments.subject import Request
from nnrs.experiments.text import Text
from nnrs.run_directory import Json

TO_RUN = (*CALLED.values(), "new")  # the states of what is to be trained or measured yet


def look_ahead(
    plan: Plan,
    out: Path | str,
    sources: Sequence[Path | str],
    device: str,
    *,
    elsewhere: bool = False,
    shelf: Shelf | None = None,
) -> tuple[Board, Records]:
    """What is known of a plan's runs in a folder, and the records of those that were done elsewhere.

    Refused before anything is trained where a file of a run to come is not there, its text too small, its model too
    large or a package missing that it is measured with; and where what is there is another run, or was made from
    another text. Runs that are trained `elsewhere` may have other devices, more memory and other packages. What had
    to be read for it stays on the shelf.
    """
    board, shelf = look_at(plan, out), shelf or Shelf()
    left = [cell.config for cell in board.left]
    with reworded(plan.worded):
        if left:
            _check_sources(plan.request, left)
            _check_windows(plan.request, left)
        check_held(board, shelf)
        found = matching_records(plan, sources, device, shelf) if sources else {}
        if not elsewhere:
            _check_sizes(board, found, choose_device(device))
            _check_packages(board, found)
        check_protected(board.left, shelf)
        check_neighbors(board.left, shelf)
    return board, found


def text_remarks(board: Board, found: Records, shelf: Shelf) -> list[str]:
    """What is to be known of the texts of the runs to come before they are trained."""
    sources = dict.fromkeys(cell.config.data for cell in board.left if cell.config not in found)
    texts = [shelf.take(Text.read, source) for source in sources]
    return [board.plan.worded(f"{text.corpus.name}: {text.remark}") for text in texts if text.remark]


def rate_remarks(board: Board, found: Records) -> list[str]:
    """What is to be known of the rates of the runs to come, each once."""
    configs = [cell.config for cell in board.left if cell.config not in found]
    lines = (board.plan.worded(line) for config in configs for line in config.remarks)
    return list(dict.fromkeys(lines))


def outlook(board: Board, found: Records) -> list[Json]:
    """A line for each run: its name, what is known of it (as `_states` has it), and its epochs."""
    lines = []
    for cell, state in _states(board, found):
        epochs = cell.config.training.epochs
        trained = board.trained(cell.name) if state in TO_RUN else epochs
        lines.append({"run": cell.name, "state": state, "trained": trained, "epochs": epochs})
    return lines


def _check_sizes(board: Board, found: Records, device: torch.device) -> None:
    """Models whose layers alone are more than the memory; whoever has read the text knows of the rest."""
    for cell, state in _states(board, found):
        if state in TO_RUN:
            with cell.named_in_errors():
                check_memory(cell.config.model, device)


def _check_packages(board: Board, found: Records) -> None:
    """Those that a run to come is measured with."""
    tasks = {cell.config.data.task for cell in board.plan.cells}
    missing = {task: missing_package(board.plan.request.metrics, task) for task in tasks}
    for cell, state in _states(board, found):
        package = missing[cell.config.data.task]
        if package and state in TO_RUN:
            raise package.error()


def _check_sources(asked: Request, left: Sequence[RunConfig]) -> None:
    """Texts and files of vectors, those that the runs are measured with among them."""
    texts = {asked.data or "", *(config.data.source for config in left)}
    others = {asked.vectors or "", asked.oracle or "", *(config.vectors.source for config in left)}
    files = {text for text in texts if not is_built_in(text)} | others
    for path in sorted(files - {"", "corpus"}):
        if not Path(path).exists():
            raise DataError(
                f"no such file or folder: {path}. Check the path; files are looked for from here."
            )


def _check_windows(asked: Request, left: Sequence[RunConfig]) -> None:
    """Splits that hold at least one of the windows that the runs are measured on."""
    if "all" in asked.metrics or not {*asked.metrics} & {*OF_WINDOWS}:
        return
    texts = [config.data for config in left if config.data.task != TRANSLATE]
    for source in dict.fromkeys(asked.data or text.source for text in texts):
        corpus = open_corpus(source)
        for split in asked.splits:
            if lack := split_lack(corpus, split, asked):
                raise DataError(f"{source}, {split}: {lack}. {WITHOUT_WINDOW}")


def _states(board: Board, found: Records) -> Iterator[tuple[Cell, str]]:
    """Each run, and whether it is done, in the records or new; else what became of it."""
    failed = board.grid.failed()
    for cell in board.plan.cells:
        if cell.name in board.done:
            yield cell, "done"
        elif cell.config in found and not board.grid.run_path(cell.name).exists():
            yield cell, "in the records"
        else:
            yield cell, became_of(board.grid, cell.name, failed.get(cell.name)) or "new"
