"""Text of any program is scored: against references line by line, and sentences against each other."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnrs.errors import ConfigError, DataError
from nnrs.experiments.text_scores import TEXT_METRICS, Texts, WordSpace, texts_of_files, wmd_along
from nnrs.metrics.wmd import WordVectors

RIGHT = "the cat sat on the mat"
WRONG = "a dog ran off quite fast"


@pytest.fixture
def files(tmp_path):
    def write(text, references=None, vectors=None):
        (tmp_path / "made.txt").write_text("".join(f"{line}\n" for line in text))
        gold = None
        if references is not None:
            gold = tmp_path / "gold.txt"
            gold.write_text("".join(f"{line}\n" for line in references))
        return texts_of_files(tmp_path / "made.txt", gold, vectors)

    return write


def score(texts, metric, index=0):
    return list(TEXT_METRICS[metric](texts))[index]


def test_bleu_is_in_percent_with_an_interval_over_sentences(files):
    texts = files([RIGHT, WRONG], [RIGHT, RIGHT])  # one all right, one all wrong
    mean, whole = TEXT_METRICS["bleu"](texts)
    assert (mean.metric, whole.metric) == ("bleu4", "corpus-bleu4")
    assert mean.value == pytest.approx(50.0)
    # Of two drawn with replacement, a quarter are twice the wrong one and a quarter twice the right one.
    assert mean.interval == pytest.approx((0.0, 100.0))
    assert whole.interval == pytest.approx((0.0, 100.0))
    # Together: 6 of 12 words match, 5 of 10 pairs, 4 of 8 triples, 3 of 6 quadruples.
    assert whole.value == pytest.approx(50.0)
    assert mean.signature == "n:2|smooth:1|text:made.txt|references:gold.txt|v:0.1.0"
    assert whole.signature.startswith("n:2|smooth:floor0.1|")


def test_words_without_a_quadruple_leave_corpus_bleu_and_its_interval_at_zero(files):
    whole = score(files(["the cat", "a dog"], ["the cat", "a dog"]), "bleu", 1)
    assert (whole.value, whole.interval) == (0.0, (0.0, 0.0))


def test_one_sentence_has_no_interval(files):
    mean, whole = TEXT_METRICS["bleu"](files([RIGHT], [RIGHT]))
    assert (mean.value, mean.interval) == (pytest.approx(100.0), None)
    assert whole.interval is None


def test_self_bleu_leaves_the_remainder_of_the_minibatches_out(files):
    half = [RIGHT] * 20 + [f"{letter} {letter}{letter}" for letter in "abcdefghijklmnopqrst"]
    made = score(files([*half, RIGHT, WRONG, WRONG]), "self-bleu")
    assert made.signature == "n:40|smooth:1|within:batch20|text:made.txt|v:0.1.0"
    assert made.value == pytest.approx(50.0)  # a minibatch of one sentence, and one of nothing in common
    assert made.interval == pytest.approx((0.0, 100.0))
    few = score(files([RIGHT, RIGHT, WRONG]), "self-bleu")
    assert few.signature.startswith("n:3|smooth:1|within:batch3|")
    assert few.interval is None  # one minibatch
    with pytest.raises(DataError, match="needs at least 2, got 1"):
        score(files([RIGHT]), "self-bleu")


def test_word_movers_distance_takes_the_words_that_have_vectors(files, tmp_path):
    (tmp_path / "four.vec").write_text("east 1 0\nnorth 0 1\nwest -1 0\nnowhere 0 0\n")
    vectors = str(tmp_path / "four.vec")
    texts = files(["east", "east what", "nowhere"], ["west", "north", "east"], vectors)
    mean, similarity, scaled = TEXT_METRICS["wmd"](texts)
    assert (
        mean.signature == "n:2|wmd-vectors:four|text:made.txt|references:gold.txt|v:0.1.0"
    )  # the third has none
    assert mean.value == pytest.approx((2 + 1) / 2)  # 1 − cos 180°, 1 − cos 90°
    assert (similarity.value, scaled.value) == (pytest.approx(-0.5), pytest.approx(0.25))
    assert (mean.interval, scaled.interval) == (pytest.approx((1.0, 2.0)), pytest.approx((0.0, 0.5)))
    among = score(texts, "self-wmd")
    assert (among.value, among.interval) == (0.0, None)  # the two easts; the third is nobody's other
    assert among.signature.startswith("n:2|wmd-vectors:four|within:batch3|")
    for metric in ("wmd", "self-wmd"):
        with pytest.raises(DataError, match="no two sentences can be compared"):
            score(files(["nowhere", "what"], ["east", "east"], vectors), metric)


def test_the_interval_of_self_wmd_is_that_of_its_value_however_many_of_a_minibatch_have_words(
    files, tmp_path
):
    (tmp_path / "two.vec").write_text("east 1 0\nnorth 0 1\n")
    few = ["east", "north", *["what"] * 18]  # two of twenty can be compared, at distance 1
    many = ["east"] * 10 + ["north"] * 10  # twenty of twenty, each with 10 of its 19 others at distance 1
    made = score(files([*few, *many], vectors=str(tmp_path / "two.vec")), "self-wmd")
    each = 10 / 19
    assert made.value == pytest.approx((2 * 1.0 + 20 * each) / 22)
    assert made.interval == pytest.approx((each, 1.0))
    # Of two minibatches the ends are each alone, whatever its weight. Of forty the mean is near the fuller ones'.
    some = score(files([*few, *many] * 20, vectors=str(tmp_path / "two.vec")), "self-wmd")
    assert some.interval[0] < some.value < some.interval[1] < (1.0 + each) / 2


@given(
    made=st.lists(st.sampled_from("abc"), min_size=1, max_size=9),
    gold=st.lists(st.sampled_from("abc"), min_size=1, max_size=9),
)
def test_of_the_same_sentence_again_and_again_the_interval_of_every_score_is_its_value(made, gold):
    vectors = WordVectors(
        np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=np.float32), np.ones(3, dtype=bool)
    )
    space = WordSpace({"a": 0, "b": 1, "c": 2}, vectors, "three")
    texts = Texts([made] * 40, lambda count, parts: "", [gold] * 40, lambda: space)  # two minibatches
    for metric in TEXT_METRICS.values():
        for each in metric(texts):
            assert each.interval == pytest.approx((each.value, each.value)), each.metric


def test_distances_are_told_from_the_first_word_on_as_soon_as_both_have_one(files, tmp_path):
    (tmp_path / "three.vec").write_text("east 1 0\nnorth 0 1\nwest -1 0\n")
    made, gold = ["what what", "east east", "what north"], ["east east", "west east", "east what"]
    space = files(made, gold, str(tmp_path / "three.vec")).space()
    curve = wmd_along(space, [line.split() for line in made], [line.split() for line in gold])
    # First words: only east to west, 2. Two words: east, east to west, east is 1, north to east 1; never "what what".
    assert curve["wmd"] == pytest.approx([2.0, 1.0])
    assert curve["compared"] == [1.0, 2.0]
    assert (
        curve["wmd_low"] == curve["wmd_high"] == [None, None]
    )  # a sample may have nothing but the first pair
    sure = wmd_along(space, [["east"], ["east"]], [["west"], ["north"]])
    assert (sure["wmd_low"], sure["wmd_high"]) == ([1.0], [2.0])
    one = wmd_along(space, [["what", "east"]], [["east", "north"]])
    assert one["wmd"] == [
        None,
        pytest.approx(0.5),
    ]  # nothing to compare at first; then half of east has to move
    assert (one["wmd_low"], one["wmd_high"]) == ([None, None], [None, None])  # one sentence has no interval
    with pytest.raises(DataError, match="no two sentences can be compared"):
        wmd_along(space, [["what"]], [["east"]])


def test_what_is_missing_is_named(files, tmp_path):
    with pytest.raises(ConfigError, match="bleu compares with gold text: add --references"):
        score(files([RIGHT, WRONG]), "bleu")
    with pytest.raises(ConfigError, match=r"wmd needs word vectors\. Name some with --vectors"):
        score(files([RIGHT], [RIGHT]), "wmd")
    with pytest.raises(DataError, match=r"made\.txt has 2 lines and .*gold\.txt has 1"):
        files([RIGHT, WRONG], [RIGHT])
    for blank in ([], ["", " "]):
        with pytest.raises(DataError, match=r"made\.txt has no words\. Give one sentence a line\."):
            files(blank)
    with pytest.raises(DataError, match=r"gold\.txt has no words"):
        files([RIGHT, WRONG], ["", ""])
    with pytest.raises(DataError, match=r"absent\.txt: cannot be read"):
        texts_of_files(tmp_path / "absent.txt", None, None)


def test_an_empty_line_is_a_sentence_that_scores_nothing(files):
    made = score(files(["", RIGHT], [RIGHT, RIGHT]), "bleu")
    assert made.value == pytest.approx(50.0)
    assert not math.isnan(made.interval[0])
