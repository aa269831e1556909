"""Word mover's distance: how far the words of one sentence must travel to become another's (Kusner et al. 2015).

The earth mover's distance between two bags of words, each word weighing its share of the sentence, at a cost of
1 − cos from word to word. It is exact: POT's network simplex (extra `metrics`) solves each pair. Words that two
sentences share are not set aside first, as an optimal plan may move them: 1 − cos breaks the triangle inequality.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from nnrs.errors import DataError
from nnrs.metrics.packages import POT
from nnrs.wording import counted

Solver = Callable[..., tuple[Any, ...]]  # POT's emd_c: weights, weights, costs, most pivots, threads
PIVOTS = 10_000_000  # never reached: 35 different words a side need about 200, 1,000 about 14,000
OPTIMAL = 1


class Bag(NamedTuple):
    """The distinct words of a sentence in order of id, and the share of the sentence that each is."""

    words: Int[np.ndarray, " distinct"]
    weights: Float[np.ndarray, " distinct"]


@dataclass(frozen=True, eq=False)
class WordVectors:
    """The vectors of a vocabulary, and which of its words may take part: those of the training text.

    A word without a usable vector (all zeros, or a number that is not finite) takes no part either.
    """

    vectors: Float32[np.ndarray, "vocab dim"]
    allowed: Bool[np.ndarray, " vocab"]

    @cached_property
    def scale(self) -> Float[np.ndarray, " vocab"]:
        """One over each vector's length; 0 for a word that takes no part."""
        # In float64 the square of a float32 number is never 0 or inf, and einsum makes no copy of them all.
        lengths = np.sqrt(np.einsum("ij,ij->i", self.vectors, self.vectors, dtype=np.float64))
        usable = self.allowed & (lengths > 0)  # which NaN is not
        scale = np.zeros(len(self.vectors))
        scale[usable] = 1.0 / lengths[usable]  # 0 where it is inf
        return scale

    def units(self, words: Int[np.ndarray, " words"]) -> Float[np.ndarray, "words dim"]:
        """The vectors of these words at length one, in float64."""
        units: Float[np.ndarray, "words dim"] = self.vectors[words] * self.scale[words, None]
        return units

    def bags(self, sentences: Iterable[Sequence[int] | Int[np.ndarray, " time"]]) -> "BagsOfWords":
        """The bag of each sentence of word ids; it is empty where none of the words takes part."""
        arrays = [np.asarray(sentence, dtype=np.int64) for sentence in sentences]
        ids = np.concatenate([np.empty(0, dtype=np.int64), *arrays])
        vocab = len(self.vectors)
        outside = ids[(ids < 0) | (ids >= vocab)]
        if len(outside):
            raise DataError(
                f"a sentence holds the word id {outside[0]}, but the vectors are of ids 0 to {vocab - 1}. "
                "Are sentences and vectors of one vocabulary?"
            )
        owners = np.repeat(np.arange(len(arrays)), [len(array) for array in arrays])
        takes_part = self.scale[ids] > 0
        keys, counts = np.unique(owners[takes_part] * vocab + ids[takes_part], return_counts=True)
        owners, words = np.divmod(keys, vocab)
        weights = counts / np.bincount(owners, weights=counts)[owners]
        bounds = np.searchsorted(owners, np.arange(len(arrays) + 1)).tolist()
        return BagsOfWords(self, tuple(Bag(words[i:j], weights[i:j]) for i, j in pairwise(bounds)))


@dataclass(frozen=True, eq=False)
class BagsOfWords:
    """Sentences made ready for comparison, by `WordVectors.bags`."""

    vectors: WordVectors
    bags: tuple[Bag, ...]

    def __len__(self) -> int:
        return len(self.bags)


def wmd(first: BagsOfWords, second: BagsOfWords) -> Float[np.ndarray, " n"]:
    """The word mover's distance of each sentence of `first` to the one at its place in `second`, from 0 to 2.

    NaN where either bag is empty, also where both are: nothing is known of words without a vector, and a number
    would reward or punish a model for them. `summarize` leaves these pairs out and counts them.

    >>> space = WordVectors(np.array([[1, 0], [0, 2], [-3, 0]], dtype=np.float32), allowed=np.ones(3, dtype=bool))
    >>> wmd(space.bags([[0, 1], [0], [0]]), space.bags([[1, 0], [0, 0, 1], [2]])).round(4)
    array([0.    , 0.3333, 2.    ])
    """
    if first.vectors is not second.vectors:
        raise DataError("only bags made by the same WordVectors can be compared. Make both from one.")
    if len(first) != len(second):
        raise DataError(
            f"wmd compares sentences in pairs, got {len(first)} and {len(second)}. Give as many of both."
        )
    solver, units = _solver(), first.vectors.units
    distances = np.full(len(first), np.nan)
    for i, (a, b) in enumerate(zip(first.bags, second.bags, strict=True)):
        if len(a.words) and len(b.words):
            # Alone: a product over many pairs is mostly of words that never meet, and costs more than it saves.
            distances[i] = _distance(a, b, _costs(units(a.words), units(b.words)), solver)
    return distances


def self_wmd(bags: BagsOfWords, groups: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The mean distance of each sentence to the others with its group number: the higher, the more diverse.

    An empty bag is nobody's other. NaN for an empty bag, and where no other is left. The mean of it all is the
    mean over minibatches where these are of one size. Time grows with the square of a group's size, memory does not.
    """
    if len(bags) != len(groups):
        raise DataError(
            "every sentence needs a group, "
            f"got {counted(len(bags), 'sentence')} and {counted(len(groups), 'group')}. "
            "Number the sentences by minibatch."
        )
    solver = _solver()
    means = np.full(len(bags), np.nan)
    members = np.array([i for i, bag in enumerate(bags.bags) if len(bag.words)], dtype=np.int64)
    members = members[groups[members].argsort(kind="stable")]
    starts = np.flatnonzero(np.diff(groups[members])) + 1
    for group in np.split(members, starts):
        if len(group) > 1:
            means[group] = _means_to_others([bags.bags[i] for i in group], bags.vectors, solver)
    return means


@dataclass(frozen=True)
class WmdSummary:
    """A mean distance, on the three scales it is reported on, and over how many distances it was taken."""

    distance: float
    compared: int
    left_out: int  # distances that are NaN, for want of words with a vector

    @property
    def similarity(self) -> float:
        """1 − WMD, which is s: from −1 to 1."""
        return 1.0 - self.distance

    @property
    def scaled_similarity(self) -> float:
        """(1 + s) / 2, from 0 to 1; unrelated windows of PTB already score .67."""
        return (1.0 + self.similarity) / 2.0


def summarize(distances: Float[np.ndarray, " n"]) -> WmdSummary:
    """The mean of what `wmd` or `self_wmd` gave, without its NaNs; NaN if nothing else is there.

    >>> summarize(np.array([0.2, np.nan, 0.6]))
    WmdSummary(distance=0.4, compared=2, left_out=1)
    """
    known = distances[~np.isnan(distances)]
    mean = float(known.mean()) if len(known) else math.nan
    return WmdSummary(mean, compared=len(known), left_out=len(distances) - len(known))


def _solver() -> Solver:
    """POT's solver itself: `ot.emd2` around it takes several times as long at a sentence's size."""
    try:
        from ot.lp.emd_wrap import emd_c
    except ImportError:
        raise POT.error() from None
    solver: Solver = emd_c
    return solver


def _costs(
    rows: Float[np.ndarray, "rows dim"], columns: Float[np.ndarray, "columns dim"]
) -> Float[np.ndarray, "rows columns"]:
    """1 − cos of unit vectors; a word's cost to itself may be off 0 by a rounding, but never below it."""
    costs: Float[np.ndarray, "rows columns"] = rows @ columns.T
    np.subtract(1.0, costs, out=costs)
    np.maximum(costs, 0.0, out=costs)
    return costs


def _distance(a: Bag, b: Bag, costs: Float[np.ndarray, "a b"], solver: Solver) -> float:
    """The cost of the best plan from `a` to `b`, neither of them empty."""
    if np.array_equal(a.words, b.words) and np.array_equal(a.weights, b.weights):
        return 0.0  # free of the costs' roundings
    _, distance, _, _, status = solver(a.weights, b.weights, costs, PIVOTS, 1)
    assert status == OPTIMAL, f"POT's solver ended with status {status}"
    return float(distance)


def _means_to_others(bags: list[Bag], vectors: WordVectors, solver: Solver) -> Float[np.ndarray, " group"]:
    """The mean distance of each bag to all others; each pair is solved once."""
    words = np.unique(np.concatenate([bag.words for bag in bags]))
    units = vectors.units(words)
    places = [np.searchsorted(words, bag.words) for bag in bags]
    totals = np.zeros(len(bags))
    for j, b in enumerate(bags):
        costs = _costs(units, units[places[j]])  # of b's words to all words of the group
        for i, a in enumerate(bags[:j]):
            distance = _distance(a, b, costs[places[i]], solver)
            totals[i] += distance
            totals[j] += distance
    return totals / (len(bags) - 1)
