import math
import tracemalloc

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction
from nltk.translate.bleu_score import sentence_bleu as nltk_bleu
from sacrebleu.metrics import BLEU

from nnrs.errors import ConfigError, DataError
from nnrs.metrics.bleu import corpus_bleu, overlap, self_bleu, sentence_bleu

EXACT = {"rtol": 0, "atol": 1e-9}

WORDS = st.sampled_from("abcd")  # few, so that they meet again and again
SENTENCES = st.lists(WORDS, max_size=9)
PAIRS = st.lists(st.tuples(SENTENCES, st.lists(SENTENCES, min_size=1, max_size=4)), min_size=1, max_size=6)


@st.composite
def grouped(draw):
    """Sentences in groups of two and more, shuffled among each other, with the labels of their groups."""
    groups = draw(st.lists(st.lists(SENTENCES, min_size=2, max_size=6), min_size=1, max_size=4))
    labels = draw(st.lists(st.integers(-99, 99), min_size=len(groups), max_size=len(groups), unique=True))
    labelled = [(sentence, label) for label, group in zip(labels, groups, strict=True) for sentence in group]
    sentences, names = zip(*draw(st.permutations(labelled)), strict=True)
    return list(sentences), list(names)


def by_nltk(hypotheses, references):
    smoothing = SmoothingFunction().method1
    pairs = zip(hypotheses, references, strict=True)
    return [float(nltk_bleu(own, hypothesis, smoothing_function=smoothing)) for hypothesis, own in pairs]


def self_by_nltk(sentences, groups=None):
    groups = groups or [0] * len(sentences)
    others = [
        [sentences[j] for j in range(len(sentences)) if j != i and groups[j] == groups[i]]
        for i in range(len(sentences))
    ]
    return by_nltk(sentences, others)


def by_sacrebleu(hypotheses, references):
    """Of as many references each."""
    lines = [" ".join(hypothesis) for hypothesis in hypotheses]
    streams = [[" ".join(reference) for reference in stream] for stream in zip(*references, strict=True)]
    return BLEU(tokenize="none", smooth_method="floor").corpus_score(lines, streams).score / 100


def words(*texts):
    return [text.split() for text in texts]


ADVERSARIAL = {
    "empty beside full": words("", "a b c d e"),
    "all empty": words("", "", ""),
    "one word": words("a", "a", "b"),
    "two and three words": words("a b", "a b c", "c b a"),
    "three words alike": words("a b c", "a b c"),
    "all unknown": words(
        "<unk> <unk> <unk> <unk> <unk>", "<unk> <unk>", "<unk> <unk> <unk> <unk> <unk> <unk>"
    ),
    "identical": words("a b c d e", "a b c d e", "a b c d e"),
    "nothing shared": words("a b c d", "e f g h", "i j k l m"),
    "words repeated": words("a a a a a a", "a a a", "a b a b a b a", "a a a a b"),
    "counts tie at the top": words("a a a b", "a a a c", "a a d"),
    "end meets beginning": words("a b", "c d", "a b c d", "b c"),
    "two lengths as near": words("a b c d e", "a b c d e f g", "a b c d e f g h i"),
    "one order without a match": words("a b x a b", "a b y b a"),
    "long beside short": words("a b c d e f g h i j k l m n o p", "a b", "c"),
}


@pytest.mark.parametrize("sentences", ADVERSARIAL.values(), ids=ADVERSARIAL)
def test_the_hard_cases_equal_nltk(sentences):
    np.testing.assert_allclose(self_bleu(sentences), self_by_nltk(sentences), **EXACT)
    turned = [sentences[::-1]] * len(sentences)
    np.testing.assert_allclose(sentence_bleu(sentences, turned), by_nltk(sentences, turned), **EXACT)


@given(PAIRS)
def test_sentence_bleu_equals_nltk(pairs):
    hypotheses, references = map(list, zip(*pairs, strict=True))
    np.testing.assert_allclose(
        sentence_bleu(hypotheses, references), by_nltk(hypotheses, references), **EXACT
    )


@given(grouped())
def test_self_bleu_equals_nltk_with_the_others_of_the_group_as_references(case):
    sentences, groups = case
    np.testing.assert_allclose(self_bleu(sentences, groups), self_by_nltk(sentences, groups), **EXACT)


@given(st.lists(SENTENCES, min_size=2, max_size=12))
def test_without_groups_all_sentences_are_one_group(sentences):
    np.testing.assert_allclose(self_bleu(sentences), self_by_nltk(sentences), **EXACT)


def test_hand_worked_sentence():
    # the cat sat on the mat | the cat sat on a mat
    #   words: 5 of 6 (the second "the" is one too many); pairs: the cat, cat sat, sat on of 5;
    #   triples: the cat sat, cat sat on of 4; four in a row: the cat sat on of 3. The lengths are equal.
    exact = (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    # the cat ran | the cat sat on the mat
    #   words: 2 of 3; pairs: 1 of 2; triples: none of 1, so 0.1 of 1; four in a row: none of none, so 0.1 of 1.
    #   Three words for six: exp(1 - 6/3).
    smoothed = math.exp(-1) * (2 / 3 * 1 / 2 * 0.1 * 0.1) ** 0.25
    hypotheses = words("the cat sat on the mat", "the cat ran")
    references = [words("the cat sat on a mat"), words("the cat sat on the mat")]
    np.testing.assert_allclose(sentence_bleu(hypotheses, references), [exact, smoothed], **EXACT)


def test_hand_worked_matches_among_the_others():
    sentences = words("a a a b", "a a c", "a a b b")
    # a: 3, 2, 2 times. The first alone has three and is cut to two; the others keep their two.
    # b: 1, 0, 2 times. The third alone has two and is cut to one; the first keeps one. c: in no other.
    # a a: 2, 1, 1 times: cut to one, one, one. a b: 1, 0, 1: both keep it. a c and b b: in no other.
    # a a b: in the first and the third. a a a, a a c, a b b: in no other. No four words are shared.
    expected = [[3, 2, 1, 0], [2, 1, 0, 0], [3, 2, 1, 0]]
    np.testing.assert_array_equal(overlap(sentences, np.zeros(3, dtype=np.int64)).matches, expected)


def test_of_two_references_as_near_the_shorter_sets_the_penalty():
    hypothesis, short, shorter, longer = words("a b c d e f g", "a b c d", "a b c d e", "a b c d e f g h i")
    # Seven words of which all are found; the longer reference alone would cost exp(1 - 9/7).
    assert sentence_bleu([hypothesis], [[longer, shorter]])[0] == pytest.approx(1.0)
    assert sentence_bleu([hypothesis], [[longer]])[0] == pytest.approx(math.exp(1 - 9 / 7))
    assert sentence_bleu([hypothesis], [[longer, short]])[0] == pytest.approx(math.exp(1 - 9 / 7))


def test_a_sentence_is_not_its_own_reference_but_its_double_is():
    lonely, double = words("a b c d e", "f g h i j")
    np.testing.assert_allclose(self_bleu([lonely, double, double]), [0.0, 1.0, 1.0], **EXACT)


@given(st.lists(st.lists(WORDS, min_size=4, max_size=9), min_size=1, max_size=8), st.data())
def test_corpus_bleu_equals_sacrebleu(hypotheses, data):
    references = [[data.draw(SENTENCES)] for _ in hypotheses]
    assert corpus_bleu(hypotheses, references) == pytest.approx(
        by_sacrebleu(hypotheses, references), abs=1e-9
    )


@given(st.lists(st.tuples(SENTENCES, SENTENCES, SENTENCES), min_size=1, max_size=8))
def test_corpus_bleu_equals_sacrebleu_with_short_sentences_and_two_references(triples):
    hypotheses, references = [triple[0] for triple in triples], [list(triple[1:]) for triple in triples]
    assert corpus_bleu(hypotheses, references) == pytest.approx(
        by_sacrebleu(hypotheses, references), abs=1e-9
    )


def test_short_hypotheses_add_the_n_grams_they_have_and_need_one_of_four_words_beside_them():
    hypotheses, references = words("a b c d", "a b x"), [words("a b c d"), words("a b c d")]
    # words: 6 of 7; pairs: 4 of 5; triples: 2 of 3; four in a row: 1 of 1 (the short one adds none); 7 words for 8.
    expected = math.exp(1 - 8 / 7) * (6 / 7 * 4 / 5 * 2 / 3) ** 0.25
    assert corpus_bleu(hypotheses, references) == pytest.approx(expected, abs=1e-12)
    assert corpus_bleu(words("a b c"), [words("a b c")]) == 0.0
    assert sentence_bleu(words("a b c"), [words("a b c")])[0] == pytest.approx(0.1**0.25)


def test_corpus_bleu_is_not_the_mean_over_sentences():
    hypotheses, references = words("a b c d", "e f g h i j k l"), [words("a b c d"), words("x")]
    # words: 4 of 12; pairs: 3 of 10; triples: 2 of 8; four in a row: 1 of 6. 12 words for 5.
    expected = (4 / 12 * 3 / 10 * 2 / 8 * 1 / 6) ** 0.25
    assert corpus_bleu(hypotheses, references) == pytest.approx(expected, abs=1e-12)


@given(grouped())
def test_groups_do_not_see_each_other(case):
    sentences, groups = case
    together = self_bleu(sentences, np.array(groups))
    for label in set(groups):
        members = [i for i, name in enumerate(groups) if name == label]
        np.testing.assert_array_equal(together[members], self_bleu([sentences[i] for i in members]))


@given(st.lists(SENTENCES, min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_sentences_and_the_names_of_words_do_not_matter(sentences, random):
    scores, order = self_bleu(sentences), random.sample(range(len(sentences)), len(sentences))
    np.testing.assert_array_equal(self_bleu([sentences[i] for i in order]), scores[order])
    ids = [[10**12 - ord(word) for word in sentence] for sentence in sentences]
    np.testing.assert_array_equal(self_bleu(ids), scores)


@given(st.lists(SENTENCES, min_size=2, max_size=8), st.integers(0, 9))
def test_a_stranger_changes_no_match(sentences, length):
    strangers = [*sentences, ["z"] * length]
    before = overlap(sentences, np.zeros(len(sentences), dtype=np.int64)).matches
    after = overlap(strangers, np.zeros(len(strangers), dtype=np.int64)).matches
    np.testing.assert_array_equal(after, np.vstack([before, np.zeros((1, 4), dtype=np.int64)]))


@given(st.lists(SENTENCES, min_size=2, max_size=8), SENTENCES)
def test_another_sentence_never_lowers_a_match(sentences, added):
    before = overlap(sentences, np.zeros(len(sentences), dtype=np.int64)).matches
    after = overlap([*sentences, added], np.zeros(len(sentences) + 1, dtype=np.int64)).matches
    assert (after[:-1] >= before).all()


def test_nothing_gives_nothing():
    assert self_bleu([]).shape == sentence_bleu([], []).shape == (0,)


def test_memory_grows_with_the_text_and_not_with_the_pairs():
    def peak(count):
        sentences = np.random.default_rng(0).integers(0, 50, (count, 12)).tolist()
        tracemalloc.start()
        try:
            self_bleu(sentences)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)  # what is allocated once
    assert peak(4000) < 2.5 * peak(2000)  # four times as much, were pairs looked at


def test_a_sentence_alone_in_its_group_is_refused():
    with pytest.raises(
        ConfigError, match="sentence 2 is alone in group 7, and self-BLEU needs others beside it"
    ):
        self_bleu(words("a b", "a b", "a b"), [3, 3, 7])
    with pytest.raises(ConfigError, match="sentence 0 is alone"):
        self_bleu(words("a b c d"))


def test_groups_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"groups must label each of 3 sentences once, got shape \(2,\)"):
        self_bleu(words("a", "b", "c"), [0, 0])


def test_hypotheses_without_references_are_refused():
    with pytest.raises(DataError, match="got 1 list for 2 of them"):
        sentence_bleu(words("a", "b"), [words("a")])
    with pytest.raises(DataError, match="hypothesis 1 has no reference"):
        corpus_bleu(words("a", "b"), [words("a"), []])
    with pytest.raises(DataError, match="at least one hypothesis"):
        corpus_bleu([], [])


def test_what_would_silently_score_wrong_is_refused():
    with pytest.raises(DataError, match=r"list of words or of ids, got str.*Split"):
        self_bleu(["the cat", "the mat"])
    with pytest.raises(DataError, match=r"got str.*put a single reference into a list"):
        sentence_bleu(words("the cat"), words("the mat"))
    with pytest.raises(DataError, match=r"words \(str\) throughout, or ids \(int\) throughout, got int, str"):
        corpus_bleu(words("a b c d"), [[[1, 2, 3, 4]]])


def test_tensors_are_refused_since_equal_ones_differ_as_words(monkeypatch):
    monkeypatch.setattr(
        jaxtyping.config, "jaxtyping_disable", True
    )  # as for a user, whose types nobody checks
    with pytest.raises(DataError, match=r"got Tensor.*call tolist\(\) on an array"):
        self_bleu(torch.zeros(2, 5, dtype=torch.long))
    with pytest.raises(DataError, match="throughout, got Tensor"):
        self_bleu([list(torch.zeros(5)), list(torch.zeros(5))])


@pytest.mark.data
def test_real_sentences_equal_nltk_and_sacrebleu(shared_data):
    lines = (shared_data / "ptb" / "ptb.test.txt").read_text().splitlines()[:160]
    sentences, batches = words(*lines), [i // 20 for i in range(160)]
    np.testing.assert_allclose(self_bleu(sentences), self_by_nltk(sentences), **EXACT)
    np.testing.assert_allclose(self_bleu(sentences, batches), self_by_nltk(sentences, batches), **EXACT)
    references = [[sentence] for sentence in [*sentences[1:], sentences[0]]]
    assert corpus_bleu(sentences, references) == pytest.approx(by_sacrebleu(sentences, references), abs=1e-9)
