"""A run directory: with its checkpoints the only module that knows its file names, and its format version.

Every file is written beside its place and moved there, so that a reader (or a kill) never meets half a file.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nnrs.checkpoints import FORMAT, Checkpoints
from nnrs.errors import RunError
from nnrs.files import (
    COPY,
    UMASK,
    Claim,
    NoLocksError,
    explained,
    locked,
    read_json,
    refuse_file,
    write_atomically,
    write_json,
    write_text,
)

if TYPE_CHECKING:
    from torch import Tensor

Json = dict[str, Any]
SEAL = "seal"  # what config.json says of the rest of it


def check_format(found: Any, where: Path) -> None:
    """Refuse a run, or a config.json by itself, of a format that this version cannot read."""
    if type(found) is not int:
        raise RunError(
            f"{where} has run format {found!r:.60}, which is no whole number. Was it edited? This version of nnrs "
            f"writes {FORMAT}."
        )
    if found > FORMAT:
        raise RunError(
            f"{where} has run format {found}; this version of nnrs reads up to {FORMAT}. Update nnrs."
        )


@contextmanager
def folder_at_once(path: Path) -> Iterator[Path]:
    """A hidden folder beside `path` to be filled; it becomes `path` in one step, or goes where filling it fails.

    `path` may be an empty folder. One that is not is never replaced.
    """
    place = path.resolve()
    with explained(path):
        if place == Path.cwd():
            raise RunError(f"{path} is the current folder, which cannot be replaced. Name a new one in it.")
        if not place.parent.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.", suffix=".tmp"))
    try:
        yield hidden
        with explained(path):
            hidden.chmod(0o777 & ~UMASK)  # mkdtemp's are for their owner alone
            hidden.rename(place)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise


class RunDirectory(Checkpoints):
    """The files of one run."""

    _claims: ClassVar[dict[Path, Claim]] = {}  # of this process

    @classmethod
    def create(cls, path: Path | str, config: Json) -> "RunDirectory":
        """A new run directory that holds `config`; an existing one is never touched."""
        run = cls(path)
        run.check_free()
        with explained(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
        values = {"format": FORMAT, **config}
        run._write_json("config.json", {**values, SEAL: _seal(values)})
        return run

    def check_free(self) -> None:
        """Refuse a path that something stands at already, an empty folder apart."""
        refuse_file(self.path)
        with explained(self.path):
            taken = self.path.exists() and any(self.path.iterdir())
        if taken:
            go_on = (
                f", or go on there with --out {self.path} --resume alone"
                if self.is_run or _runs_in(self.path)
                else ""
            )
            raise RunError(f"{self.path} exists already and is not overwritten. Choose another --out{go_on}.")

    @classmethod
    def open(cls, path: Path | str) -> "RunDirectory":
        """An existing run directory of a format this version can read."""
        run = cls(path)
        if not run.is_run:
            there = "it has no config.json" if run.path.is_dir() else "it does not exist"
            there = "it is a file" if run.path.is_file() else there
            if inside := _runs_in(run.path) or _runs_in(run.path / "runs"):
                raise RunError(
                    f"{run.path} is not a run directory, but holds {len(inside)}. Name one: {inside[0]}"
                )
            raise RunError(f"{run.path} is not a run directory: {there}. Was it made by `nnrs train`?")
        run.config()
        return run

    @property
    def is_run(self) -> bool:
        """Whether a run has begun there."""
        with explained(self.path, "read"):
            return (self.path / "config.json").is_file()

    @classmethod
    def within(cls, path: Path | str) -> "list[RunDirectory]":
        """The run directories that a folder holds, seed-2 before seed-10; none where it is one itself.

        One that has lost its config.json is refused: left out, it would be missing from what is told of the others.
        """
        folder = Path(path)
        with explained(folder, "read"):
            if (folder / "config.json").is_file():
                return []
            found, begun = _runs_in(folder), [file.parent for file in folder.glob("*/vocabulary.json")]
            torn = [
                place for place in sorted(begun) if place not in found and (place / "metrics.jsonl").is_file()
            ]
        if torn:
            raise RunError(
                f"{torn[0]} is a run without its config.json. Copy that back, or move the folder away."
            )
        return [cls.open(place) for place in found]

    def claim(self) -> None:
        """Let no other process train this run, until `release` or this one's end; refuse where another does."""
        place = self.path.resolve()
        if place in self._claims:
            return
        try:
            claim = Claim.of(place / "config.json")  # which is written once, and never replaced
        except NoLocksError:
            return  # it is trained all the same
        if not claim:
            raise RunError(f"{self.path} is being trained by another process. Wait for its end, or stop it.")
        self._claims[place] = claim

    def release(self) -> None:
        """Let others train it."""
        if claim := self._claims.pop(self.path.resolve(), None):
            claim.release()

    def config(self) -> Json:
        """The configuration as used; one that was edited since would tell of another run than this."""
        values = self._read_json("config.json")
        check_format(values.get("format"), self.path)
        path, seal = self.path / "config.json", values.pop(SEAL, None)
        if seal != _seal(values):
            why = "has no seal: it was edited, or is of an earlier nnrs"
            if seal:
                why = "was edited since the run began, and would tell of another. Undo that"
            raise RunError(f"{path} {why}. For another run: nnrs train --config {path} --out NEW")
        return values

    # Records: one JSON line each.

    def append(self, name: str, record: Json) -> None:
        """Add a line to `metrics` or `timing`."""
        path = self._lines_path(name)
        with explained(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def records(self, name: str, **wanted: Any) -> list[Json]:
        """The lines of `metrics`, `timing`, `generations` or `scores`, or those of them that say what is wanted."""
        return list(self.each(name, **wanted))

    def each(self, name: str, **wanted: Any) -> Iterator[Json]:
        """The same one by one, so that only one is held at a time. A torn last line is left out."""
        return (record for _, record in self._lines(name) if wanted.items() <= record.items())

    def replace(self, name: str, field: str, values: Collection[str], records: Iterable[Json]) -> None:
        """Put lines into `generations` or `scores`, in place of those whose `field` has one of `values`, all at once.

        The records are taken one by one and kept on disk, however many they are.
        """
        path = self._lines_path(name)
        with (
            explained(path),
            tempfile.TemporaryFile("w+", encoding="utf-8", dir=self.path) as fresh,  # gone, whatever happens
        ):
            fresh.writelines(json.dumps(record) + "\n" for record in records)

            def merge(temporary: Path) -> None:
                fresh.seek(0)
                with temporary.open("w", encoding="utf-8") as file:
                    file.writelines(
                        line for line, record in self._lines(name) if record.get(field) not in values
                    )
                    shutil.copyfileobj(fresh, file)

            with locked(
                self.path / ".lock"
            ):  # no other process replaces lines now, so that none of them is lost
                write_atomically(path, merge)

    def _lack(self) -> str:
        """The same; a run whose model is lost is not asked to be trained further."""
        lost = f"{self.path} is finished, but its model (best-*) is gone.{COPY}{self._anew()}"
        return super()._lack() if self.summary() is None else lost

    def _best_name(self) -> str | None:
        """The newest best model, refused where a finished run ended with a later one: that has been lost."""
        name, summary = super()._best_name(), self.summary()
        if name is None or summary is None:
            return name
        best = summary.get("best_epoch", -1)
        found = self._proof(name)["state"].get("best_epoch", -1)
        if found < best:
            raise RunError(
                f"{self.path} ended with the model of epoch {best}, but the newest there, {name}, is of epoch "
                f"{found}. Copy the later best-* files back.{self._anew()}"
            )
        return name

    def scores(self) -> list[Json]:
        """The scores of the model as it is now; those of an earlier one, before it was trained further, are not.

        Where nothing says which model is the present one (it was not copied along), all of them.
        """
        model = self.best_fingerprint()
        return self.records("scores", model=model) if model else self.records("scores")

    def write_summary(self, summary: Json) -> None:
        """The result of a finished run."""
        self._write_json("summary.json", summary)

    def summary(self) -> Json | None:
        """The result, or None where the run is not finished."""
        path = self.path / "summary.json"
        anew = f" Copy it back, or delete it: `nnrs train --out {self.path} --resume` then writes it anew."
        return read_json(path, anew) if path.is_file() else None

    def write_losses(self, losses: Mapping[str, "Tensor"]) -> None:
        """What the best model loses on each split, a number for each piece of it."""
        from safetensors.torch import save_file

        about = {split: _digest(tensor) for split, tensor in losses.items()}
        about["model"] = str(self.best_fingerprint())
        told = {"about": json.dumps(about)}  # one entry: the order of several is left to chance
        write_atomically(self._losses_path, lambda temporary: save_file(dict(losses), temporary, told))

    def losses(self, split: str) -> "Tensor | None":
        """What `write_losses` was given, or None where there is nothing of the present model.

        Where nothing says which model is the present one, they are taken to be its.
        """
        from safetensors import SafetensorError, safe_open

        path, model = self._losses_path, self.best_fingerprint()
        if not path.is_file():
            return None
        damaged = RunError(f"{path} is damaged. Delete it: the model's losses are then computed again.")
        with explained(path, "read"):
            try:
                with safe_open(path, framework="pt") as file:
                    splits, about = file.keys(), json.loads((file.metadata() or {}).get("about", "{}"))
                    if split not in splits or model not in (None, about.get("model")):
                        return None
                    losses: Tensor = file.get_tensor(split)
            except (SafetensorError, ValueError):
                raise damaged from None
        if _digest(losses) != about.get(split):
            raise damaged
        return losses

    def write_result(self, result: Json) -> None:
        """All that is known of the run, on one line: what tables and pages are made from."""
        write_json(self.path / "result.json", result)

    def result(self) -> Json | None:
        """What `write_result` was given, or None."""
        return self._read_json("result.json") if (self.path / "result.json").is_file() else None

    def write_vocabulary(self, vocabulary: Json) -> None:
        """The vocabulary the model's ids refer to."""
        self._write_json("vocabulary.json", vocabulary)

    def vocabulary(self) -> Json:
        """What `write_vocabulary` was given."""
        return self._read_json("vocabulary.json")

    def write_source_vocabulary(self, vocabulary: Json) -> None:
        """The vocabulary of what a model translates from."""
        self._write_json("source_vocabulary.json", vocabulary)

    def source_vocabulary(self) -> Json:
        """What `write_source_vocabulary` was given."""
        return self._read_json("source_vocabulary.json")

    @property
    def has_source_vocabulary(self) -> bool:
        """Whether it was written yet."""
        return (self.path / "source_vocabulary.json").is_file()

    @property
    def has_vocabulary(self) -> bool:
        """Whether it was written yet."""
        return (self.path / "vocabulary.json").is_file()

    @property
    def table_path(self) -> Path:
        """Where the neighbor table is, if the method has one."""
        return self.path / "neighbors.safetensors"

    @property
    def _losses_path(self) -> Path:
        return self.path / "losses.safetensors"

    @property
    def tensorboard_path(self) -> Path:
        """Where TensorBoard's event files go."""
        return self.path / "tensorboard"

    def check_told(self, epochs: int) -> None:
        """Refuse to go on behind so many epochs where the line of one is lost: its rates would not be known."""
        lost = {*range(epochs)} - {record["epoch"] for record in self.each("metrics")}
        if lost:
            raise RunError(
                f"{self._lines_path('metrics')} has no line of epoch {min(lost)}, which is behind the checkpoint. "
                "Copy the file back."
            )

    def forget_after(self, step: int, epochs: int) -> None:
        """Forget checkpoints later than `step` and records from epoch `epochs` on: the run continues from there.

        What a kill left half done goes, too, and the result of a run that is no longer at its end.
        """
        if any(record["epoch"] >= epochs for record in self.each("metrics")):
            with explained(self.path):
                for name in ("summary.json", "losses.safetensors", "result.json"):
                    (self.path / name).unlink(missing_ok=True)
        self.forget_checkpoints_after(step)
        for name in ("metrics", "timing"):
            self._write_lines(name, [record for record in self.records(name) if record["epoch"] < epochs])

    def _lines_path(self, name: str) -> Path:
        return self.path / f"{name}.jsonl"

    def _lines(self, name: str) -> Iterator[tuple[str, Json]]:
        """The whole lines of a file, as they stand and as what they say; none where there is no file."""
        path = self._lines_path(name)
        if not path.is_file():
            return
        number = 0
        try:
            with path.open(encoding="utf-8") as file:
                for line in file:
                    number += 1
                    if line.endswith("\n"):
                        yield line, json.loads(line)
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}.{COPY}") from None
        except json.JSONDecodeError:
            raise RunError(f"{path}, line {number} is damaged: it is no JSON.{COPY}") from None
        except UnicodeDecodeError:  # many lines are read at once
            raise RunError(f"{path} is damaged: after line {number} it is not UTF-8.{COPY}") from None

    def _write_lines(self, name: str, records: Sequence[Json]) -> None:
        write_text(self._lines_path(name), "".join(json.dumps(record) + "\n" for record in records))

    def _write_json(self, name: str, value: Json) -> None:
        write_json(self.path / name, value, indent=2)

    def _read_json(self, name: str) -> Json:
        return read_json(self.path / name)


def _seal(values: Json) -> str:
    """sha256 of a configuration, whatever the order and the spelling of its numbers, but for where files are.

    A text or a file of vectors may be moved; whether it is the same one is told by its own hash.
    """
    kept = _plain(values)
    for section in (kept.get("data"), kept.get("vectors")):
        if isinstance(section, dict) and Path(str(section.get("source"))).is_absolute():
            section["source"] = "/"
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A copy with whole numbers as integers, as which other programs write them."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _digest(losses: "Tensor") -> str:
    return hashlib.sha256(losses.numpy().tobytes()).hexdigest()


def _runs_in(folder: Path) -> list[Path]:
    return sorted((config.parent for config in folder.glob("*/config.json")), key=_natural_order)


def _natural_order(path: Path) -> list[int | str]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]
