"""Records of finished runs put into a grid's folder: what was trained elsewhere is not trained again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch

from nnrs.errors import ConfigError
from nnrs.experiments.config import RunConfig, VectorsConfig
from nnrs.experiments.differences import differences, facts
from nnrs.experiments.grid import open_grid
from nnrs.experiments.plan import Cell, Plan
from nnrs.experiments.prepare import Shelf, choose_device, resolved, vectors_for
from nnrs.experiments.store import collect, group_of, shown_config, shown_request
from nnrs.experiments.subject import Request
from nnrs.experiments.text import Text
from nnrs.grid_directory import GridDirectory
from nnrs.neighbors.cache import fingerprint_of
from nnrs.run_directory import Json, RunDirectory, folder_at_once

Records = Mapping[RunConfig, Json]  # by the configurations that a plan has
Facts = frozenset[tuple[str, str]]  # what a run is, by name; values as JSON


@dataclass(frozen=True)
class Takeover:
    """How many runs were taken from records, and how many that fit were in the folder or under way already."""

    taken: int
    here: int


@dataclass(frozen=True)
class Expected:
    """A run of a plan as it would be trained here."""

    cell: Cell
    config: RunConfig  # with what `auto` and defaults stand for
    text: Text
    facts: Facts


def take_over(plan: Plan, out: Path | str, found: Records) -> Takeover:
    """Put the records of a plan's runs into its folder, under the plan's names and labels: those runs are done.

    What the folder has is left alone.
    """
    grid, plan = open_grid(plan, out)
    put = [_put(grid, cell, found[cell.config]) for cell in plan.cells if cell.config in found]
    return Takeover(taken=put.count(True), here=put.count(False))


def matching_records(plan: Plan, sources: Sequence[Path | str], device: str, shelf: Shelf) -> Records:
    """The records of a plan's runs, by the configurations that the plan has.

    A record is that of a run where configuration, seed, text, vectors and request are the same; `auto` is what it
    stands for on the device. Where no record fits, an error says in what the nearest differs.
    """
    # Each on its own: of one run in two of them, measured in two ways, `collect` would leave but one.
    records = [result.record for source in sources for result in collect(source)]
    place = choose_device(device)
    runs = [_expected(cell, plan.request, place, shelf) for cell in plan.cells]
    found = _matching(runs, records, shelf)
    if not found:
        names = ", ".join(map(str, sources))
        raise ConfigError(f"{names}: {_misfit(runs, records)} Leave --records out to train all runs.")
    return found


def _expected(cell: Cell, request: Request, device: torch.device, shelf: Shelf) -> Expected:
    text = shelf.take(Text.read, cell.config.data)
    config = resolved(cell.config, text, device)
    record = {"config": shown_config(config), "text": text.fingerprint[:8], "request": shown_request(request)}
    return Expected(cell, config, text, _facts({**record, "names": {"corpus": text.corpus.name}}))


def _facts(record: Json) -> Facts:
    """What a run was, of its text the name and the hash: the folder may be called differently elsewhere."""
    config = {**record.get("config", {}), "request": record.get("request") or {}}
    data = {name: value for name, value in config.get("data", {}).items() if name != "source"}
    text = {"corpus": record["names"]["corpus"], "text": record.get("text")}
    return frozenset(facts({**config, "data": data, **text}).items())


def _matching(runs: Sequence[Expected], records: Sequence[Json], shelf: Shelf) -> Records:
    """The records that are those of a plan's runs, by the configurations that the plan has."""
    known = {_facts(record): record for record in reversed(records)}  # of equal ones, the first
    return {
        run.cell.config: record
        for run in runs
        if (record := known.get(run.facts)) and _group_here(run, record["names"], shelf) == record["group"]
    }


def _group_here(run: Expected, names: Json, shelf: Shelf) -> str:
    """The group that a run would have: it knows the whole text, and a file of vectors by its content."""
    from_file = names["vectors"] not in (None, "corpus")
    vectors = shelf.take(vectors_fingerprint, run.config.vectors, run.text) if from_file else None
    material = {"names": names, "text_sha256": run.text.fingerprint, "vectors_sha256": vectors}
    return group_of(run.config, material)


def vectors_fingerprint(config: VectorsConfig, text: Text) -> str:
    """sha256 of the vectors that a file has for the words of a text."""
    return fingerprint_of(vectors_for(config, text).vectors)


def _misfit(runs: Sequence[Expected], records: Sequence[Json]) -> str:
    """Why no record is one of these runs."""
    if not records:
        return "it holds no results."
    known = [(record["name"], _facts(record)) for record in records]
    run, (name, there) = min(product(runs, known), key=lambda pair: len(pair[0].facts ^ pair[1][1]))
    apart = differences(dict(there), dict(run.facts)) or "the content of its vectors"
    return f"no record is a run of this plan. The nearest, {name}, differs from {run.cell.name} in {apart}."


def _put(grid: GridDirectory, cell: Cell, record: Json) -> bool:
    """Make a run directory that holds a result alone, all at once; False where there is one, or someone makes it."""
    claim = grid.claim(cell.name)
    if claim is None:
        return False
    try:
        path = grid.run_path(cell.name)
        if path.exists():
            return False
        grid.drop_half_made(cell.name)
        with folder_at_once(path) as hidden:
            RunDirectory(hidden).write_result({**record, "name": cell.name, "labels": cell.labels})
        return True
    finally:
        claim.release()
