import math
import sys
from collections import Counter
from itertools import permutations

import numpy as np
import ot
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnrs.corpus import open_corpus
from nnrs.embeddings import read_vectors
from nnrs.errors import ConfigError, DataError
from nnrs.metrics import wmd as module
from nnrs.metrics.wmd import WmdSummary, WordVectors, self_wmd, summarize, wmd
from nnrs.vocabulary import Vocabulary, token_ids

X, Y, Z, NOT_ALLOWED, ZERO, NOT_FINITE, NOT_A_NUMBER = range(7)  # the words of the small space
SENTENCES = st.lists(st.integers(0, 11), min_size=1, max_size=12)


def small_space():
    """Cosines: x·y = 0.6, y·z = 0.8, x·z = 0; the lengths differ, and four words take no part."""
    rows = [[2, 0], [3, 4], [0, 0.5], [1, 1], [0, 0], [math.inf, 1], [math.nan, 1]]
    allowed = np.arange(len(rows)) != NOT_ALLOWED
    return WordVectors(np.array(rows, dtype=np.float32), allowed)


def random_space(seed=0, vocab=12, dim=5):
    vectors = np.random.default_rng(seed).standard_normal((vocab, dim)).astype(np.float32)
    return WordVectors(vectors, np.ones(vocab, dtype=bool))


def distance(space, first, second):
    return wmd(space.bags([first]), space.bags([second])).item()


def cosine_cost(space, first, second):
    """1 − cos from word to word, one by one in Python's own floats."""

    def cost(a, b):
        product = math.fsum(x * y for x, y in zip(a, b, strict=True))
        return 1 - product / math.hypot(*a) / math.hypot(*b)

    rows, columns = (space.vectors[list(words)].tolist() for words in (first, second))
    return np.array([[cost(a, b) for b in columns] for a in rows])


def by_pot(space, first, second):
    """What POT's documented function makes of two sentences whose words all take part."""
    a, b = Counter(first), Counter(second)
    weights = [np.array(list(bag.values())) / bag.total() for bag in (a, b)]
    return float(ot.emd2(*weights, cosine_cost(space, a, b)))


def test_two_words_to_two_words():
    # x x z to x z z: shares 2/3, 1/3 and 1/3, 2/3. A third of the mass goes from x to z, at 1 − 0 = 1.
    assert distance(small_space(), [X, X, Z], [X, Z, Z]) == pytest.approx(1 / 3, abs=1e-12)


def test_a_shared_word_moves_where_that_is_cheaper():
    # x y to y z. With y left where it is, x goes to z: 1/2 · 1 = 0.5.
    # Better: x to y at 1 − 0.6 and y to z at 1 − 0.8: 1/2 · 0.4 + 1/2 · 0.2 = 0.3.
    assert distance(small_space(), [X, Y], [Y, Z]) == pytest.approx(0.3, abs=1e-7)


def test_two_words_to_three_words():
    # x z to x y z: shares 1/2, 1/2 and 1/3 each. x and z keep 1/3 each, and both send 1/6 to y:
    # 1/6 · 0.4 + 1/6 · 0.2 = 0.1. No plan is cheaper: prices 0.4, 0.2 for leaving x, z and −0.4, 0, −0.2
    # for reaching x, y, z never sum to more than the cost, and earn 1/2 · 0.6 − 1/3 · 0.6 = 0.1.
    assert distance(small_space(), [X, Z], [X, Y, Z]) == pytest.approx(0.1, abs=1e-7)


def test_one_word_goes_everywhere():
    # All of y goes to x x x z: 3/4 · 0.4 + 1/4 · 0.2 = 0.35
    assert distance(small_space(), [Y], [X, X, X, Z]) == pytest.approx(0.35, abs=1e-7)


@given(first=SENTENCES, second=SENTENCES, seed=st.integers(0, 9))
def test_it_equals_pot_with_a_cosine_cost_made_by_hand(first, second, seed):
    space = random_space(seed)
    assert distance(space, first, second) == pytest.approx(by_pot(space, first, second), abs=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_best_of_all_assignments_of_equal_weights(seed):
    # Between two sentences of five different words some optimal plan moves each word whole.
    space = random_space(seed)
    first, second = np.random.default_rng(seed).permutation(12)[:10].reshape(2, 5)
    costs = cosine_cost(space, first, second)
    best = min(costs[range(5), order].mean() for order in permutations(range(5)))
    assert distance(space, first, second) == pytest.approx(best, abs=1e-12)


@given(sentence=SENTENCES, times=st.integers(1, 3), data=st.data())
def test_the_same_shares_of_the_same_words_are_at_distance_exactly_zero(sentence, times, data):
    other = data.draw(st.permutations(sentence * times))
    assert distance(random_space(), sentence, other) == 0.0


@given(first=SENTENCES, second=SENTENCES, data=st.data())
def test_neither_the_order_of_words_nor_that_of_sentences_matters(first, second, data):
    space = random_space()
    expected = distance(space, first, second)
    assert distance(space, second, data.draw(st.permutations(first))) == pytest.approx(expected, abs=1e-12)


def test_opposite_words_are_two_apart():
    space = WordVectors(np.array([[1, 3], [-2, -6]], dtype=np.float32), np.ones(2, dtype=bool))
    assert distance(space, [0], [1]) == pytest.approx(2.0)


def test_words_of_one_direction_are_no_distance_apart_and_never_less():
    words = np.random.default_rng(0).standard_normal((50, 7)).astype(np.float32)
    space = WordVectors(np.concatenate([words, 2 * words]), np.ones(100, dtype=bool))
    result = wmd(space.bags(np.arange(50)[:, None]), space.bags(np.arange(50, 100)[:, None]))
    assert 0.0 <= result.min() <= result.max() < 1e-12  # some of the cosines round to more than 1


def test_huge_and_tiny_vectors_have_their_direction():
    rows = np.array([[1e38, 2e38], [1e-44, 2e-44], [1, 0]], dtype=np.float32)
    space = WordVectors(rows, np.ones(3, dtype=bool))
    assert distance(space, [0], [2]) == pytest.approx(1 - 1 / math.sqrt(5), abs=1e-6)
    assert distance(space, [0], [1]) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("word", [NOT_ALLOWED, ZERO, NOT_FINITE, NOT_A_NUMBER])
def test_a_word_that_takes_no_part_leaves_the_sentence(word):
    space = small_space()
    assert distance(space, [X, word, Z, word], [Y, X, word]) == distance(space, [X, Z], [Y, X])


@pytest.mark.parametrize(
    ("first", "second"), [([], [X]), ([X], [ZERO]), ([], []), ([ZERO], [ZERO]), ([NOT_ALLOWED], [NOT_FINITE])]
)
def test_a_sentence_without_words_to_compare_is_at_no_known_distance(first, second):
    space = small_space()
    result = wmd(space.bags([[X], first, [X]]), space.bags([[X], second, [Z]]))
    np.testing.assert_allclose(result, [0.0, math.nan, 1.0], atol=1e-12)


def test_sentences_may_be_rows_of_an_array_and_there_may_be_none():
    space = small_space()
    rows = np.array([[X, Y], [Z, Z]], dtype=np.int32)
    # x y to y: 1/2 · 0.4 = 0.2
    np.testing.assert_allclose(wmd(space.bags(rows), space.bags([[Y], [X]])), [0.2, 1.0], rtol=1e-7)
    assert wmd(space.bags([]), space.bags([])).shape == (0,)
    assert self_wmd(space.bags([]), np.zeros(0, dtype=np.int64)).shape == (0,)


@pytest.mark.parametrize("bad", [-1, 7])
def test_an_id_without_a_row_is_named(bad):
    with pytest.raises(DataError, match=rf"word id {bad}, but the vectors are of ids 0 to 6"):
        small_space().bags([[X], [Y, bad]])


def test_what_does_not_go_together_is_refused():
    space = small_space()
    with pytest.raises(DataError, match="in pairs, got 1 and 2"):
        wmd(space.bags([[X]]), space.bags([[X], [Y]]))
    with pytest.raises(DataError, match="same WordVectors"):
        wmd(space.bags([[X]]), small_space().bags([[X]]))
    with pytest.raises(DataError, match="got 1 sentence and 2 groups"):
        self_wmd(space.bags([[X]]), np.array([0, 0]))


def slow_self_wmd(space, sentences, groups):
    """Every sentence against every other, twice over."""
    means = []
    for i, sentence in enumerate(sentences):
        others = [
            distance(space, sentence, other)
            for j, other in enumerate(sentences)
            if i != j and groups[i] == groups[j]
        ]
        known = [other for other in others if not math.isnan(other)]
        means.append(sum(known) / len(known) if known else math.nan)
    return means


@given(
    entries=st.lists(
        st.tuples(st.lists(st.sampled_from([X, Y, Z, ZERO]), max_size=5), st.integers(-1, 2)), max_size=12
    )
)
def test_self_wmd_equals_the_slow_double_loop(entries):
    space, sentences, groups = small_space(), [words for words, _ in entries], [group for _, group in entries]
    fast = self_wmd(space.bags(sentences), np.array(groups, dtype=np.int64))
    np.testing.assert_allclose(fast, slow_self_wmd(space, sentences, groups), rtol=0, atol=1e-12)


def test_self_wmd_of_long_sentences_equals_the_slow_double_loop():
    space, generator = random_space(vocab=200), np.random.default_rng(1)
    sentences, groups = generator.integers(0, 200, (12, 35)), generator.integers(0, 3, 12)
    fast = self_wmd(space.bags(sentences), groups)
    np.testing.assert_allclose(fast, slow_self_wmd(space, sentences, groups), rtol=0, atol=1e-12)


def test_self_wmd_leaves_out_sentences_without_words_and_those_without_others():
    # group 0: x and z are 1 apart, the empty one is nobody's other; group 1 has one sentence
    sentences, groups = [[X], [ZERO], [Z], [Y]], np.array([0, 0, 0, 1])
    result = self_wmd(small_space().bags(sentences), groups)
    np.testing.assert_allclose(result, [1.0, math.nan, 1.0, math.nan])


def test_self_wmd_solves_each_pair_of_a_group_once(monkeypatch):
    solved = []
    solver = module._solver()
    monkeypatch.setattr(module, "_solver", lambda: lambda *given: solved.append(given) or solver(*given))
    sentences = [[X], [Y], [Z], [X, Y], [X], [Y], [Z]]
    self_wmd(small_space().bags(sentences), np.array([0, 0, 0, 0, 1, 1, 1]))
    assert len(solved) == 6 + 3


def test_a_summary_leaves_out_the_unknown_and_counts_it():
    summary = summarize(np.array([0.5, math.nan, 0.25, math.nan, 0.75]))
    assert summary == WmdSummary(distance=0.5, compared=3, left_out=2)
    assert (summary.similarity, summary.scaled_similarity) == (0.5, 0.75)
    nothing = summarize(np.array([math.nan]))
    assert math.isnan(nothing.distance)
    assert math.isnan(nothing.scaled_similarity)
    assert (nothing.compared, nothing.left_out) == (0, 1)


@pytest.mark.parametrize("metric", [lambda bags: wmd(bags, bags), lambda bags: self_wmd(bags, np.array([0]))])
def test_without_pot_the_extra_is_named(metric, monkeypatch):
    for name in ("ot", "ot.lp", "ot.lp.emd_wrap"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"needs the package POT.*pip install 'nnrs\[metrics\]'"):
        metric(small_space().bags([[X]]))


@pytest.mark.data
def test_unrelated_windows_of_ptb_already_score_two_thirds(shared_data):
    corpus = open_corpus(str(shared_data / "ptb"))
    vocabulary = Vocabulary.from_corpus(corpus)
    file = shared_data / "embeddings" / "googlenews-negative300.subset.bin.gz"
    vectors = read_vectors(file, vocabulary.words).vectors.numpy()
    space = WordVectors(vectors, np.array(vocabulary.counts) > 0)
    text = token_ids(corpus, "test", vocabulary).numpy()
    windows = np.random.default_rng(0).permutation(text[: len(text) // 35 * 35].reshape(-1, 35))[:800]
    first, second = windows[:400], windows[400:]
    distances = wmd(space.bags(first), space.bags(second))
    # Single pairs spread by 0.03 on this scale, so the mean of 400 has a standard error below 0.002.
    assert summarize(distances).scaled_similarity == pytest.approx(0.67, abs=0.008)
    for one, other, ours in zip(first[:40], second[:40], distances[:40], strict=True):
        known = [[word for word in window if vectors[word].any()] for window in (one, other)]
        assert ours == pytest.approx(by_pot(space, *known), abs=1e-7)
    within = self_wmd(space.bags(windows[:40]), np.arange(40) // 20)
    assert summarize(within).scaled_similarity == pytest.approx(0.67, abs=0.02)
