"""The checkpoints of a run: the newest two, and the best. Each has its step in its name: none is ever written over.

Tensors are safetensors; the JSON beside them carries their checksum and is written last: it is the proof that a
checkpoint is whole.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnrs.errors import RunError
from nnrs.files import COPY, explained, is_half_written, read_json, write_atomically, write_json

FORMAT = 1
Json = dict[str, Any]
TENSORS = re.compile(r"(checkpoint|best)-\d{9,}\.safetensors")


class Checkpoints:
    """The checkpoints in one folder."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

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
        offer = COPY
        if len(steps) > 1 and step == steps[-1]:
            before = f"checkpoint-{steps[-2]:09d}"
            offer += f" Or continue from {before}, which is there as well, with --resume --previous."
        return self._read_tensors(f"checkpoint-{step:09d}", offer)

    def forget_checkpoints_after(self, step: int) -> None:
        """Forget checkpoints later than `step`, and what a kill left half done."""
        names = self._names("checkpoint") + self._names("best")
        self._drop([name for name in names if _step(name) > step])
        self._drop_outdated()
        self._drop_half_done()

    def write_best(self, tensors: Mapping[str, Any], state: Json) -> None:
        """Store the best model so far. The one before stays while a kept checkpoint knows no other."""
        self._write_tensors(f"best-{state['step']:09d}", tensors, state)

    def best(self) -> tuple[dict[str, Any], Json]:
        """The tensors and the state of the best model."""
        name = self._best_name()
        if name is None:
            raise RunError(self._lack())
        return self._read_tensors(name, COPY + self._anew())

    def best_fingerprint(self) -> str | None:
        """sha256 of the best model's tensors, also where only their proof was copied; None without that."""
        name = self._best_name()
        return str(read_json(self.path / f"{name}.json").get("tensors_sha256")) if name else None

    def parameters(self) -> int | None:
        """How many numbers the best model has, read off its file's header; None where that is elsewhere."""
        from safetensors import SafetensorError, safe_open

        name = self._best_name()
        path = self.path / f"{name or 'best'}.safetensors"
        if not path.is_file():
            return None
        with explained(path, "read"):
            try:
                with safe_open(path, framework="numpy") as file:
                    keys = file.keys()
                    sizes = [file.get_slice(key).get_shape() for key in keys if key.startswith("model.")]
            except SafetensorError as error:
                raise RunError(f"{path} is damaged: {error}.{COPY}") from None
        return sum(int(math.prod(size)) for size in sizes)

    def _lack(self) -> str:
        """Why there is no best model, and what to do."""
        return (
            f"{self.path} has no trained model yet: wait, if it is being trained, else continue it with `nnrs train "
            f"--out {self.path} --resume` or, if it diverged, begin another with a lower learning rate."
        )

    def _anew(self) -> str:
        """What helps where a model is lost for good."""
        return f" Or train it anew: nnrs train --config {self.path / 'config.json'} --out NEW."

    def _best_name(self) -> str | None:
        return next(reversed(self._names("best")), None)

    def _names(self, kind: str) -> list[str]:
        return sorted(path.stem for path in self.path.glob(f"{kind}-*.json"))

    def _drop_outdated(self) -> None:
        names = self._names("checkpoint")
        then_best = [name for name in self._names("best") if names and _step(name) <= _step(names[-2:][0])]
        self._drop(names[:-2] + then_best[:-1])

    def _drop_half_done(self) -> None:
        """Remove what a kill left: half-written files, and tensors whose JSON was to come. The rest is not ours."""
        with explained(self.path):
            files = [path for path in self.path.iterdir() if path.is_file()]
            tensors = [path for path in files if TENSORS.fullmatch(path.name)]
            unproven = [path for path in tensors if not path.with_suffix(".json").is_file()]
            for path in (*unproven, *filter(is_half_written, files)):
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
        proof = {"format": FORMAT, **checksums, "state": state}
        write_json(self.path / f"{name}.json", proof, indent=2)

    def _read_tensors(self, name: str, offer: str) -> tuple[dict[str, Any], Json]:
        from safetensors.torch import load_file

        path, proof = self.path / f"{name}.safetensors", self._proof(name, offer)
        if not path.is_file():
            raise RunError(f"{path} is missing, though {name}.json speaks of it.{offer}")
        if _sha256(path) != proof.get("tensors_sha256"):
            raise RunError(f"{path} is damaged: its checksum is not the one in {name}.json.{offer}")
        return load_file(path), proof["state"]

    def _proof(self, name: str, offer: str = COPY) -> Json:
        """The JSON beside the tensors, which is whole."""
        proof = read_json(self.path / f"{name}.json", offer)
        if _sha256_of(proof.get("state")) != proof.get("state_sha256"):
            raise RunError(f"{self.path / name}.json is damaged: its checksum does not match.{offer}")
        return proof


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sha256_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _step(name: str) -> int:
    return int(name.rpartition("-")[2])
