"""Results: all that is known of a finished run as one JSON object, which tables, statistics and pages are made from.

A result speaks for itself: it names no path of the machine it was made on, and nothing that reads it needs the model.
"""

import gc
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from nnrs.errors import RunError
from nnrs.experiments.config import RunConfig, settings_of
from nnrs.experiments.options import command_of
from nnrs.experiments.plan import Cell
from nnrs.experiments.subject import UNFINISHED, Request
from nnrs.files import explained, read_text
from nnrs.grid_directory import GridDirectory
from nnrs.metrics.score import signature_parts
from nnrs.run_directory import Json, RunDirectory
from nnrs.wording import counted

FORMAT = 2
SAMPLES = 5
DIGITS = 7  # of an epoch's figures, as many as a float32 has: more would be a quarter of all that is stored
LINES = (".jsonl", ".jsonl.xz")  # files of results
FILES = ("data", "vectors", "oracle")  # of a request
SECTIONS = ("data", "policy", "model", "optimizer", "training")  # of a configuration
# What copies of one run agree in, wherever they lie and whatever they are called; the group knows their text.
OF_ONE_RUN = ("group", "seed", "signature", "model", "test_nats")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


# What every reader of a result may count on: a kind, how it is told, and the fields of that kind, outer ones first.
Kind = tuple[str, Callable[[Any], bool], tuple[str, ...]]
FIELDS: tuple[Kind, ...] = (
    ("an object", _is_object, ("labels", "config", "names", "dose", "effective", "timing")),
    ("an object", _is_object, tuple(f"config.{name}" for name in SECTIONS)),
    ("a list of objects", lambda value: _all_of(list, _is_object, value), ("epochs", "scores", "samples")),
    ("an object or null", lambda value: value is None or _is_object(value), ("trajectory",)),
    ("an object of texts", lambda value: _all_of(dict, _is_text, value), ("labels",)),
    ("an object of numbers", lambda value: _all_of(dict, _is_number, value), ("dose", "effective")),
    ("a text", _is_text, ("name", "group", "signature", "command", "labels.method", "names.corpus")),
    ("a whole number", _is_whole, ("seed", "best_epoch")),
    ("a whole number or null", lambda value: value is None or _is_whole(value), ("parameters",)),
    ("a number", _is_number, ("valid_perplexity", "test_perplexity", "valid_nats", "test_nats")),
    ("a number or null", lambda value: value is None or _is_number(value), ("timing.train_seconds",)),
)
SCORE_FIELDS: tuple[Kind, ...] = (
    ("a text", _is_text, ("metric", "signature")),
    ("a number", _is_number, ("value",)),
)
EPOCH_FIELDS: tuple[Kind, ...] = (("a number", _is_number, ("valid_perplexity",)),)


@dataclass(frozen=True)
class Result:
    """A typed view of the JSON object."""

    record: Json

    @property
    def name(self) -> str:
        """The run's folder."""
        return str(self.record["name"])

    @property
    def labels(self) -> dict[str, str]:
        """What a reader calls it: `method`, and whatever else the plan tells runs apart by."""
        labels: dict[str, str] = self.record["labels"]
        return labels

    @property
    def seed(self) -> int:
        """The one thing in which runs of a group differ."""
        return int(self.record["seed"])

    @property
    def group(self) -> str:
        """Eight digits that runs share which differ in nothing but the seed."""
        return str(self.record["group"])

    @property
    def corpus(self) -> str:
        """The name of the text."""
        return str(self.record["names"]["corpus"])

    @property
    def epochs(self) -> list[Json]:
        """What each epoch gave."""
        epochs: list[Json] = self.record["epochs"]
        return epochs

    @property
    def came_apart(self) -> bool:
        """Whether training lost all it had gained: an epoch after the best is worse on validation than the first."""
        valid, best = (
            [float(epoch["valid_perplexity"]) for epoch in self.epochs],
            int(self.record["best_epoch"]),
        )
        return best > 0 and any(later > valid[0] for later in valid[best + 1 :])

    @property
    def scores(self) -> list[Json]:
        """Every score of the run's best model, with its signature."""
        scores: list[Json] = self.record["scores"]
        return scores


def build_result(
    directory: RunDirectory,
    cell: Cell | None = None,
    request: Request | None = None,
    trajectory: Json | None = None,
) -> Result:
    """The result of a finished run, from the files in its directory; labels are the cell's, where there is one."""
    summary, record = directory.summary(), directory.config()
    if summary is None:
        raise RunError(
            f"{directory.path} is not finished: it has no summary.json. Continue it with --resume, or, if it "
            "diverged, begin another."
        )
    config = RunConfig.from_dict(settings_of(record))
    epochs, model = directory.records("metrics"), directory.best_fingerprint()
    if len(epochs) < config.training.epochs:
        raise RunError(
            f"{directory.path} is finished, but metrics.jsonl has {len(epochs)} of its "
            f"{counted(config.training.epochs, 'epoch')}. Copy that back."
        )
    seen = epochs[: summary["best_epoch"] + 1]  # by the model that is scored: it ends there
    made = {
        "format": FORMAT,
        "name": cell.name if cell else directory.path.resolve().name,
        "labels": cell.labels if cell else {"method": config.policy.method},
        "seed": config.seed,
        "config": shown_config(config),
        "names": record["names"],
        "text": record["text_sha256"][:8],
        "group": group_of(config, record),
        "signature": summary["signature"],
        "valid_perplexity": summary["valid_perplexity"],
        "test_perplexity": summary["test_perplexity"],
        "valid_nats": math.log(summary["valid_perplexity"]),
        "test_nats": math.log(summary["test_perplexity"]),
        "best_epoch": summary["best_epoch"],
        "parameters": directory.parameters(),
        "dose": {name: _mean(epochs, f"{name}_rate") for name in ("prediction", "neighbor")},
        "effective": {
            "prediction": _mean(seen, "effective_prediction_rate"),
            "neighbor": _mean(seen, "effective_neighbor_rate"),
            "all": _mean(seen, "effective_rate"),
        },
        "epochs": [_kept(epoch) for epoch in epochs],
        "scores": [_without_model(score) for score in directory.scores() if _is_final(score)],
        "samples": _samples(directory.records("generations", **({"model": model} if model else {}))),
        "trajectory": trajectory,
        "command": command_of(config, directory.path.name),
        "model": model,
        "request": shown_request(request) if request else None,
        "timing": {
            "train_seconds": _train_seconds(directory, len(epochs)),
            "environment": record["environment"],
        },
    }
    return Result(json.loads(json.dumps(made)))  # as it will be read


def collect(*sources: Path | str) -> list[Result]:
    """The results in a grid's folder (in the plan's order), a folder of runs, a run directory or a .jsonl(.xz) file.

    Runs that are not finished are left out, unless one was named itself; and cells of a grid that were trained
    further since they were measured, for they are not done. A run that comes several times counts once,
    with the scores of the copy that has the most.
    """
    with without_collector():
        found: dict[tuple[Any, ...], Result] = {}
        for result in (result for source in sources for result in _collected(Path(source))):
            same = tuple(result.record.get(name) for name in OF_ONE_RUN)
            found[same] = max(found.get(same, result), result, key=lambda copy: len(copy.scores))
        return list(found.values())


def _collected(path: Path) -> list[Result]:
    with explained(path, "read"):
        is_folder, exists = path.is_dir(), path.exists()
    if path.name.endswith(LINES) and not is_folder:
        return list(_of_lines(path))
    if not is_folder:
        what = "is a file of another kind" if exists else "does not exist"
        raise RunError(
            f"{path} {what}: results come from a .jsonl or .jsonl.xz file, or from the folder of a grid, of runs or "
            "of one run."
        )
    grid = GridDirectory(path)
    plan = grid.plan()
    if plan is not None:
        found = ((cell, _present(RunDirectory(grid.run_path(cell["name"])))) for cell in plan["cells"])
        return [
            _checked({**record, "name": cell["name"], "labels": cell["labels"]}, grid.run_path(cell["name"]))
            for cell, record in found
            if record is not None
        ]
    runs = RunDirectory.within(path)
    if not runs:
        return [_of_run(RunDirectory(path))]
    return [_of_run(run) for run in runs if run.summary() is not None]


@contextmanager
def without_collector() -> Iterator[None]:
    """Python's garbage collector would go through thousands of results again and again, and find none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _of_run(directory: RunDirectory) -> Result:
    """The stored result where it is of the present model, else one made now."""
    record = _present(directory)
    if record is None:
        return build_result(RunDirectory.open(directory.path))
    return _checked(record, directory.path)


def _present(directory: RunDirectory) -> Json | None:
    """The stored result, unless the model or the format is another by now; without its model it is all there is."""
    record, model = directory.result(), present_model(directory)
    if record is None or model is None:
        return record
    return record if (record.get("model"), record.get("format")) == (model, FORMAT) else None


def present_model(directory: RunDirectory) -> str | None:
    """The fingerprint of the model as it is now; None where that is elsewhere or lost."""
    directory.summary()  # a damaged one is told
    try:
        return directory.best_fingerprint()
    except RunError:
        return None


def has_result(path: Path) -> bool:
    """Whether a grid's run directory has a result that `collect` takes."""
    return _present(RunDirectory(path)) is not None


def _of_lines(path: Path) -> Iterator[Result]:
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line:
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise RunError(f"line {number} of {path} is no JSON: {error}.") from None
        yield _checked(record, f"line {number} of {path}")


def _checked(record: Any, where: Path | str) -> Result:
    if not isinstance(record, dict) or not isinstance(record.get("format"), int) or "group" not in record:
        raise RunError(f"{where} is not a result. Was it written by `nnrs results --format jsonl`?")
    if record["format"] != FORMAT:
        what_to_do = (
            "Update nnrs" if record["format"] > FORMAT else "Make it again from the runs: `nnrs results`"
        )
        raise RunError(
            f"{where} has result format {record['format']}; this version of nnrs reads {FORMAT}. {what_to_do}."
        )
    found = _damage(record, FIELDS) or next(
        (
            f"{damage} in one of its {name}"
            for name, fields in (("scores", SCORE_FIELDS), ("epochs", EPOCH_FIELDS))
            for part in record[name]
            if (damage := _damage(part, fields))
        ),
        None,
    )
    if found:
        raise RunError(f"{where} is a damaged result: {found}. Copy or make it again.")
    return Result(record)


def _damage(record: Json, fields: Sequence[Kind]) -> str | None:
    """The first field that is not of its kind, in words."""
    for kind, is_kind, names in fields:
        for name in names:
            value: Any = record
            for part in name.split("."):
                value = value.get(part)  # of an object: the outer ones came first
            if not is_kind(value):
                got = "null or nothing" if value is None else _shortened(json.dumps(value))
                return f"{name} must be {kind}, got {got}"
    return None


def _all_of(container: type[Any], is_kind: Callable[[Any], bool], value: Any) -> bool:
    """Whether a list or an object holds such values alone."""
    if not isinstance(value, container):
        return False
    return all(map(is_kind, value.values() if isinstance(value, dict) else value))


def _shortened(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[:most]} ..."


def shown_config(config: RunConfig) -> Json:
    """The configuration as plain values, of files their names alone."""
    shown = config.as_dict()
    for section in ("data", "vectors"):
        shown[section]["source"] = Path(shown[section]["source"]).name
    return shown


def shown_request(request: Request) -> Json:
    """What was measured as plain values, of files their names alone: a result tells nothing of its machine."""
    values: Json = json.loads(json.dumps(asdict(request)))  # with lists, as it is read back
    return values | {name: Path(values[name]).name for name in FILES if values[name]}


def group_of(config: RunConfig, record: Json) -> str:
    """What runs share that differ in nothing but the seed: settings, and text and vectors as they really were."""
    apart = [record[name] for name in ("names", "text_sha256", "vectors_sha256")]
    text = json.dumps([config.fingerprint(), *apart], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _mean(records: Sequence[Json], name: str) -> float:
    return fmean(record[name] for record in records)


def _kept(epoch: Json) -> Json:
    """An epoch's line with as many digits as are kept; metrics.jsonl has them all."""
    return {
        name: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
        for name, value in epoch.items()
    }


def _train_seconds(directory: RunDirectory, epochs: int) -> float | None:
    """What training took; None where the lines of some epochs are lost, rather than too little."""
    lines = directory.records("timing")
    return sum(line["train_seconds"] for line in lines) if len(lines) == epochs else None


def _is_final(score: Json) -> bool:
    """Whether a score was made at the run's end; the model may have been the best before that already."""
    return UNFINISHED not in signature_parts(score["signature"])


def _without_model(score: Json) -> Json:
    return {name: value for name, value in score.items() if name != "model"}


def _samples(generations: Sequence[Json]) -> list[Json]:
    """A few continuations or translations, spread evenly: of the same words for every run of one text and request."""
    key = generations[0]["key"] if generations else ""
    made = [record for record in generations if record["key"] == key]
    count = min(SAMPLES, len(made))
    decode = signature_parts(key).get("decode", "")
    return [
        {**{name: made[at][name] for name in ("prefix", "gold", "generated")}, "decode": decode}
        for at in (index * len(made) // count for index in range(count))
    ]
