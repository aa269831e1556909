"""The synthetic language is its own oracle, over the ids of whoever learned it."""

import pytest
import torch

from nnrs.corpus import open_corpus
from nnrs.experiments.config import RunConfig
from nnrs.experiments.oracle import exact_language
from nnrs.experiments.run import start
from nnrs.experiments.scoring import evaluate_run
from nnrs.experiments.subject import Request
from nnrs.synthetic import SyntheticLanguage
from nnrs.vocabulary import EOS, UNK, Vocabulary

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.from_corpus(open_corpus("synthetic"))


def test_the_exact_language_speaks_in_the_ids_of_a_vocabulary(vocabulary):
    language, oracle = SyntheticLanguage(), exact_language(vocabulary)
    assert vocabulary.words[: len(language.words)] != language.words  # another order
    found = oracle(torch.arange(len(vocabulary))[None])[0].exp()
    torch.testing.assert_close(found.sum(1), torch.ones(len(vocabulary)).double())
    for row, before in enumerate(language.words[:5]):
        for column, after in enumerate(language.words):
            expected = language.transition_probabilities[row, column].item()
            here = found[vocabulary.ids[before], vocabulary.ids[after]].item()
            assert here == pytest.approx(expected, abs=1e-12)
    assert (found[:, vocabulary.unk_id] == 0).all()  # never said
    assert torch.equal(found[vocabulary.ids[UNK]], found[vocabulary.ids[EOS]])


def test_a_vocabulary_without_all_its_words_has_no_exact_language():
    assert exact_language(Vocabulary.from_corpus(open_corpus("synthetic"), max_vocabulary=100)) is None


@pytest.mark.parametrize(
    ("source", "words", "exact"),
    [("synthetic", None, True), ("synthetic:4000", None, True), ("synthetic", 100, False)],
    ids=["all its words", "fewer sentences", "too few words"],
)
def test_a_run_on_the_synthetic_language_is_measured_against_it(source, words, exact, tmp_path):
    settings = {
        "data": {"source": source, "max_vocabulary": words},
        "policy": {"method": "mle"},
        "model": {"preset": "tiny", "units": 16},
        "training": {"epochs": 1, "batch_size": 80},
    }
    start(RunConfig.from_dict(settings), tmp_path / "run", CPU).finish()
    heard = []
    request = Request(metrics=("exposure",), sentences=200, prefix=3, length=10)
    made = evaluate_run(tmp_path / "run", CPU, request, heard.append)
    found = [score for score in made if score.metric.startswith("ex-acc-err")]
    told = [remark for remark in heard if "accumulated errors left out" in remark]
    assert (len(found), len(told)) == ((3, 0) if exact else (0, 1))
    for score in found:
        assert "|oracle:exact|" in score.signature
        assert score.interval[0] <= score.value <= score.interval[1]
        assert abs(score.value) < 20
    if exact:  # most of its regret is there whatever the history: it has barely begun to learn
        assert found[-1].curve["oracle_regret"][0] > 0.1
