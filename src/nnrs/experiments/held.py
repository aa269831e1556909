"""What a grid's folder holds already, held against the plan that is to go on from it."""

from pathlib import Path

from nnrs.corpus import is_built_in
from nnrs.errors import NnrsError, RunError
from nnrs.experiments.config import RunConfig, settings_of
from nnrs.experiments.differences import differences, facts
from nnrs.experiments.grid import Board
from nnrs.experiments.prepare import Shelf
from nnrs.experiments.records import vectors_fingerprint
from nnrs.experiments.run import changed
from nnrs.experiments.store import shown_config
from nnrs.experiments.text import Text
from nnrs.run_directory import Json, RunDirectory

INSTEAD = "choose another --out"
# What a plan may leave to the text and the device.
OPEN = {"policy.k": "null", "training.precision": '"auto"'}


def check_held(board: Board, shelf: Shelf) -> None:
    """Refuse a plan in whose folder another run lies in a run's place, or one of other texts or vectors than now.

    Each is read once; vectors, which may take long, only where something is left to be run.
    """
    for cell in board.plan.cells:
        directory = RunDirectory(board.grid.run_path(cell.name))
        try:
            record = _beginning(directory)
            apart = _apart(record, cell.config) if record else ""
        except NnrsError:  # damaged, or of another version: whoever works on the cell will say so
            continue
        if apart:
            raise RunError(
                f"{directory.path} holds another run, which differs from the plan's in {apart}. Move it away."
            )
        if record:
            _check_text(directory, record, cell.config, shelf, needed=bool(board.left))
            if board.left:
                _check_vectors(directory, record, cell.config, shelf)


def _beginning(directory: RunDirectory) -> Json | None:
    """What a run began with, as far as it is known of one that came as a record; None where there is none."""
    if directory.is_run:
        return directory.config()
    result = directory.result()
    return {**result.get("config", {}), "text_sha256": result.get("text", "")} if result else None


def _apart(record: Json, config: RunConfig) -> str:
    """In what a run differs from the one that the plan has in its place; empty where it is that one."""
    there, here = _settings(RunConfig.from_dict(settings_of(record))), _settings(config)
    left_open = {name: there[name] for name, value in OPEN.items() if here[name] == value}
    return differences(there, here | left_open)


def _settings(config: RunConfig) -> dict[str, str]:
    """Its settings; of a text in a file, which may be called differently elsewhere, the content is compared."""
    settings = facts(shown_config(config))
    if not is_built_in(config.data.source):
        del settings["data.source"]
    return settings


def _check_text(
    directory: RunDirectory, record: Json, config: RunConfig, shelf: Shelf, *, needed: bool
) -> None:
    """A text that cannot be read is no matter where nothing is to be run on it."""
    source = config.data.source
    if is_built_in(source) or not Path(source).exists():  # a run to come would have been refused by now
        return
    try:
        now = shelf.take(Text.read, config.data).fingerprint
    except NnrsError:
        if needed:
            raise
        return
    if not now.startswith(record.get("text_sha256") or ""):  # of which a record has the first digits
        raise changed(source, directory, INSTEAD)


def _check_vectors(directory: RunDirectory, record: Json, config: RunConfig, shelf: Shelf) -> None:
    known, source = record.get("vectors_sha256"), config.vectors.source
    if known is None or not Path(source).exists():
        return
    text = shelf.take(Text.read, config.data)
    if shelf.take(vectors_fingerprint, config.vectors, text) != known:
        raise changed(source, directory, INSTEAD)
