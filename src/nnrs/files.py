"""Files that are written whole or not at all, locks between processes, and one line for what the system refuses."""

import contextlib
import fcntl
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from nnrs.errors import RunError

BEGINNING = 2_000  # characters of a file, among which a mark of ours stands
# What is left of a file whose writing was killed: ours, with eight letters of tempfile's, and safetensors' own.
HALF_WRITTEN = re.compile(r"\.[\w-]+\.(json|jsonl|safetensors)\.[a-z0-9_]{8}\.tmp|\.tmp[A-Za-z0-9]{6}")
ADVICE = {
    "write": "What was there before is untouched. Mend that, or choose another place, and try again.",
    "read": "Check the path and its permissions.",
    "lock": "Use a file system with locks.",
}


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Have `write` fill a temporary file beside `path`, then move it there in one step.

    Each call has a file of its own: of several that write one path at once, the last to end is what stays.
    """
    if not path.parent.is_dir():
        raise RunError(
            f"cannot write {path}: there is no folder {path.parent}. Make it, or choose another place."
        )
    with explained(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        with explained(path):
            write(temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o666 & ~UMASK)  # mkstemp and safetensors make them for their owner alone
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):  # the error to be told is the one above
            temporary.unlink()


def is_half_written(path: Path) -> bool:
    """Whether a file is one that `write_atomically`, or safetensors within it, was filling when it was killed.

    >>> is_half_written(Path(".best-7.safetensors.k3x_9abz.tmp")), is_half_written(Path(".notes.tmp"))
    (True, False)
    >>> is_half_written(Path(".tmpownefG")), is_half_written(Path(".tmp")), is_half_written(Path(".tmp-notes"))
    (True, False, False)
    """
    return HALF_WRITTEN.fullmatch(path.name) is not None


def write_text(path: Path, text: str) -> None:
    """The text as a file, in place of what was there, in one step; where the name ends in .xz, compressed.

    The same text gives the same bytes, whenever it is written and whatever the file is called.
    """
    data = _compressed(text.encode()) if path.suffix == ".xz" else text.encode()
    write_atomically(path, lambda temporary: _write(temporary, data))


def read_text(path: Path) -> str:
    """What `write_text` was given; a file that is damaged is an error that names it."""
    with explained(path, "read"):
        data = path.read_bytes()
    try:
        return (_decompressed(data) if path.suffix == ".xz" else data).decode()
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}. Copy or make it again.") from None


def _compressed(data: bytes) -> bytes:
    import lzma  # some builds of Python lack it, and most commands do without

    return lzma.compress(data)


def _decompressed(data: bytes) -> bytes:
    """Streams one behind the other. `lzma.decompress` leaves out a second one that is damaged, without a word."""
    import lzma

    parts = []
    while data:
        stream = lzma.LZMADecompressor()
        try:
            parts.append(stream.decompress(data))
        except lzma.LZMAError as error:
            raise ValueError(error) from None
        if not stream.eof:
            raise ValueError("it ends too early")
        data = stream.unused_data
    return b"".join(parts)


def write_json(path: Path, value: dict[str, Any], *, indent: int | None = None) -> None:
    """The same of JSON: on one line, or with so many spaces to a level."""
    write_text(path, json.dumps(value, indent=indent, ensure_ascii=False) + "\n")


COPY = " Copy it back."


def read_json(path: Path, offer: str = COPY) -> dict[str, Any]:
    """A JSON object; what is none is an error that names the file, and ends with what might help."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}.{offer}") from None
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}.{offer}") from None
    if not isinstance(value, dict):
        raise RunError(f"{path} is damaged: a JSON object was expected.{offer}")
    return value


def check_replaceable(path: Path, mark: str, kind: str) -> None:
    """Refuse to write over a file that does not bear the mark of this kind of ours near its beginning."""
    with explained(path, "read"):
        if path.exists() and not (path.is_file() and mark in _beginning(path)):
            raise RunError(
                f"{path} exists and is no {kind} of nnrs: it is not overwritten. Choose another name."
            )


def refuse_file(path: Path) -> None:
    """An error where a file, or a link to nothing, is in the place of a folder or of one that is to hold it."""
    with explained(path, "read"):
        lowest = next((place for place in (path, *path.parents) if os.path.lexists(place)), None)
        if lowest and not lowest.exists():
            raise RunError(
                f"{lowest} is a link to {lowest.readlink()}, which is not there. Make that folder, or choose "
                "another --out."
            )
        if lowest and not lowest.is_dir():
            raise RunError(f"{lowest} is a file, and a folder is expected. Choose another --out.")


def _beginning(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(BEGINNING)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """For this process alone while the context lasts; others wait.

    `path` is an empty file of its own: a lock on a folder is not shared between machines by NFS.
    """
    with explained(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with explained(path, "lock"):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # and with it the lock


class WriteError(RunError):
    """A file or folder cannot be written."""


class NoLocksError(RunError):
    """The file system has no locks."""


class Claim:
    """The right to work on something, which one process has until it releases it or ends."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    def of(cls, path: Path) -> "Claim | None":
        """The right that a file stands for, which is made where it is not there; None where another has it."""
        with explained(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError as error:
            os.close(handle)
            raise NoLocksError(
                f"cannot lock {path}: {error.strerror}. Use a file system with locks."
            ) from None
        return cls(handle)

    def release(self) -> None:
        """Let others have it."""
        os.close(self._handle)  # and with it the lock


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
        kind = WriteError if doing == "write" else RunError
        raise kind(f"cannot {doing} {path}: {reason}. {ADVICE[doing]}") from None


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
