"""One reader for word2vec text and binary, GloVe and fastText `.vec` files, plain or gzip.

The file goes by in blocks and only the vocabulary's rows are kept: memory grows with the vocabulary, not with
the file. What a file is, its first bytes say; its name is not trusted.
"""

import codecs
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nnrs.embeddings.vectors import Embeddings
from nnrs.errors import ConfigError, DataError
from nnrs.wording import counted

Vector = NDArray[np.float32]
OTHERS = {  # how files begin that vectors come in or with
    rb"PK\x03\x04.{26}[^/]+/data\.pkl": "a file of PyTorch. Save its vectors as text: a word and its numbers a line.",
    rb"PK\x03\x04": "a zip archive. Unpack it, and give the file of vectors in it.",
    rb"\xba\x16\x4f\x2f": "a model of fastText. Give the .vec file of its vectors.",
}
HEAD = 1 << 16  # bytes looked at to tell the format: more than a first line has
BLOCK = 1 << 22  # bytes read at a time
WIDEST = 20_000  # a first line that promises wider vectors is no header
TEXT = bytes({*range(32, 127)} | {*b"\t\r"})  # what stands between the numbers of a text row
CONTROL = bytes({*range(32)} - {*b"\t\r\n"})  # what stands nowhere in a text file


def read_vectors(path: Path | str, words: Sequence[str]) -> Embeddings:
    """The vectors of `words`, each by its exact spelling or else its lower-cased one; row i is that of words[i].

    The first row of a spelling counts. A row with a number that is not finite counts as absent.
    """
    path, words = Path(path), _as_words(words)
    try:
        with _open(path) as stream:
            layout = _layout(stream.read(HEAD), path)
        wanted = _Wanted(words, layout.dim)
        with _open(path) as stream:
            (_read_binary if layout.binary else _read_text)(stream, layout, wanted, path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is a truncated or damaged gzip file ({error}). Download it again.") from None
    except OSError as error:
        raise DataError(
            f"cannot read vectors from {path}: {error.strerror}. Name a file of vectors."
        ) from None
    if wanted.met and not wanted.vectors.any():
        raise DataError(
            f"{path}: the rows of all words that it covers are zeros, or have a number that is not finite. Make or "
            "download it again."
        )
    if not wanted.met:
        raise DataError(
            f"{path}: embeddings cover 0 of {counted(len(words), 'word')}. "
            "Is the vocabulary lower-cased like the vectors?"
        )
    return Embeddings(torch.from_numpy(wanted.vectors), _short_name(path), wanted.rejected)


def _as_words(words: Any) -> list[str]:
    """Words in the order of their ids, which a dict or a set does not have."""
    expected = "words must be a list, words[i] that of id i"
    if isinstance(words, str | Mapping | Set) or not isinstance(words, Iterable):
        advice = " Use its .words." if hasattr(words, "words") else ""
        if isinstance(words, Mapping):
            advice = " Of a dict of ids, use sorted(vocab, key=vocab.get)."
        raise ConfigError(f"{expected}, got {type(words).__name__}.{advice}")
    listed = list(words)
    for row, word in enumerate(listed):
        if not isinstance(word, str):
            raise ConfigError(f"{expected}, got {word!r:.60} as words[{row}].")
    return listed


@dataclass(frozen=True)
class _Layout:
    """What a vector file's first bytes say about it."""

    dim: int
    count: int | None  # the rows that a header promises; None without a header
    binary: bool

    @property
    def shape(self) -> str:
        """The rows that a header promises, and how wide they are."""
        assert self.count is not None
        return f"{counted(self.count, 'row')} of {counted(self.dim, 'number')}"


class _Wanted:
    """The rows of the vocabulary, filled while the file goes by."""

    def __init__(self, words: Sequence[str], dim: int) -> None:
        self.vectors = np.zeros((len(words), dim), dtype=np.float32)
        self.rejected = 0
        self._filled = [False] * len(words)
        self._exact = {word.encode(): row for row, word in enumerate(words)}
        self.rows: dict[bytes, list[int]] = {}  # a spelling still looked for -> the words it may serve
        for row, word in enumerate(words):
            for spelling in {word.encode(), word.lower().encode()}:
                self.rows.setdefault(spelling, []).append(row)

    @property
    def met(self) -> bool:
        """Whether any word had a row, good or not."""
        return self.rejected > 0 or any(self._filled)

    def keep(self, spelling: bytes, vector: Vector) -> None:
        """Give the vector to the words of this spelling; another spelling's word keeps what it has."""
        if not np.isfinite(vector).all():
            self.rejected += 1
            return
        own = self._exact.get(spelling)
        for row in self.rows.pop(spelling):
            if row == own or not self._filled[row]:
                self.vectors[row] = vector
                self._filled[row] = True


@contextmanager
def _open(path: Path) -> Iterator[BufferedIOBase]:
    """The bytes of a file, unpacked, behind the byte order mark that it may begin with."""
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    with gzip.GzipFile(path) if zipped else path.open("rb") as stream:
        if stream.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            stream.seek(0)
        yield stream


def _short_name(path: Path) -> str:
    """The file's name without the endings that only say its format."""
    name = path.name
    for ending in (".gz", ".bin", ".txt", ".vec"):
        name = name.removesuffix(ending)
    return name


def _layout(head: bytes, path: Path) -> _Layout:
    if not head:
        raise DataError(f"{path} is empty. A vector file was expected.")
    for beginning, what_to_do in OTHERS.items():
        if re.match(beginning, head, re.DOTALL):
            raise DataError(f"{path} is {what_to_do}")
    first, _, rest = head.partition(b"\n")
    fields = first.rstrip().split(b" ")
    if len(fields) == 2 and all(field.isdigit() for field in fields) and 0 < int(fields[1]) <= WIDEST:
        return _Layout(int(fields[1]), int(fields[0]), _is_binary(rest))
    if len(fields) > 1 and _numbers(fields[1:]) is not None:
        return _Layout(len(fields) - 1, None, binary=False)
    raise DataError(
        f"{path} is not a vector file: its first line is neither a header (rows, width) nor a word and numbers. "
        "Known formats: word2vec text and binary, GloVe, fastText .vec."
    )


def _is_binary(body: bytes) -> bool:
    """Whether the bytes after a header are floats, not digits.

    Almost any binary file has a control byte soon. A very small one may not, but then its first row holds bytes
    that do not stand among the numbers of a line of text.
    """
    numbers = body.partition(b"\n")[0].partition(b" ")[2]
    return len(body.translate(None, CONTROL)) < len(body) or bool(numbers.translate(None, TEXT))


def _numbers(fields: list[bytes]) -> Vector | None:
    try:
        with np.errstate(over="ignore"):  # too large for float32 is inf, and that row counts as absent
            return np.array([float(field) for field in fields], dtype=np.float32)
    except ValueError:
        return None


def _read_binary(stream: BufferedIOBase, layout: _Layout, wanted: _Wanted, path: Path) -> None:
    """Rows of `word`, a space and little-endian float32 numbers, with or without a line end between them."""
    assert layout.count is not None
    stream.readline()
    size, rows, block, at = 4 * layout.dim, wanted.rows, b"", 0
    for row in range(layout.count):
        space = block.find(b" ", at)
        while space < 0 or space + 1 + size > len(block):
            more = stream.read(BLOCK)
            if not more:
                raise DataError(
                    f"{path} ends in row {row + 1:,} of the {layout.shape} that its first line promises: "
                    "it is truncated, or not of that width. Download it again."
                )
            block, at = block[at:] + more, 0
            space = block.find(b" ")
        word = block[at:space].lstrip(b"\n")
        if word in rows:
            wanted.keep(word, np.frombuffer(block, dtype="<f4", count=layout.dim, offset=space + 1))
        at = space + 1 + size
    if (block[at:] + stream.read(BLOCK)).strip(b"\n"):
        raise _surplus(layout, path)


def _read_text(stream: BufferedIOBase, layout: _Layout, wanted: _Wanted, path: Path) -> None:
    """Lines of a word and numbers, separated by single spaces."""
    lines_before = 0 if layout.count is None else 1
    if lines_before:
        stream.readline()
    row, rows = 0, wanted.rows
    for number, line in enumerate(stream, start=1 + lines_before):
        line = line.rstrip()
        if not line:
            continue
        row += 1
        word = (
            line[: line.find(b" ")]
            if line.count(b" ") == layout.dim
            else _spaced_word(line, number, layout, path)
        )
        if word in rows:
            vector = _numbers(line.rsplit(b" ", layout.dim)[1:])
            if vector is None:
                raise DataError(
                    f"{path}, line {number:,}: expected a word and {counted(layout.dim, 'number')}. Mend the line."
                )
            wanted.keep(word, vector)
    if layout.count is not None and row != layout.count:
        if row > layout.count:
            raise _surplus(layout, path)
        raise DataError(
            f"{path} ends after {row:,} of the {counted(layout.count, 'row')} that its first line promises: "
            "it is truncated. Download it again."
        )


def _spaced_word(line: bytes, number: int, layout: _Layout, path: Path) -> bytes:
    """The word of a line with more spaces than numbers; some of GloVe's words contain spaces.

    A row that is too wide looks like one, but its word ends in a number.
    """
    word, *numbers = line.rsplit(b" ", layout.dim)
    if len(numbers) < layout.dim or _numbers(word.split(b" ")[-1:]) is not None:
        raise DataError(
            f"{path}, line {number:,}: expected a word and {counted(layout.dim, 'number')}, found "
            f"{line.count(b' ')}. Is the file of one width throughout?"
        )
    return word


def _surplus(layout: _Layout, path: Path) -> DataError:
    return DataError(
        f"{path} goes on after the {layout.shape} that its first line promises. "
        "Correct the first line, or download it again."
    )
