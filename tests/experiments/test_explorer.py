"""What a page explores without the model: the run's own neighbors, and draws that anyone can carry out."""

import math

import pytest
import torch

import nnrs
from nnrs.experiments import explorer as made_by
from nnrs.experiments.config import RunConfig
from nnrs.experiments.explorer import kept_words, make_explorer, readable_sentences
from nnrs.experiments.run import start
from nnrs.neighbors.table import NeighborTable
from nnrs.vocabulary import Vocabulary

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of a small text whose first word is a script: with neighbors of two kinds, bigrams of two, without."""
    folder = tmp_path_factory.mktemp("runs")
    words = ["<script>alert(1)</script>", *(f"w{index}" for index in range(29))]
    lines = [
        " ".join(words[(7 * row + step * step) % 30] for step in range(12 + row % 3)) for row in range(300)
    ]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    policies = {name: {"method": name} for name in ("ss-nnrs", "mle", "tprs", "gsns")}
    policies["tprs-previous"] = {"method": "tprs", "transition_row": "previous"}
    for name, policy in policies.items():
        settings = {
            "data": {"source": str(folder / "text.txt")},
            "policy": policy,
            "model": {"preset": "tiny", "units": 8},
            "training": {"epochs": 1, "batch_size": 8, "bptt": 10},
        }
        start(RunConfig.from_dict(settings), folder / name, CPU).finish()
    return folder


@pytest.fixture(scope="module")
def explorer(runs):
    return make_explorer(runs / "ss-nnrs")


def test_its_neighbors_are_those_of_the_runs_table(runs, explorer):
    loaded = nnrs.load(runs / "ss-nnrs")
    assert len(explorer["neighbors"]) == int(loaded.table.replaceable.sum())
    for place, (near, similar) in enumerate(
        zip(explorer["neighbors"], explorer["similarities"], strict=True)
    ):
        row = loaded.table.row(loaded.vocabulary.ids[explorer["words"][place]], 1.0)
        assert [explorer["words"][index] for index in near] == [loaded.vocabulary.words[i] for i, _, _ in row]
        assert similar == pytest.approx([similarity for _, similarity, _ in row], abs=5e-7)


def test_it_says_which_run_it_comes_from(explorer):
    assert (explorer["method"], explorer["corpus"]) == ("ss-nnrs", "text")
    assert explorer["table"]["vectors"] == "corpus"
    assert explorer["table"]["k"] == 5  # log2 of 33 words


def test_its_sentences_are_of_the_training_text_with_a_draw_for_each_word(runs, explorer):
    text = (runs / "text.txt").read_text().splitlines()
    assert len(explorer["sentences"]) == made_by.SENTENCES
    for sentence in explorer["sentences"]:
        assert " ".join(sentence["words"]) in text
        for name in ("rows", "predictions", "prediction_draws", "neighbor_draws", "coins", "picks"):
            assert len(sentence[name]) == len(sentence["words"])
        draws = [
            *sentence["prediction_draws"],
            *sentence["neighbor_draws"],
            *sentence["coins"],
            *sentence["picks"],
        ]
        assert all(0.0 <= draw <= 1.0 for draw in draws)
        assert len(set(draws)) == len(draws)
        for word, row in zip(sentence["words"], sentence["rows"], strict=True):
            assert row is None or (explorer["words"][row] == word and explorer["neighbors"][row])


def test_it_is_the_same_every_time(runs, explorer):
    assert make_explorer(runs / "ss-nnrs") == explorer


def test_what_its_numbers_are_is_said(runs, explorer):
    columns = {name: make_explorer(runs / name)["column"] for name in ("tprs", "gsns")}
    assert {"ss-nnrs": explorer["column"], **columns} == {
        "ss-nnrs": "cosine",
        "tprs": "log p",
        "gsns": "logit",
    }


@pytest.mark.parametrize("name", ["mle", "tprs-previous"])  # whose rows are those of the word before
def test_a_run_without_neighbors_of_its_words_has_nothing_to_explore(runs, name):
    assert make_explorer(runs / name) is None


def test_the_most_frequent_words_are_kept_and_those_that_are_wanted(monkeypatch):
    monkeypatch.setattr(made_by, "MOST_WORDS", 2)
    words = ("the", "a", "<eos>", "b", "c", "<unk>")
    vocabulary = Vocabulary(words=words, counts=(9, 8, 7, 6, 5, 0))
    close = torch.tensor([[0.9], [0.8], [-math.inf], [0.7], [0.6], [-math.inf]])
    table = NeighborTable(torch.tensor([[1], [0], [2], [4], [3], [5]]), close)
    assert kept_words(table, vocabulary, [2, 4, 0]) == [
        0,
        1,
        4,
    ]  # <eos> has no neighbors; 3 is rare and unwanted


def test_a_text_of_short_lines_gives_short_sentences():
    vocabulary = Vocabulary(words=("a", "<eos>", "<unk>"), counts=(4, 2, 0))
    ids = torch.tensor([0, 0, 1, 0, 0, 1])
    found = readable_sentences(ids, vocabulary, torch.tensor([True, False, False]))
    assert [line.tolist() for line in found] == [[0, 0], [0, 0]]
