"""Neighbors for a tokenizer's pieces: like for like, and none for what is not a word or a part of one.

A piece's neighbors share its leading space, its case and its script: ` Markets` may become ` Stocks`, never `stocks`
or ` рынки`. Where a vocabulary marks the ends of words instead, they share that: `markets</w>` never becomes `stock`,
which would be glued to the next word. Special, added, byte and digit tokens are protected, and blanks: a line break
is like `<eos>`.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.embeddings import read_vectors
from nnrs.errors import ConfigError
from nnrs.neighbors.arguments import as_matrix, candidates_among, check_numbers, may_be_padded
from nnrs.neighbors.cache import fingerprint_of
from nnrs.neighbors.search import nearest
from nnrs.neighbors.table import (
    WORTH_CACHING,
    NeighborTable,
    checked_k,
    fill_empty,
    load_or_make,
)
from nnrs.wording import counted

FORMAT = "nnrs-subword-1"
DIGITS = ("Nd", "No")  # 7, ² and ½; numbers that are written in words, as 万 is, are words
WORD_END, GOES_ON = "</w>", "@@"  # marks behind a word's last piece, and behind all but its last
BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
HUBS_SHOWN = 5


@runtime_checkable
class Tokenizer(Protocol):
    """What is asked of a tokenizer; those of transformers have it."""

    def get_vocab(self) -> dict[str, int]:
        """Every entry and its id; ids may have holes."""

    def convert_ids_to_tokens(self, ids: list[int]) -> str | list[str]:
        """The vocabulary's entries with these ids, as they are stored; a `str` is what one id would give."""

    def get_added_vocab(self) -> dict[str, int]:
        """What was added to the vocabulary that was learned, special tokens or not."""

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of tokens that stand for no text."""


@dataclass(frozen=True)
class Piece:
    """One entry of a vocabulary: the text it stands for, its space included; and why it is protected."""

    text: str
    at_edge: bool  # of a word: whether it begins one or, where the vocabulary marks that instead, ends one
    protection: str = ""  # special | byte | digit | blank | hole; nothing where it may be replaced

    @property
    def kind(self) -> tuple[bool, str, str]:
        """What a neighbor must share."""
        return self.at_edge, case_of(self.text), script_of(self.text)


def pieces_of(tokenizer: Tokenizer) -> list[Piece]:
    """What each id stands for, by the marks at the edges of words; plain words, if the vocabulary has none.

    An id that no entry has is a hole.
    """
    if not isinstance(tokenizer, Tokenizer):
        raise ConfigError(
            f"a tokenizer of transformers is needed, got {type(tokenizer).__name__}. "
            "One of tokenizers is made into it by PreTrainedTokenizerFast(tokenizer_object=tokenizer). For a list of "
            "words, words[i] that of id i: from_vectors(nnrs.read_vectors(path, words).vectors, k=...)."
        )
    added = {*tokenizer.get_added_vocab().values()}
    known = sorted(added | {*tokenizer.get_vocab().values()})
    entries = dict(zip(known, tokenizer.convert_ids_to_tokens(known), strict=True))
    special = added | {*tokenizer.all_special_ids}
    read = _reading_of([entry for number, entry in entries.items() if number not in special])
    pieces = [Piece("", False, "hole")] * (max(known, default=-1) + 1)
    for number, entry in entries.items():
        pieces[number] = Piece(entry, False, "special") if number in special else read(entry)
    return pieces


def case_of(text: str) -> str:
    """Lower, Title, UPPER, Mixed, or nothing where no letter has a case.

    >>> [case_of(text) for text in (" market", " Market", "NATO", " iPhone", "市场", ",")]
    ['lower', 'title', 'upper', 'mixed', '', '']
    """
    letters = [letter for letter in text if letter.lower() != letter.upper()]
    if not letters:
        return ""
    large = [letter.isupper() for letter in letters]
    if not any(large):
        return "lower"
    if large[0] and not any(large[1:]):
        return "title"
    return "upper" if all(large) else "mixed"


def script_of(text: str) -> str:
    """The scripts of the letters, by their Unicode names.

    >>> [script_of(text) for text in (" naïve", "рынок", "市场", "...")]
    ['LATIN', 'CYRILLIC', 'CJK', '']
    """
    return "+".join(sorted({_script(letter) for letter in text if letter.isalpha()}))


@cache
def _script(letter: str) -> str:
    return unicodedata.name(letter, "UNKNOWN").split()[0]


def table_from_embeddings(
    model: Any,
    tokenizer: Tokenizer,
    k: int | None = None,
    protected: Iterable[int] = (),
    device: torch.device | str | None = None,
) -> NeighborTable:
    """The nearest by cosine among a model's input embeddings, their mean taken off; the decoder's, if it has one."""
    model = _with_embeddings(model)
    pairs = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    owner = model.get_decoder() if pairs else model
    weights = owner.get_input_embeddings().weight.detach()
    check_numbers("the input embeddings", weights)
    if not weights.is_floating_point():
        raise ConfigError(
            f"the input embeddings are {weights.dtype}: quantised ones have no cosine. Make the table from the "
            "model before it is quantised."
        )
    pieces = pieces_of(tokenizer)
    if len(pieces) < len(weights) and not may_be_padded(len(pieces), len(weights)):
        raise ConfigError(
            f"the tokenizer has {counted(len(pieces), 'id')}, but the model embeds {len(weights):,}, more than "
            "padding explains. Give the model's own tokenizer; if this is it, call "
            f"model.resize_token_embeddings({len(pieces)}) first."
        )
    return _table(weights, pieces, k, protected, centred=True, device=device)


def _with_embeddings(model: Any) -> Any:
    """The model, or the one inside DDP's or torch.compile's wrapper, that says which its input embeddings are."""
    inner = model
    while not hasattr(inner, "get_input_embeddings"):
        inner = getattr(inner, "_orig_mod", getattr(inner, "module", None))
        if inner is None:
            raise ConfigError(
                f"{type(model).__name__} has no get_input_embeddings(). "
                "Use NeighborTable.from_vectors(weights, tokenizer, k=...)."
            )
    return inner


def table_from_vectors(
    vectors: Float[Tensor, "rows dim"] | Float[np.ndarray, "rows dim"] | Path | str,
    tokenizer: Tokenizer,
    k: int | None = None,
    protected: Iterable[int] = (),
    device: torch.device | str | None = None,
) -> NeighborTable:
    """The nearest by cosine among given vectors; a file of word vectors serves the pieces at the edge of a word."""
    pieces = pieces_of(tokenizer)
    rows = _read(vectors, pieces) if isinstance(vectors, Path | str) else as_matrix(vectors)
    return _table(rows, pieces, k, protected, centred=False, device=device)


def _read(path: Path | str, pieces: Sequence[Piece]) -> Float[Tensor, "rows dim"]:
    words = [n for n, piece in enumerate(pieces) if piece.at_edge and not piece.protection]
    found = read_vectors(path, [pieces[n].text.strip() for n in words]).vectors
    vectors = found.new_zeros(len(pieces), found.shape[1])
    vectors[words] = found
    return vectors


def _table(
    vectors: Float[Tensor, "rows dim"],
    pieces: Sequence[Piece],
    k: int | None,
    protected: Iterable[int],
    *,
    centred: bool,
    device: torch.device | str | None,
) -> NeighborTable:
    if len(pieces) > len(vectors):
        raise ConfigError(
            f"the tokenizer's ids go up to {len(pieces) - 1}, but there are {len(vectors):,} vectors. "
            f"Call model.resize_token_embeddings({len(pieces)}) first."
        )
    if centred and torch.equal(vectors.amin(0), vectors.amax(0)):
        raise ConfigError(
            "the input embeddings are all equal: none is nearer. Make the table of a trained model."
        )
    kinds = _kind_numbers(pieces, len(vectors))
    kinds[~candidates_among(vectors, protected).cpu()] = -1
    k = checked_k(k, kinds >= 0)
    made_from = fingerprint_of(FORMAT, k, int(centred), vectors, kinds)

    def make() -> NeighborTable:
        ids, similarities = _nearest_of_a_kind(
            vectors.to(device or vectors.device), kinds, k, centred=centred
        )
        return NeighborTable(fill_empty(ids, similarities), similarities, made_from)

    table = make() if len(vectors) < WORTH_CACHING else load_or_make(made_from, make)
    return table.to(vectors.device)


def _kind_numbers(pieces: Sequence[Piece], rows: int) -> Int[Tensor, " rows"]:
    """A number for each row, shared by pieces of one kind; -1 for what is protected or no piece at all."""
    numbers: dict[tuple[bool, str, str], int] = {}
    found = [-1 if piece.protection else numbers.setdefault(piece.kind, len(numbers)) for piece in pieces]
    return torch.tensor([*found, *[-1] * (rows - len(found))])


@torch.no_grad()
def _nearest_of_a_kind(
    vectors: Float[Tensor, "rows dim"], kinds: Int[Tensor, " rows"], k: int, *, centred: bool
) -> tuple[Int[Tensor, "rows k"], Float[Tensor, "rows k"]]:
    """Each row's neighbors among the rows of its kind; slots without one are at -inf."""
    ids = torch.zeros(len(vectors), k, dtype=torch.int64)
    similarities = torch.full((len(vectors), k), -torch.inf, dtype=torch.float32)
    where = kinds.to(vectors.device)
    middle = (
        vectors[where >= 0].float().mean(0) if centred and k else vectors.new_zeros((), dtype=torch.float32)
    )
    for kind in range(int(kinds.max()) + 1 if k else 0):
        rows = vectors[where == kind].float() - middle
        members = (kinds == kind).nonzero().squeeze(1)
        directed = (rows != 0).any(-1).cpu()  # a row at the mean has no direction
        slots = min(k, int(directed.sum()) - 1)
        if slots < 1:
            continue
        found = nearest(rows, slots, candidates=directed)
        ids[members, :slots] = members[found.ids.cpu()]
        similarities[members, :slots] = found.similarities.cpu()
    return ids, similarities


@dataclass(frozen=True)
class Report:
    """Which of a vocabulary's pieces have neighbors, why others have none, and whom everyone names."""

    tokens: int
    covered: int
    protected: dict[str, int]
    holes: int  # ids below the highest that no token has
    hubs: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        kept = ", ".join(f"{count:,} {why}" for why, count in sorted(self.protected.items())) or "none"
        alone = self.tokens - self.covered - sum(self.protected.values())
        holes = f"; ids without a token: {self.holes:,}" if self.holes else ""
        hubs = ", ".join(f"{text!r} in {counted(count, 'row')}" for text, count in self.hubs)
        covered = f"{self.covered:,} of {counted(self.tokens, 'token')}"
        return (
            f"neighbors for {covered} ({self.covered / max(self.tokens, 1):.1%}); "
            f"protected: {kept}; without a vector or a peer: {alone:,}{holes}; hubs: {hubs or 'none'}"
        )


def report(table: NeighborTable, tokenizer: Tokenizer) -> Report:
    """How much of the tokenizer's vocabulary the table covers, and its hubs."""
    pieces = pieces_of(tokenizer)
    protected = Counter(piece.protection for piece in pieces if piece.protection)
    holes = protected.pop("hole", 0)
    hubs = tuple((pieces[number].text, count) for number, count in table.hubs(HUBS_SHOWN))
    covered = int(table.replaceable[: len(pieces)].sum())
    return Report(len(pieces) - holes, covered, dict(protected), holes, hubs)


Reader = Callable[[str], Piece]


def _reading_of(entries: Sequence[str]) -> Reader:
    """How this vocabulary tells words apart: by the mark that most entries begin or end with.

    Any vocabulary may have a few entries that look like another's: `Ġ` is a letter of Maltese, `##` begins a heading.
    """
    if _single_bytes(entries):
        return _single_byte
    first = {"Ġ": _byte_level, "▁": _sentence_piece, "##": _word_piece}
    last = {WORD_END: _word_end_bytes if _of_bytes(entries) else _word_end, GOES_ON: _goes_on}
    found = Counter(mark for entry in entries for mark in first if entry.startswith(mark))
    found.update(mark for entry in entries for mark in last if entry.endswith(mark))
    if not found:
        return lambda entry: _piece(entry, at_edge=True)
    readers = first | last
    return readers[max(readers, key=found.__getitem__)]


def _byte_level(entry: str) -> Piece:
    """An entry of GPT-2's kind, whose characters stand for bytes."""
    try:
        text = bytes(_byte_of()[letter] for letter in entry).decode()
    except (KeyError, UnicodeDecodeError):  # a part of a character
        return Piece(entry, False, "byte")
    return _piece(text, at_edge=text.startswith(" "))


def _sentence_piece(entry: str) -> Piece:
    text = entry.replace("▁", " ")
    return _piece(text, at_edge=text.startswith(" "))


def _word_piece(entry: str) -> Piece:
    return _piece(entry.removeprefix("##"), at_edge=not entry.startswith("##"))


def _word_end(entry: str) -> Piece:
    """An entry of GPT-1's kind (BioGPT's, XLM's)."""
    return _piece(entry.replace(WORD_END, " "), at_edge=entry.endswith(WORD_END))


def _word_end_bytes(entry: str) -> Piece:
    """An entry of CLIP's kind: GPT-1's mark, behind characters that stand for bytes."""
    piece = _byte_level(entry.replace(WORD_END, "Ġ"))
    return replace(piece, at_edge=entry.endswith(WORD_END))


def _goes_on(entry: str) -> Piece:
    """An entry of CTRL's kind, as fastBPE writes it."""
    return _piece(entry.removesuffix(GOES_ON), at_edge=not entry.endswith(GOES_ON))


def _single_byte(entry: str) -> Piece:
    """An entry of ByT5's kind: outside of printable ASCII a byte alone is no text."""
    if entry.isascii() and entry.isprintable():
        return _piece(entry, at_edge=True)
    return Piece(entry, False, "byte")


def _single_bytes(entries: Sequence[str]) -> bool:
    """Whether every entry is one character, and the characters below 256, the bytes, are all there."""
    return max(map(len, entries), default=0) == 1 and {*map(chr, range(256))} <= {*entries}


def _of_bytes(entries: Iterable[str]) -> bool:
    """Whether the characters are just the 256 that stand for bytes; no text comes by all of those and no others."""
    return {*"".join(entry.removesuffix(WORD_END) for entry in entries)} == {*_byte_of()}


def _piece(text: str, *, at_edge: bool) -> Piece:
    protection = ""
    if BYTE.fullmatch(text):
        protection = "byte"
    elif not text.strip():
        protection = "blank"
    elif any(unicodedata.category(letter) in DIGITS for letter in text):
        protection = "digit"
    return Piece(text, at_edge, protection)


@cache
def _byte_of() -> dict[str, int]:
    """The byte that each character stands for: itself where it can be printed, else one from 256 on, in order."""
    printed = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(256 + n): byte for n, byte in enumerate(others)}
