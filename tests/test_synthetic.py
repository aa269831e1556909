import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nnrs.errors import ConfigError, DataError
from nnrs.seeding import Random, Stream
from nnrs.synthetic import SyntheticLanguage

languages = st.builds(
    SyntheticLanguage, concepts=st.integers(1, 12), synonyms=st.integers(1, 5), seed=st.integers(0, 99)
)


def text_of(language: SyntheticLanguage, count: int) -> list[int]:
    """The ids of a sample, `<eos>` (0) after each sentence and once before the first."""
    ids = {word: i for i, word in enumerate(language.words)}
    text = [0]
    for sentence in language.sentences(count, Random(5, Stream.TEXT, step=1)):
        text += [ids[word] for word in sentence] + [0]
    return text


@given(language=languages)
@settings(max_examples=30, deadline=None)
def test_rows_sum_to_one_and_synonyms_have_identical_rows(language):
    rows = language.transition_probabilities
    torch.testing.assert_close(rows.sum(dim=1), torch.ones(len(language.words), dtype=torch.float64))
    for word in language.words:
        for synonym in language.synonyms_of(word):
            assert rows[language.words.index(word)].equal(rows[language.words.index(synonym)])


@given(language=languages)
@settings(max_examples=30, deadline=None)
def test_the_stationary_distribution_is_left_alone_by_a_step(language):
    stationary = language.stationary
    torch.testing.assert_close(stationary @ language.transition_probabilities, stationary)
    assert stationary.sum().item() == pytest.approx(1.0)
    assert stationary.min() > 0


def test_the_chain_of_one_concept_is_the_hand_worked_one():
    # <eos> is followed by c0a 2/3, c0b 1/3; each of those by <eos> 1/8, else by c0a 7/12, c0b 7/24.
    after_a_word = [1 / 8, 7 / 12, 7 / 24]
    expected = torch.tensor([[0, 2 / 3, 1 / 3], after_a_word, after_a_word], dtype=torch.float64)
    rows = SyntheticLanguage(concepts=1, synonyms=2).transition_probabilities
    torch.testing.assert_close(rows, expected)


def test_the_entropy_rate_of_one_concept_is_the_hand_worked_one():
    # One <eos> for eight words: π(<eos>) = 1/9. After <eos> only the synonym is open; after a word, first
    # whether the sentence ends (1/8), and if not (7/8) the synonym too.
    synonym = -(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3)
    ending = -(1 / 8) * math.log(1 / 8) - (7 / 8) * math.log(7 / 8)
    expected = (1 / 9) * synonym + (8 / 9) * (ending + (7 / 8) * synonym)
    assert SyntheticLanguage(concepts=1, synonyms=2).entropy_rate() == pytest.approx(expected, rel=1e-12)


def test_the_chain_is_sparse_and_peaked():
    chain = SyntheticLanguage().concept_probabilities
    # Five followers with shares 16 : 8 : 4 : 2 : 1 of the 7/8 that do not end the sentence, and the end, 1/8.
    shares = [7 / 8 * share / 31 for share in (16, 8, 4, 2, 1)]
    expected = torch.tensor(sorted([*shares, 1 / 8], reverse=True), dtype=torch.float64)
    for row in chain[1:]:
        torch.testing.assert_close(row.sort(descending=True).values[:6], expected)
        assert (row > 0).sum() == 6


def test_the_loss_of_the_known_probabilities_is_the_entropy_rate():
    language = SyntheticLanguage(concepts=8, synonyms=3, seed=1)
    text = torch.tensor(text_of(language, 8000))
    losses = -language.transition_probabilities[text[:-1], text[1:]].log()
    # Adjacent losses depend on each other, means of blocks of 500 hardly: 4 standard errors of those.
    blocks = losses[: len(losses) // 500 * 500].view(-1, 500).mean(dim=1)
    error = blocks.std() / math.sqrt(len(blocks))
    assert len(blocks) > 100
    assert abs(blocks.mean() - language.entropy_rate()) < 4 * error


def test_bigram_frequencies_match_the_transition_probabilities():
    language = SyntheticLanguage(concepts=4, synonyms=2, seed=3)
    text = text_of(language, 6000)
    pairs, firsts = Counter(pairwise(text)), Counter(text[:-1])
    checked = 0
    for first, row in enumerate(language.transition_probabilities.tolist()):
        for second, p in enumerate(row):
            error = math.sqrt(p * (1 - p) / firsts[first])
            assert abs(pairs[first, second] / firsts[first] - p) <= 4 * error
            checked += p > 0
    assert checked > 70  # 9 rows: 8 followers of <eos>, and <eos> and 8 words after each word


@given(language=languages, dim=st.integers(8, 40))
@settings(max_examples=30, deadline=None)
def test_the_nearest_neighbors_of_a_word_are_its_synonyms(language, dim):
    vectors = language.vectors(dim)
    assert vectors.shape == (len(language.words), dim)
    assert not vectors[0].any()
    cosines = vectors @ vectors.T
    cosines[:, 0] = -2.0
    cosines.fill_diagonal_(-2.0)
    nearest = cosines.argsort(dim=1, descending=True)[:, : language.synonyms - 1]
    for word, row in list(zip(language.words, nearest.tolist(), strict=True))[1:]:
        assert {language.words[i] for i in row} == set(language.synonyms_of(word))


def test_the_default_language_has_60_concepts_of_4_words_and_eos():
    language = SyntheticLanguage()
    assert len(language.words) == len(set(language.words)) == 241
    assert language.words[:5] == ("<eos>", "c00a", "c00b", "c00c", "c00d")
    assert language.synonyms_of("c59b") == ("c59a", "c59c", "c59d")
    assert language.synonyms_of("<eos>") == ()


def test_one_seed_gives_one_language_and_one_text():
    sample = text_of(SyntheticLanguage(seed=2), 50)
    assert sample == text_of(SyntheticLanguage(seed=2), 50)
    assert sample != text_of(SyntheticLanguage(seed=3), 50)
    assert sample.count(0) == 51


def test_sentences_are_drawn_as_they_are_asked_for():
    endless = SyntheticLanguage().sentences(10**12, Random(0, Stream.TEXT, step=1))
    assert all(next(endless) for _ in range(3))


@pytest.mark.parametrize("bad", [{"concepts": 0}, {"synonyms": 0}, {"synonyms": 27}])
def test_impossible_languages_are_refused(bad):
    with pytest.raises(ConfigError, match="at least 1 concept and 1 to 26 synonyms, got"):
        SyntheticLanguage(**bad)


def test_foreign_words_and_flat_vectors_are_refused():
    with pytest.raises(DataError, match="'hello' is not a word"):
        SyntheticLanguage().synonyms_of("hello")
    with pytest.raises(ConfigError, match="at least 2 dimensions"):
        SyntheticLanguage().vectors(1)
