"""The folder of a grid: the only module that knows the names of what lies beside its run directories.

Processes that share a folder agree through the kernel's locks, which a process loses when it dies, however it dies.
"""

import fcntl
import glob
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnrs.errors import RunError
from nnrs.files import Claim, explained, locked, read_json, refuse_file, write_json
from nnrs.run_directory import Json, RunDirectory

# What is to be done about a damaged or an older explorer.json.
EXPLORER_ANEW = " Delete it and continue the grid to make it anew, where one of its models is there."


class GridDirectory:
    """The files of one grid."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def explorer_path(self) -> Path:
        """What the page's explorers need, where it was written."""
        return self.path / "explorer.json"

    @property
    def report_path(self) -> Path:
        """Where the page goes."""
        return self.path / "report.html"

    @property
    def text_path(self) -> Path:
        """Where the tables of a demo go, as text."""
        return self.path / "report.txt"

    @property
    def figures_path(self) -> Path:
        """Where the paper's figures go."""
        return self.path / "figures"

    @property
    def runs_path(self) -> Path:
        """Where the run directories are."""
        return self.path / "runs"

    def run_path(self, name: str) -> Path:
        """The run directory of a cell."""
        return self.runs_path / name

    def drop_half_made(self, name: str) -> None:
        """Remove what a kill left of a run directory that was being made. For who has the claim."""
        with explained(self.runs_path):
            for path in self.runs_path.glob(f".{glob.escape(name)}.*.tmp"):
                shutil.rmtree(path)

    def plan(self) -> Json | None:
        """What `write_plan` was given, or None where there is no plan."""
        path = self.path / "plan.json"
        return read_json(path) if path.is_file() else None

    def write_plan(self, plan: Json) -> None:
        """The plan, in place of the one before."""
        write_json(self.path / "plan.json", plan, indent=1)

    def write_explorer(self, explorer: Json) -> None:
        """What the page's explorers need."""
        write_json(self.explorer_path, explorer)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """The folder, made where it is not there, for this process alone while the context lasts; of a grid alone."""
        self.refuse_others()  # before anything is left in it
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path / ".lock"):
            self.refuse_others()
            yield

    def refuse_others(self) -> None:
        """An error where the folder is a file, or is there and holds something else than a grid."""
        refuse_file(self.path)
        with explained(self.path, "read"):
            inside = self.path.iterdir() if self.path.exists() else ()
            others = [path.name for path in inside if not path.name.startswith(".")]
        if others and "plan.json" not in others:
            raise RunError(
                f"{self.path} holds {sorted(others)[0]} and no plan.json: it is no grid's folder. "
                "Choose another --out."
            )

    def claim(self, name: str) -> Claim | None:
        """The right to work on a cell, or None where another process has it."""
        path = self.path / "claims" / name
        with explained(path):
            path.parent.mkdir(exist_ok=True)
        return Claim.of(path)

    def is_claimed(self, name: str) -> bool:
        """Whether some process works on a cell at this moment."""
        claim = self.claim(name)
        if claim:
            claim.release()
        return claim is None

    def add_failure(self, record: Json) -> None:
        """A line about a try that failed, and where the run stood; lines of several processes do not mix."""
        path = self.path / "failures.jsonl"
        told = {**record, "step": self._step(record["name"])}
        line = (json.dumps(told, ensure_ascii=False) + "\n").encode()
        with explained(path), path.open("ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line)
            os.fsync(file.fileno())

    def failures(self) -> list[Json]:
        """Every line so far; one that a kill tore is left out."""
        path = self.path / "failures.jsonl"
        if not path.is_file():
            return []
        with explained(path, "read"):
            lines = path.read_text(encoding="utf-8").split("\n")
        return [record for record in map(_parsed, lines) if record is not None]

    def failed(self) -> dict[str, str]:
        """How the last try of each cell ended that one of failed: diverged, error or lost. It may be done by now.

        One that went on since its error, and did not come to an end, is lost as well; one that diverged would again.
        """
        last = {str(record.get("name")): record for record in self.failures()}
        return {
            name: "lost" if self._went_on(name, record) else str(record.get("kind"))
            for name, record in last.items()
        }

    def _went_on(self, name: str, failure: Json) -> bool:
        """Whether a run has another checkpoint than when it failed by an error; an old line does not say which."""
        now = self._step(name)
        return failure.get("kind") == "error" and failure.get("step", now) != now

    def _step(self, name: str) -> int | None:
        """The step of a run's newest checkpoint."""
        return max(RunDirectory(self.run_path(name)).steps(), default=None)


def _parsed(line: str) -> Json | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
