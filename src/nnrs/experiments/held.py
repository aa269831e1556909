"""What a grid's folder holds already, held against the plan that is to go on from it."""

from pathlib import Path

from nnrs.corpus import is_built_in
from nnrs.errors import RunError
from nnrs.experiments.config import RunConfig
from nnrs.experiments.grid import Board
from nnrs.experiments.prepare import Shelf
from nnrs.experiments.records import vectors_fingerprint
from nnrs.experiments.run import changed
from nnrs.experiments.text import Text
from nnrs.run_directory import Json, RunDirectory

INSTEAD = "choose another --out"


def check_held(board: Board) -> None:
    """Refuse a plan some of whose runs are there and were made from other texts or vectors than lie there now.

    Each is read once; vectors, which may take long, only where something is left to be run.
    """
    shelf = Shelf()
    for cell in board.plan.cells:
        directory = RunDirectory(board.grid.run_path(cell.name))
        try:
            record = _beginning(directory)
        except RunError:  # damaged: whoever works on the cell will say so
            continue
        if record:
            _check_text(directory, record, cell.config, shelf)
            if board.left:
                _check_vectors(directory, record, cell.config, shelf)


def _beginning(directory: RunDirectory) -> Json | None:
    """What a run began with, as far as it is known of one that came as a record; None where there is none."""
    if directory.is_run:
        return directory.config()
    result = directory.result()
    return {"text_sha256": result.get("text", "")} if result else None


def _check_text(directory: RunDirectory, record: Json, config: RunConfig, shelf: Shelf) -> None:
    source = config.data.source
    if is_built_in(source) or not Path(source).exists():  # a run to come would have been refused by now
        return
    known = record.get("text_sha256", "")  # the first digits of it, in a record
    if not shelf.take(Text.read, config.data).fingerprint.startswith(known):
        raise changed(source, directory, INSTEAD)


def _check_vectors(directory: RunDirectory, record: Json, config: RunConfig, shelf: Shelf) -> None:
    known, source = record.get("vectors_sha256"), config.vectors.source
    if known is None or not Path(source).exists():
        return
    text = shelf.take(Text.read, config.data)
    if shelf.take(vectors_fingerprint, config.vectors, text) != known:
        raise changed(source, directory, INSTEAD)
