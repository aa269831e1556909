"""Whether texts have the words that runs protect, and enough for their neighbors, told before any is trained."""

from collections import Counter
from collections.abc import Iterable, Sequence

from nnrs.corpus import Corpus, open_corpus
from nnrs.embeddings.cooccurrence import MIN_COUNT
from nnrs.experiments.config import TRANSLATE, DataConfig, VectorsConfig
from nnrs.experiments.plan import Cell
from nnrs.experiments.prepare import SPECIAL, Shelf, protected_ids, vectors_for
from nnrs.experiments.text import Text
from nnrs.neighbors.arguments import candidates_among
from nnrs.neighbors.table import checked_k
from nnrs.parallel import choose_languages, open_parallel
from nnrs.policies.methods import METHODS

MANY = 64  # words that are more than the usual k, round(log2 V), of any text


def check_neighbors(cells: Iterable[Cell], shelf: Shelf) -> None:
    """Refuse runs that ask for more neighbors than their words have.

    A text is read no further than to words enough, a moment's work; only one that has few of them is read whole, and
    with its vectors. A file that has vectors of few words is met by whoever makes the run.
    """
    checked = set()
    for cell in cells:
        policy, asked = cell.config.policy, (cell.config.data, cell.config.vectors, cell.config.policy.k)
        if asked in checked or policy.transition_whole or not METHODS[policy.method].rules:
            continue
        checked.add(asked)
        with cell.named_in_errors():
            _check(*asked, shelf)


def check_protected(cells: Iterable[Cell], shelf: Shelf) -> None:
    """Refuse runs that protect words which their vocabulary lacks.

    A text is read no further than to the last of them; whole where one is missing, or the vocabulary has a bound. Of
    runs that protect the same, one is named that replaces words: mle would be blamed for what is nothing to it.
    """
    checked = set()
    for cell in sorted(cells, key=lambda cell: METHODS[cell.config.policy.method].proposal is None):
        data, vectors = cell.config.data, cell.config.vectors
        asked = data, vectors.protect
        if asked in checked:
            continue
        checked.add(asked)
        with cell.named_in_errors():
            if not _has_words(*asked):
                protected_ids(vectors, shelf.take(Text.read, data).vocabulary)


def _has_words(data: DataConfig, words: Sequence[str]) -> bool:
    """Whether the vocabulary surely has these words, as far as the text says."""
    if not words or data.max_vocabulary is not None:  # which may leave out any
        return not words
    missing = dict.fromkeys(words, data.min_count)
    for line in _corpus(data).lines("train"):
        for word in missing.keys() & line:
            missing[word] -= line.count(word)
            if missing[word] <= 0:
                del missing[word]
        if not missing:
            return True
    return False


def _check(data: DataConfig, vectors: VectorsConfig, k: int | None, shelf: Shelf) -> None:
    if _has_more_words(data, vectors, MANY if k is None else k):
        return
    text = shelf.take(Text.read, data)
    protected = protected_ids(vectors, text.vocabulary)
    checked_k(k, candidates_among(shelf.take(vectors_for, vectors, text).vectors, protected))


def _has_more_words(data: DataConfig, vectors: VectorsConfig, count: int) -> bool:
    """Whether more words than so many are surely replaceable, as far as the text says."""
    needed = count + len(SPECIAL) + len(vectors.protect)
    if data.max_vocabulary is not None and data.max_vocabulary <= needed:
        return False
    often = max(data.min_count, MIN_COUNT if vectors.source == "corpus" else 1)
    counts, found = Counter[str](), 0
    for line in _corpus(data).lines("train"):
        for word in line:
            counts[word] += 1
            found += counts[word] == often
        if found > needed:
            return True
    return False


def _corpus(data: DataConfig) -> Corpus:
    """The text whose words are replaced: of a translation that which is translated into."""
    if data.task != TRANSLATE:
        return open_corpus(data.source)
    return open_parallel(data.source, *choose_languages(data.source, data.from_language, data.to_language))[1]
