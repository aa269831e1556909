from collections import Counter
from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nnrs.corpus import SPLITS, Corpus, open_corpus
from nnrs.errors import ConfigError, DataError
from nnrs.synthetic import SyntheticLanguage
from nnrs.vocabulary import EOS, UNK, Vocabulary, token_ids

tokens = st.sampled_from(["a", "b", "B", "c", "d", UNK, EOS])
texts = st.lists(st.lists(tokens, max_size=6), min_size=1).filter(lambda lines: {*chain(*lines)} - {UNK, EOS})


def corpus_of(*lines: str, test: str = "") -> Corpus:
    return Corpus(
        "tiny", {"train": lambda: (line.split() for line in lines), "test": lambda: iter([test.split()])}
    )


def test_words_are_ordered_by_count_then_alphabet():
    # "the" 3 times, <eos> once for each of 3 lines, and "<" sorts before "t"; b and cat once, <unk> never.
    vocabulary = Vocabulary.from_corpus(corpus_of("the cat the", "", "b the"))
    assert vocabulary.words == (EOS, "the", "b", "cat", UNK)
    assert vocabulary.counts == (3, 3, 1, 1, 0)


def test_rare_words_count_as_unknown():
    corpus = corpus_of("a a a b b c d", "a <unk>")
    assert Vocabulary.from_corpus(corpus, min_count=2) == Vocabulary(("a", UNK, EOS, "b"), (4, 3, 2, 2))
    # Four in all: <eos>, <unk> and the two most frequent words.
    assert Vocabulary.from_corpus(corpus, max_vocabulary=4).words == ("a", UNK, EOS, "b")
    assert Vocabulary.from_corpus(corpus, max_vocabulary=3) == Vocabulary((UNK, "a", EOS), (5, 4, 2))


@pytest.mark.parametrize("line", ["<unk> <unk>", "<unk> <eos>", ""])
def test_a_text_without_a_word_of_its_own_is_refused(line):
    with pytest.raises(
        DataError, match=r"^tiny: the training text has no word but <unk>: there is nothing to learn"
    ):
        Vocabulary.from_corpus(corpus_of(line, line))


def test_eos_written_in_the_text_is_the_end_of_line_token():
    corpus = corpus_of("a <eos> b")
    vocabulary = Vocabulary.from_corpus(corpus)
    assert vocabulary.counts[vocabulary.eos_id] == 2
    assert vocabulary.decode(token_ids(corpus, "train", vocabulary).tolist()) == ["a", EOS, "b", EOS]


@given(lines=texts, min_count=st.integers(1, 4), size=st.none() | st.integers(3, 8))
@settings(deadline=None)
def test_counts_are_the_frequencies_of_the_training_ids(lines, min_count, size):
    corpus = Corpus("tiny", {"train": lambda: iter(lines)})
    words = [count for word, count in Counter(chain(*lines)).items() if word not in (EOS, UNK)]
    if max(words) < min_count:
        with pytest.raises(
            ConfigError, match=f"no word of tiny occurs {min_count} times: the commonest has {max(words)}\\."
        ):
            Vocabulary.from_corpus(corpus, min_count, size)
        return
    vocabulary = Vocabulary.from_corpus(corpus, min_count, size)
    ids = token_ids(corpus, "train", vocabulary)
    assert len(ids) == sum(len(line) + 1 for line in lines)
    assert tuple(torch.bincount(ids, minlength=len(vocabulary)).tolist()) == vocabulary.counts
    assert list(vocabulary.counts) == sorted(vocabulary.counts, reverse=True)
    assert size is None or len(vocabulary) <= size
    frequent = {word for word, count in Counter(chain(*lines)).items() if count >= min_count}
    assert set(vocabulary.words) <= frequent | {EOS, UNK}
    assert size is not None or set(vocabulary.words) == frequent | {EOS, UNK}


@given(lines=texts)
@settings(deadline=None)
def test_decoding_undoes_encoding_of_known_words(lines):
    vocabulary = Vocabulary.from_corpus(Corpus("tiny", {"train": lambda: iter(lines)}))
    for line in lines:
        assert vocabulary.decode(vocabulary.encode(line)) == line


def test_unseen_words_of_other_splits_are_unknown():
    corpus = corpus_of("the cat", test="the dog")
    vocabulary = Vocabulary.from_corpus(corpus)
    ids = token_ids(corpus, "test", vocabulary)
    assert ids.dtype == torch.int32
    assert vocabulary.decode(ids.tolist()) == ["the", UNK, EOS]
    assert "dog" not in vocabulary.ids


def test_words_that_differ_in_case_share_a_group():
    vocabulary = Vocabulary(("US", "us", "Us", "bus", EOS, UNK), (6, 5, 4, 3, 2, 1))
    groups = vocabulary.case_groups().tolist()
    assert groups[0] == groups[1] == groups[2]
    assert len(set(groups)) == 4


def test_json_gives_back_an_equal_vocabulary():
    vocabulary = Vocabulary.from_corpus(corpus_of("é the ' \" the", "中 the"))
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary


def test_the_fingerprint_tells_words_order_and_counts_apart():
    variants = [
        Vocabulary(("a", EOS, UNK), (2, 1, 0)),
        Vocabulary(("b", EOS, UNK), (2, 1, 0)),
        Vocabulary((EOS, "a", UNK), (2, 1, 0)),
        Vocabulary(("a", EOS, UNK), (3, 1, 0)),
    ]
    assert len({vocabulary.fingerprint for vocabulary in variants}) == 4
    assert variants[0].fingerprint == Vocabulary(("a", EOS, UNK), (2, 1, 0)).fingerprint


def test_the_synthetic_corpus_has_the_words_of_its_language():
    vocabulary = Vocabulary.from_corpus(open_corpus("synthetic"))
    assert set(vocabulary.words) == {*SyntheticLanguage().words, UNK}
    assert vocabulary.counts[vocabulary.unk_id] == 0


@pytest.mark.parametrize("bad", [{"min_count": 0}, {"max_vocabulary": 2}])
def test_limits_that_leave_nothing_are_refused(bad):
    ((name, value),) = bad.items()
    with pytest.raises(ConfigError, match=f"{name} must be at least .*, got {value}"):
        Vocabulary.from_corpus(corpus_of("a"), **bad)


@pytest.mark.parametrize(
    ("words", "counts", "message"),
    [
        (("a", EOS, UNK), (1, 1), "3 words .* and 2 counts"),
        (("a", "a", EOS, UNK), (1, 1, 1, 1), "4 words \\(3 different\\)"),
        (("a", EOS), (1, 1), "must contain <unk>"),
        (("a",), (1,), "must contain <eos> and <unk>"),
    ],
)
def test_an_inconsistent_vocabulary_is_refused(words, counts, message):
    with pytest.raises(DataError, match=message):
        Vocabulary(words, counts)


@pytest.mark.data
@pytest.mark.parametrize(
    ("folder", "size", "tokens"),
    [("ptb", 10_000, (929_589, 73_760, 82_430)), ("wikitext-2", 33_278, (2_088_628, 217_646, 245_569))],
)
def test_the_standard_corpora_have_their_standard_sizes(shared_data, folder, size, tokens):
    corpus = open_corpus(str(shared_data / folder))
    vocabulary = Vocabulary.from_corpus(corpus)
    assert corpus.name == folder
    assert len(vocabulary) == size
    assert tuple(len(token_ids(corpus, split, vocabulary)) for split in SPLITS) == tokens
