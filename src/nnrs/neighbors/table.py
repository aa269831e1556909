"""NeighborTable: the matrix N, whose rows they are, and how it is made, drawn from and kept."""

import contextlib
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nnrs.arguments import checked_device, whole
from nnrs.errors import ConfigError, DataError, RunError
from nnrs.files import write_atomically
from nnrs.neighbors.arguments import as_matrix, candidates_among, checked_groups
from nnrs.neighbors.cache import cache_path, fingerprint_of
from nnrs.neighbors.probabilities import neighbor_probabilities, pick
from nnrs.neighbors.search import nearest
from nnrs.wording import counted

if TYPE_CHECKING:
    from nnrs.neighbors.subword import Tokenizer

FORMAT = "nnrs-neighbors-1"
WORTH_CACHING = 2_000  # words; a smaller table is made faster than it is read


def default_k(vocab_size: int) -> int:
    """round(log2 V): 13 for PTB's 10,000 words, 15 for WikiText-2's 33,278.

    >>> default_k(10_000), default_k(33_278)
    (13, 15)
    """
    return round(math.log2(max(vocab_size, 1)))


@dataclass(frozen=True, eq=False)
class NeighborTable:
    """Each word's neighbors and their similarities, the matrix N of Eq. 2.

    Similarities fall along a row; equal ones are in order of id. An empty slot has similarity -inf and the
    row's own id, so that gathering it is safe and replaces nothing.
    """

    ids: Int[Tensor, "vocab k"]
    similarities: Float[Tensor, "vocab k"]
    fingerprint: str = ""  # of what the table was made from
    recall: float = 1.0  # share of the true neighbors that the search found; 1 unless it was approximate
    replaceable: Bool[Tensor, " vocab"] = field(init=False, repr=False)  # words with at least one neighbor

    def __post_init__(self) -> None:
        # Not a cached_property: its lock cannot be compiled.
        object.__setattr__(self, "replaceable", (self.similarities > -torch.inf).any(-1))

    @classmethod
    def from_vectors(
        cls,
        vectors: Float[Tensor, "vocab dim"] | Float[np.ndarray, "vocab dim"] | Path | str,
        tokenizer: "Tokenizer | None" = None,
        *,
        k: int | None = None,
        protected: Iterable[int] = (),
        groups: Int[Tensor, " vocab"] | None = None,
        backend: str = "exact",
        device: torch.device | str | None = None,
    ) -> "NeighborTable":
        """The k nearest by cosine of every word that has a vector; a large table is kept in the cache.

        Zero or NaN rows have no vector. `protected` ids have no neighbors and are nobody's; words of one
        group (case variants, say) are not each other's. `k` defaults to round(log2 V). The search runs on
        `device`, by default where the vectors are; the table comes back where the vectors are.

        With a `tokenizer` the rows are its tokens, and only like is near like: see `nnrs.neighbors.subword`. Then
        `vectors` may also be the path of a file of word vectors. Those of a list of words, `nnrs.read_vectors` reads.

        >>> table = NeighborTable.from_vectors(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), k=1)
        >>> table.ids.tolist(), table.similarities.tolist()
        ([[1], [2], [1]], [[0.6000000238418579], [0.800000011920929], [0.800000011920929]])
        """
        device = None if device is None else checked_device(device)
        if tokenizer is not None or isinstance(vectors, Path | str):
            from nnrs.neighbors.subword import table_from_vectors  # which itself makes a NeighborTable

            if tokenizer is None or groups is not None or backend != "exact":
                raise ConfigError(
                    "vectors from a file are for a tokenizer's tokens, without groups or backend: "
                    "from_vectors(path, tokenizer, k=...). For a list of words, words[i] that of id i: "
                    "from_vectors(nnrs.read_vectors(path, words).vectors, k=...)."
                )
            return table_from_vectors(vectors, tokenizer, k, protected, device)
        rows = as_matrix(vectors).float()
        candidates = candidates_among(rows, protected)
        k, groups = checked_k(k, candidates), checked_groups(groups, rows)
        if k == 0:
            return NeighborTable(
                rows.new_empty(len(rows), 0, dtype=torch.int64), rows.new_empty(len(rows), 0)
            )
        made_from = fingerprint_of(FORMAT, backend, k, rows, candidates, groups)

        def make() -> NeighborTable:
            found = nearest(rows, k, candidates=candidates, groups=groups, backend=backend, device=device)
            ids = fill_empty(found.ids, found.similarities)
            return NeighborTable(ids.cpu(), found.similarities.cpu(), made_from, found.recall)

        table = make() if len(rows) < WORTH_CACHING else load_or_make(made_from, make)
        return table.to(rows.device)

    @classmethod
    def from_model(
        cls,
        model: Any,
        tokenizer: "Tokenizer",
        k: int | None = None,
        *,
        protected: Iterable[int] = (),
        device: torch.device | str | None = None,
    ) -> "NeighborTable":
        """For a Hugging Face model's tokens, by its input embeddings; see `nnrs.neighbors.subword`.

        The weights are only read, and the table comes back where they are. `k` defaults to round(log2 V); the search
        runs on `device`, by default the model's.
        """
        from nnrs.neighbors.subword import table_from_embeddings  # which itself makes a NeighborTable

        device = None if device is None else checked_device(device)
        return table_from_embeddings(model, tokenizer, k, protected, device)

    @classmethod
    def from_transitions(
        cls,
        ids: Int[Tensor, " tokens"],
        *,
        replaceable: Bool[Tensor, " vocab"],
        k: int | None = None,
        rows: str = "own",
    ) -> "NeighborTable":
        """The TPRS baseline: the k most frequent successors of each word; see `transition_table`."""
        from nnrs.neighbors.transition import transition_table  # which itself makes a NeighborTable

        return transition_table(ids, k, replaceable, rows=rows)

    @property
    def vocab_size(self) -> int:
        """The number of rows."""
        return self.ids.shape[0]

    @property
    def k(self) -> int:
        """The number of slots in a row."""
        return self.ids.shape[1]

    def draw(
        self,
        tokens: Int[Tensor, "*shape"],
        uniform: Float[Tensor, "*shape"],
        temperature: float | Float[Tensor, ""],
    ) -> Int[Tensor, "*shape"]:
        """ỹ ~ Ñ_y: a neighbor of each token, chosen by its draw from [0, 1); itself where it has none."""
        if self.k == 0:
            return tokens.clone()
        slots = pick(neighbor_probabilities(self.similarities[tokens], temperature), uniform)
        return self.ids[tokens, slots]  # an empty row holds its own id

    def row(self, word: int, temperature: float) -> list[tuple[int, float, float]]:
        """The neighbors of the word with this id, nearest first: (id, similarity, probability)."""
        word = whole("the id of a word", word)
        if not 0 <= word < self.vocab_size:
            raise ConfigError(f"id {word} is not one of the {counted(self.vocab_size, 'word')}.")
        similarities = self.similarities[word]
        probabilities = neighbor_probabilities(similarities, temperature)
        slots = zip(self.ids[word].tolist(), similarities.tolist(), probabilities.tolist(), strict=True)
        return [slot for slot in slots if slot[1] > -math.inf]

    def hubs(self, count: int) -> list[tuple[int, int]]:
        """The words that are most often someone's neighbor, and how many rows name them."""
        count, named = whole("count", count, at_least=0), self.ids[self.similarities > -torch.inf]
        times, ids = torch.bincount(named, minlength=self.vocab_size).sort(descending=True, stable=True)
        pairs = zip(ids[:count].tolist(), times[:count].tolist(), strict=True)
        return [(word, number) for word, number in pairs if number > 0]

    def reweighted(self, logits: Float[Tensor, "vocab k"]) -> "NeighborTable":
        """The same neighbors with other similarities (learned ones, say), falling again; empty slots stay empty."""
        values = logits.masked_fill(self.similarities == -torch.inf, -torch.inf)
        values, order = values.sort(dim=-1, descending=True, stable=True)
        ids = self.ids.gather(-1, order)
        return replace(
            self, ids=ids, similarities=values, fingerprint=fingerprint_of("reweighted", ids, values)
        )

    def to(self, device: torch.device | str) -> "NeighborTable":
        """The same table on a device; itself if it is there already."""
        if self.ids.device == torch.device(device):
            return self
        return replace(self, ids=self.ids.to(device), similarities=self.similarities.to(device))

    def save(self, path: Path | str) -> None:
        """Write the table as safetensors, with what it was made from."""
        tensors = {"ids": self.ids.cpu().contiguous(), "similarities": self.similarities.cpu().contiguous()}
        metadata = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "recall": json.dumps(self.recall),
            "checksum": fingerprint_of(*tensors.values()),
        }
        write_atomically(Path(path), partial(save_file, tensors, metadata=metadata))

    @classmethod
    def load(cls, path: Path | str) -> "NeighborTable":
        """The table that `save` wrote."""
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise DataError(f"{path} is not a neighbor table of format {FORMAT}. Make it anew.")
                ids, similarities = file.get_tensor("ids"), file.get_tensor("similarities")
        except (OSError, SafetensorError) as error:
            raise DataError(f"{path} cannot be read as a neighbor table ({error}). Make it anew.") from None
        if metadata["checksum"] != fingerprint_of(ids, similarities):
            raise DataError(f"{path} is damaged: its checksum does not match. Delete it and make it anew.")
        return cls(ids, similarities, metadata["fingerprint"], json.loads(metadata["recall"]))


def load_or_make(fingerprint: str, make: Callable[[], NeighborTable]) -> NeighborTable:
    """The table kept under this fingerprint, else the one `make` gives, kept where the cache can be written.

    A damaged file in the cache is made anew.
    """
    path = cache_path(fingerprint)
    if path is None:
        return make()
    with contextlib.suppress(DataError):
        kept = NeighborTable.load(path)
        if kept.fingerprint == fingerprint:
            return kept
    table = make()
    with contextlib.suppress(OSError, RunError):  # a cache that cannot be written only costs time
        path.parent.mkdir(parents=True, exist_ok=True)
        table.save(path)
    return table


def checked_k(k: int | None, candidates: Bool[Tensor, " vocab"]) -> int:
    """`k`, or round(log2 V) for None, if there are enough words to be neighbors."""
    usual, count = default_k(len(candidates)), int(candidates.sum())
    number = usual if k is None else whole("k", k)
    if number < 0:
        raise ConfigError(f"k must be 0 or more, got {number}. With k=0 nothing is replaced.")
    if number > 0 and number >= count:
        if count < 2:
            raise ConfigError(
                f"no word has a neighbor: {count} of {counted(len(candidates), 'word')} can be replaced, for the "
                "others have no vector (a row of zeros or NaN is none) or are protected. Use a longer text, a lower "
                "--min-count or vectors of more words; with k=0 nothing is replaced."
            )
        # Also where it was given: a run has the number that the default stands for.
        asked = f"k={number}, the usual for {len(candidates):,} words," if number == usual else f"k={number}"
        raise ConfigError(
            f"{asked} asks for more neighbors than a word has: only {count:,} words are replaceable. "
            f"Use at most k={count - 1}, or more vectors."
        )
    return number


def fill_empty(ids: Int[Tensor, "vocab k"], similarities: Float[Tensor, "vocab k"]) -> Int[Tensor, "vocab k"]:
    """`ids` with each row's own id in its empty slots."""
    own = torch.arange(len(ids), device=ids.device)[:, None]
    return torch.where(similarities == -torch.inf, own, ids)
