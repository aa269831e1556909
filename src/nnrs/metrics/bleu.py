"""BLEU-4 and self-BLEU-4 of many sentences at once, from the n-grams of the whole text as arrays.

Sentences are lists of words or of ids. (A compiled peer, fast-bleu, is slower and unmaintained.)
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain, count
from numbers import Integral
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from nnrs.errors import ConfigError, DataError
from nnrs.wording import counted

ORDERS = 4
FLOOR = 0.1  # matches granted to an order that has none: NLTK's method 1, sacreBLEU's "floor"

Sentence = Sequence[str] | Sequence[int]


def sentence_bleu(
    hypotheses: Sequence[Sentence], references: Sequence[Sequence[Sentence]]
) -> Float[np.ndarray, " n"]:
    """BLEU-4 of each hypothesis against its own references, of which it has one or several.

    NLTK's `sentence_bleu` with `SmoothingFunction().method1`: an order without a match is given a tenth of one, and
    an order without n-grams one n-gram. So three words that equal their reference score 0.1^¼ = 0.56 and not 1. A
    hypothesis without a word in common scores 0.

    >>> sentence_bleu(["the cat sat on the mat".split()], [["the cat sat on a mat".split()]]).round(4)
    array([0.5373])
    """
    return bleu(_paired(hypotheses, references))


def self_bleu(
    sentences: Sequence[Sentence], groups: Sequence[int] | Int[np.ndarray, " n"] | None = None
) -> Float[np.ndarray, " n"]:
    """BLEU-4 of each sentence with all the others of its group as references, smoothed as `sentence_bleu`.

    A sentence is never among its own references, but another one with the same words is. `groups` gives each sentence
    the label of its group, e.g. the number of its minibatch; without it all are one group. A group of one sentence
    has no references and is refused. Values grow with the size of the group: compare only groups of one size.

    >>> self_bleu([[1, 2, 3, 4], [1, 2, 3, 4], [5, 6]])
    array([1., 1., 0.])
    """
    labels = np.zeros(len(sentences), dtype=np.int64) if groups is None else np.asarray(groups)
    if labels.shape != (len(sentences),):
        raise ConfigError(
            f"groups must label each of {counted(len(sentences), 'sentence')} once, got shape {labels.shape}."
        )
    _, group, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    alone = np.flatnonzero(sizes[group] == 1)
    if len(alone):
        raise ConfigError(
            f"sentence {alone[0]} is alone in group {labels[alone[0]]}, and self-BLEU needs others beside it. "
            "Leave it out, or put it into another group."
        )
    return bleu(overlap(sentences, group))


def corpus_bleu(hypotheses: Sequence[Sentence], references: Sequence[Sequence[Sentence]]) -> float:
    """BLEU-4 of all hypotheses together, in [0, 1]: matches, n-grams and lengths are added up before the formula.

    sacreBLEU's `BLEU(tokenize="none", smooth_method="floor")`, divided by 100. A hypothesis of fewer than four words
    adds its length and the n-grams it has; where none has four, no 4-gram can be right and the score is 0
    (`sentence_bleu` smooths this away).

    >>> hypotheses = ["the cat sat on the mat".split(), ["yes"]]
    >>> references = [["the cat sat on a mat".split()], [["yes"]]]
    >>> round(corpus_bleu(hypotheses, references), 4)
    0.5411
    """
    if len(hypotheses) == 0:
        raise DataError("corpus BLEU needs at least one hypothesis, got none.")
    together = Overlap(*(part.sum(axis=0, keepdims=True) for part in _paired(hypotheses, references)))
    return float(pooled_bleu(together)[0])


class Overlap(NamedTuple):
    """What BLEU needs to know of each sentence and its references."""

    matches: Int[np.ndarray, "n order"]  # n-grams of the references too, no more often than in one of them
    ngrams: Int[np.ndarray, "n order"]
    length: Int[np.ndarray, " n"]
    closest: Int[np.ndarray, " n"]  # the reference length nearest to `length`, of two as near the shorter


def bleu(of: Overlap) -> Float[np.ndarray, " n"]:
    """The geometric mean of the smoothed precisions, times the brevity penalty min(1, exp(1 − closest / length))."""
    precisions = np.where(of.matches == 0, FLOOR, of.matches) / np.maximum(of.ngrams, 1)
    brevity = np.minimum(0.0, 1.0 - of.closest / np.maximum(of.length, 1))
    return np.where(of.matches[:, 0] == 0, 0.0, np.exp(brevity + np.log(precisions).mean(axis=1)))


def pooled_bleu(of: Overlap) -> Float[np.ndarray, " n"]:
    """The same of counts that were added up over many sentences: 0 where none of them has four words."""
    return np.where(of.ngrams[:, -1] > 0, bleu(of), 0.0)


def overlap(sentences: Sequence[Sentence], group: Int[np.ndarray, " n"]) -> Overlap:
    """What each sentence shares with the others of its group, at least one, as its references.

    Only the two largest counts of an n-gram say how often it occurs in the others, so that no two sentences need be
    compared: time and memory grow with the text.

    >>> overlap([["a", "a"], ["a", "b", "c"]], np.array([0, 0])).matches
    array([[1, 0, 0, 0],
           [1, 0, 0, 0]])
    """
    words = _word_ids(sentences)
    length = np.fromiter(map(len, sentences), np.int64, len(sentences))
    matches = np.zeros((len(length), ORDERS), dtype=np.int64)
    owner = np.repeat(np.arange(len(length)), length)  # the sentence of each position
    start = np.arange(len(words))  # where the n-grams begin
    room = np.cumsum(length)[owner] - start  # the words from each position to the end of its sentence
    ngram = group[owner]  # the group stands for the empty n-gram, so that no n-gram is found in two groups
    for order in range(ORDERS):
        fits = room[start] > order
        start, ngram = start[fits], ngram[fits]
        ngram = np.unique(ngram * len(words) + words[start + order], return_inverse=True)[1]
        matches[:, order], shared = _matches(ngram, owner[start], len(length))
        start, ngram = start[shared], ngram[shared]  # what begins like no other matches no other
    ngrams = np.maximum(length[:, None] - np.arange(ORDERS), 0)
    return Overlap(matches, ngrams, length, _closest_lengths(length, group))


def _matches(
    ngram: Int[np.ndarray, " m"], owner: Int[np.ndarray, " m"], sentences: int
) -> tuple[Int[np.ndarray, " n"], Bool[np.ndarray, " m"]]:
    """The clipped count of each sentence, and which of the n-grams occur in more than one."""
    pairs, counts = np.unique(ngram * sentences + owner, return_counts=True)
    kind, holder = np.divmod(pairs, sentences)  # n-grams ascend, so the pairs of each lie together
    first = np.flatnonzero(np.diff(kind, prepend=-1))
    largest = counts == np.maximum.reduceat(counts, first)[kind]
    sole = largest & (np.add.reduceat(largest, first, dtype=np.int64) == 1)[kind]
    second = np.maximum.reduceat(np.where(largest, 0, counts), first)[kind]
    # Another sentence has as many, unless this one alone has the largest count: then the second is what counts.
    clipped = np.where(sole, second, counts)
    holders = np.diff(first, append=len(kind))
    return np.bincount(holder, clipped, sentences).astype(np.int64), (holders > 1)[ngram]


def _closest_lengths(length: Int[np.ndarray, " n"], group: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """The nearest length among the others of the group: one of the two beside it when they are sorted.

    >>> _closest_lengths(np.array([7, 5, 9]), np.array([0, 0, 0]))
    array([5, 7, 7])
    """
    order = np.lexsort((length, group))
    far = np.iinfo(np.int64).max // 2
    step = np.where(np.diff(group[order]) == 0, np.diff(length[order]), far)
    down, up = np.append(far, step)[: len(order)], np.append(step, far)[: len(order)]
    closest = np.empty_like(length)
    closest[order] = length[order] + np.where(down <= up, -down, up)
    return closest


def _paired(hypotheses: Sequence[Sentence], references: Sequence[Sequence[Sentence]]) -> Overlap:
    """Every hypothesis beside its references: in a group with them, where they are the others."""
    if len(hypotheses) != len(references):
        raise DataError(
            "each hypothesis needs a list of references, "
            f"got {counted(len(references), 'list')} for {len(hypotheses)} of them."
        )
    size = np.fromiter(map(len, references), np.int64, len(references)) + 1
    lacking = np.flatnonzero(size == 1)
    if len(lacking):
        raise DataError(f"hypothesis {lacking[0]} has no reference. Give it one, or leave it out.")
    pairs = zip(hypotheses, references, strict=True)
    sentences = [sentence for hypothesis, own in pairs for sentence in (hypothesis, *own)]
    everything = overlap(sentences, np.repeat(np.arange(len(size)), size))
    return Overlap(*(part[np.cumsum(size) - size] for part in everything))


def _word_ids(sentences: Sequence[Sentence]) -> Int[np.ndarray, " words"]:
    """The words of all sentences in a row, numbered as they appear."""
    for kind in set(map(type, sentences)):
        if issubclass(kind, str) or not issubclass(kind, Sequence):
            raise DataError(
                f"a sentence must be a list of words or of ids, got {kind.__name__}. Split a text into words, "
                "call tolist() on an array, and put a single reference into a list."
            )
    ids: defaultdict[Hashable, int] = defaultdict(count().__next__)
    words = np.fromiter(map(ids.__getitem__, chain.from_iterable(sentences)), np.int64)
    kinds = set(map(type, ids))
    if not any(all(issubclass(kind, allowed) for kind in kinds) for allowed in (str, Integral)):
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise DataError(f"sentences must be words (str) throughout, or ids (int) throughout, got {names}.")
    return words
