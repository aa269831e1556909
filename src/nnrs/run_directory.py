"""A run directory: the only module that knows its file names, and its format version.

Every file is written beside its place and moved there, so that a reader (or a kill) never meets half a file.
Tensors are safetensors; the JSON beside them carries their checksum and is written last: it is the proof that a
checkpoint is whole.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from nnrs.errors import RunError

FORMAT = 1
ADVICE = {
    "write": "What was there before is untouched. Mend it and try again; a run goes on with --resume.",
    "read": "Check the path and its permissions.",
}
Json = dict[str, Any]


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Have `write` fill a temporary file beside `path`, then move it there in one step."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with explained(path):
            write(temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o666 & ~UMASK)  # safetensors makes files that only their owner may read
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):  # the error to be told is the one above
            temporary.unlink()


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


def _read_umask() -> int:
    current = os.umask(0o077)  # it can only be read by setting it
    os.umask(current)
    return current


UMASK = _read_umask()  # once: threads that set it in turn would end with another's


@contextmanager
def explained(path: Path, doing: str = "write") -> Iterator[None]:
    """Turn an operating-system error into one line about this path."""
    try:
        yield
    except (OSError, SafetensorError) as error:  # a full disk under `save_file` is one of the latter
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise RunError(f"cannot {doing} {path}: {reason}. {ADVICE[doing]}") from None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sha256_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class RunDirectory:
    """The files of one run."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: Path | str, config: Json) -> "RunDirectory":
        """A new run directory that holds `config`; an existing one is never touched."""
        run = cls(path)
        run.check_free()
        with explained(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
        run._write_json("config.json", {"format": FORMAT, **config})
        return run

    def check_free(self) -> None:
        """Refuse a path that something stands at already, an empty folder apart."""
        with explained(self.path):
            taken = self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir()))
        if taken:
            raise RunError(
                f"{self.path} exists already and is not overwritten. Choose another --out, or add --resume."
            )

    @classmethod
    def open(cls, path: Path | str) -> "RunDirectory":
        """An existing run directory of a format this version can read."""
        run = cls(path)
        with explained(run.path, "read"):
            is_run = (run.path / "config.json").is_file()
        if not is_run:
            raise RunError(
                f"{run.path} is not a run directory: it has no config.json. Was it made by `nnrs train`?"
            )
        found = run.config().get("format")
        if not isinstance(found, int) or found > FORMAT:
            raise RunError(
                f"{run.path} has run format {found}; this version of nnrs reads up to {FORMAT}. Update nnrs."
            )
        return run

    @classmethod
    def within(cls, path: Path | str) -> "list[RunDirectory]":
        """The run directories that a folder holds, seed-2 before seed-10; none where it is one itself."""
        folder = Path(path)
        with explained(folder, "read"):
            is_run = (folder / "config.json").is_file()
            found = [] if is_run else [config.parent for config in folder.glob("*/config.json")]
        return [cls.open(place) for place in sorted(found, key=_natural_order)]

    def config(self) -> Json:
        """The configuration as used."""
        return self._read_json("config.json")

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

            with self._alone():
                write_atomically(path, merge)

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
        return self._read_json("summary.json") if (self.path / "summary.json").is_file() else None

    def write_result(self, result: Json) -> None:
        """All that is known of the run, on one line: what tables and pages are made from."""
        text = json.dumps(result, ensure_ascii=False) + "\n"
        write_atomically(self.path / "result.json", partial(_write_text, text=text))

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
    def tensorboard_path(self) -> Path:
        """Where TensorBoard's event files go."""
        return self.path / "tensorboard"

    # Checkpoints: the newest two, and the best. Each has its step in its name, so none is ever written over.

    def write_checkpoint(self, tensors: Mapping[str, Any], state: Json) -> None:
        """Store a checkpoint under its step; drop all but it and the one before, and what was best before both."""
        self._write_tensors(f"checkpoint-{state['step']:09d}", tensors, state)
        self._drop_outdated()

    def steps(self) -> list[int]:
        """The steps of the checkpoints that are kept, rising."""
        return [_step(name) for name in self._names("checkpoint")]

    def checkpoint(self, step: int | None = None) -> tuple[dict[str, Any], Json] | None:
        """The tensors and the state of the checkpoint at `step`, or of the newest; None where there is none."""
        steps = self.steps()
        if not steps:
            return None
        step = steps[-1] if step is None else step
        offer = ""
        if len(steps) > 1 and step == steps[-1]:
            before = f"checkpoint-{steps[-2]:09d}"
            offer = f" {before} is there as well: continue from it with --resume --previous."
        return self._read_tensors(f"checkpoint-{step:09d}", offer)

    def forget_after(self, step: int, epochs: int) -> None:
        """Forget checkpoints later than `step` and records from epoch `epochs` on: the run continues from there.

        What a kill left half done goes, too.
        """
        names = self._names("checkpoint") + self._names("best")
        self._drop([name for name in names if _step(name) > step])
        self._drop_outdated()
        self._drop_half_done()
        for name in ("metrics", "timing"):
            self._write_lines(name, [record for record in self.records(name) if record["epoch"] < epochs])

    def write_best(self, tensors: Mapping[str, Any], state: Json) -> None:
        """Store the best model so far. The one before stays while a kept checkpoint knows no other."""
        self._write_tensors(f"best-{state['step']:09d}", tensors, state)

    def best(self) -> tuple[dict[str, Any], Json]:
        """The tensors and the state of the best model."""
        names = self._names("best")
        if not names:
            raise RunError(
                f"{self.path} has no trained model yet: continue it with `nnrs train --out {self.path} --resume`."
            )
        return self._read_tensors(names[-1], "")

    def best_fingerprint(self) -> str | None:
        """sha256 of the best model's tensors, also where only their proof was copied; None without that."""
        names = self._names("best")
        return str(self._read_json(f"{names[-1]}.json").get("tensors_sha256")) if names else None

    def parameters(self) -> int | None:
        """How many numbers the best model has, read off its file's header; None where that is elsewhere."""
        from safetensors import safe_open

        names = self._names("best")
        path = self.path / f"{names[-1]}.safetensors" if names else None
        if path is None or not path.is_file():
            return None
        with explained(path, "read"), safe_open(path, framework="numpy") as file:
            keys = file.keys()
            sizes = [file.get_slice(key).get_shape() for key in keys if key.startswith("model.")]
        return sum(int(math.prod(size)) for size in sizes)

    def _names(self, kind: str) -> list[str]:
        return sorted(path.stem for path in self.path.glob(f"{kind}-*.json"))

    def _drop_outdated(self) -> None:
        names = self._names("checkpoint")
        then_best = [name for name in self._names("best") if names and _step(name) <= _step(names[-2:][0])]
        self._drop(names[:-2] + then_best[:-1])

    def _drop_half_done(self) -> None:
        tensors = self.path.glob("*-*.safetensors")
        unproven = [path for path in tensors if not path.with_suffix(".json").is_file()]
        with explained(self.path):
            for path in (*unproven, *self.path.glob(".*.tmp")):
                path.unlink()

    def _drop(self, names: list[str]) -> None:
        with explained(self.path):
            for name in names:
                (self.path / f"{name}.json").unlink()  # first: without it the tensors count for nothing
                (self.path / f"{name}.safetensors").unlink(missing_ok=True)

    def _write_tensors(self, name: str, tensors: Mapping[str, Any], state: Json) -> None:
        from safetensors.torch import save_file

        path = self.path / f"{name}.safetensors"
        whole = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
        write_atomically(path, lambda temporary: save_file(whole, temporary))
        checksums = {"tensors_sha256": _sha256(path), "state_sha256": _sha256_of(state)}
        self._write_json(f"{name}.json", {"format": FORMAT, **checksums, "state": state})

    def _read_tensors(self, name: str, offer: str) -> tuple[dict[str, Any], Json]:
        from safetensors.torch import load_file

        path, proof = self.path / f"{name}.safetensors", self._read_json(f"{name}.json", offer)
        if _sha256_of(proof.get("state")) != proof.get("state_sha256"):
            raise RunError(f"{self.path / name}.json is damaged: its checksum does not match.{offer}")
        if not path.is_file():
            raise RunError(f"{path} is missing, though {name}.json speaks of it.{offer}")
        if _sha256(path) != proof.get("tensors_sha256"):
            raise RunError(f"{path} is damaged: its checksum is not the one in {name}.json.{offer}")
        return load_file(path), proof["state"]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other process is replacing lines, so that none of them is lost."""
        with explained(self.path):
            folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)  # and with it the lock

    def _lines_path(self, name: str) -> Path:
        return self.path / f"{name}.jsonl"

    def _lines(self, name: str) -> Iterator[tuple[str, Json]]:
        """The whole lines of a file, as they stand and as what they say; none where there is no file."""
        path = self._lines_path(name)
        if not path.is_file():
            return
        try:
            with path.open(encoding="utf-8") as file:
                yield from ((line, json.loads(line)) for line in file if line.endswith("\n"))
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read {path}: {error}.") from None

    def _write_lines(self, name: str, records: Sequence[Json]) -> None:
        text = "".join(json.dumps(record) + "\n" for record in records)
        write_atomically(self._lines_path(name), partial(_write_text, text=text))

    def _write_json(self, name: str, value: Json) -> None:
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        write_atomically(self.path / name, lambda path: _write_text(path, text))

    def _read_json(self, name: str, offer: str = "") -> Json:
        path = self.path / name
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read {path}: {error}.{offer}") from None
        if not isinstance(value, dict):
            raise RunError(f"{path} is damaged: a JSON object was expected.{offer}")
        return value


def _step(name: str) -> int:
    return int(name.rpartition("-")[2])


def _natural_order(path: Path) -> list[int | str]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
