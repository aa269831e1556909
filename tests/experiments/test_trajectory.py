"""A trajectory is what training did: the window, the rates, τ and the draws of the last epoch."""

import pytest
import torch
from tests.digits import translated, write_digits

from nnrs.experiments.options import configure
from nnrs.experiments.run import Run, start
from nnrs.experiments.trajectory import WINDOW, trajectory_of

CPU = torch.device("cpu")
SIZE = {"units": 8, "layers": 1, "batch_size": 20, "epochs": 3, "learning_rate": 0.003, "optimizer": "adamw"}


def trained(options, path) -> tuple[Run, list]:
    """A run, and what its policy chose for each window of its last epoch."""
    run = start(configure({**SIZE, "schedule": "linear", **options}), path, CPU)
    chosen, choose = [], run.parts.policy.choose

    def overheard(window, rates, random):
        chosen.append((window, choose(window, rates, random)))
        return chosen[-1][1]

    run.parts.policy.choose = overheard
    run.finish()
    del run.parts.policy.choose
    return run, chosen[-len(run.parts.windows) :]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A parallel text, and another one with many neighbors of each word."""
    folder = tmp_path_factory.mktemp("texts")
    lines = [" ".join(f"w{(row * 3 + n * n) % 23}" for n in range(9)) for row in range(240)]
    (folder / "words.txt").write_text("\n".join(lines) + "\n")
    parallel = write_digits(folder / "digits", longest=9)
    return {
        "text": {"data": str(folder / "words.txt"), "bptt": 8, "batch_size": 4},
        "translation": {
            "data": str(parallel),
            "task": "translate",
            "from_language": "num",
            "batch_size": 110,
        },
    }


def words_of(run, ids):
    return run.parts.text.vocabulary.decode(ids.tolist())


@pytest.mark.parametrize("task", ["text", "translation"])
def test_its_neighbors_are_those_that_training_took(task, texts, tmp_path):
    rates = {"method": "nnrs", "neighbor_rate": "0:0.6", "k": 8}
    moving = {
        "rule": "effective"
    }  # τ moves with every epoch, and with it what is drawn: the last epoch's counts
    run, chosen = trained({**texts[task], **rates, **moving}, tmp_path / "run")
    window, choice = chosen[WINDOW]
    length = int(window.scored[0].sum())
    shown = trajectory_of(run)
    assert shown["gold"] == words_of(run, window.inputs[0, :length])
    took = choice.takes_neighbor[0, :length].tolist()
    assert shown["sources"] == ["neighbor" if near else "gold" for near in took]
    assert {*shown["sources"]} == {"gold", "neighbor"}
    read = torch.where(choice.takes_neighbor, choice.neighbors, choice.gold)
    assert shown["inputs"] == words_of(run, read[0, :length])


def test_a_translations_is_of_a_pair_and_no_longer_than_its_target(texts, tmp_path):
    run, chosen = trained(
        {**texts["translation"], "method": "ss", "prediction_rate": "0:0.5"}, tmp_path / "run"
    )
    shown, (_, choice) = trajectory_of(run), chosen[WINDOW]
    assert shown["gold"] == ["<eos>", *translated(shown["translates"])]
    assert len({len(shown[name]) for name in ("gold", "inputs", "sources", "neighbors", "predictions")}) == 1
    took = choice.with_gold_start().takes_prediction[0, : len(shown["gold"])].tolist()
    assert shown["sources"] == ["prediction" if own else "gold" for own in took]
    assert "prediction" in shown["sources"]


def test_text_translates_nothing(texts, tmp_path):
    run = start(configure({**SIZE, **texts["text"], "method": "mle"}), tmp_path / "run", CPU)
    assert trajectory_of(run)["translates"] is None
