"""Which runs a fleet takes and how many, what becomes of one that diverges, and what the fleet says of a text."""

import gc
import subprocess
import sys
import weakref

import pytest
import torch
from tests.training.fleet_cases import (
    CLOSE,
    MOVING,
    SEED,
    TINY,
    assert_same_losses,
    assert_same_run,
    fit_fleet,
    fit_plain,
    make_trainer,
    plainly,
    text,
    valid_windows,
)

from nnrs.batches import Windows
from nnrs.errors import ConfigError, DivergenceError
from nnrs.evaluation.evaluate import text_nats
from nnrs.models import ModelConfig, build_model
from nnrs.seeding import Random, Stream
from nnrs.training import fleet as fleet_module
from nnrs.training import loop
from nnrs.training.agreement import BATCHED
from nnrs.training.fleet import Fleet, affordable
from nnrs.training.fleet_cells import CELLS
from nnrs.training.squad import Squad

pytestmark = pytest.mark.usefixtures("full_precision")


# Runs that diverge.


@pytest.fixture
def beats(monkeypatch):
    """The loss is looked at after every window."""
    monkeypatch.setattr(loop, "BEAT", 1)


def poison(trainer):
    """An infinite loss with finite gradients: a word of the text becomes impossible."""
    with torch.no_grad():
        trainer.model.output_bias[trainer.windows[0].targets[0, 0]] = -torch.inf


def test_a_run_that_diverges_is_left_where_it_was_and_the_others_go_on(device, beats):
    ill, well, theirs = (make_trainer(name, device, epochs=2) for name in ("mle", "tprs", "tprs"))
    saved, parameters, beat = [], [], ill.beat
    for trainer in (ill, well):
        trainer.save = trainer.save_best = lambda live, trainer=trainer: saved.append(trainer)
    poison(ill)

    def heard(epoch):
        parameters.append(ill.model.embedding.weight.detach().clone())
        beat(epoch)

    ill.beat = heard
    fleet, finished, losses = fit_fleet([ill, well], device)
    assert finished
    assert list(fleet.failures) == [0]
    assert isinstance(fleet.failures[0], DivergenceError)
    assert "training loss is no longer finite in epoch 0" in str(fleet.failures[0])
    assert len(parameters) == 1  # its loss is not looked at again
    assert torch.equal(ill.model.embedding.weight, parameters[0])
    assert parameters[0].isfinite().all()  # so that a step would have moved them
    assert len(saved) > 1
    assert all(trainer is well for trainer in saved)
    assert_same_losses(losses[1], fit_plain(theirs))
    assert_same_run(well, theirs)


@pytest.mark.parametrize("bias", [torch.nan, 1e5])  # no loss at all, or one of more nats than exp can take
def test_a_run_whose_last_step_ruined_it_fails_at_validation(device, bias):
    well, ill = make_trainer("nnrs centroid", device), make_trainer("nnrs targets", device)
    ill.save = ill.save_best = lambda live: pytest.fail("a ruined run was saved")
    beat = ill.beat

    def ruined(epoch):
        beat(epoch)  # finds nothing wrong
        with torch.no_grad():
            ill.model.output_bias[0] = bias
        if device == "cuda":
            torch.cuda.synchronize()

    ill.beat = ruined
    fleet, finished, _ = fit_fleet([well, ill], device)
    assert finished
    assert list(fleet.failures) == [1]
    assert "validation perplexity is no longer finite" in str(fleet.failures[1])
    assert_same_run(well, plainly("nnrs centroid", device)[0])


# Scoring, and what is refused.


@pytest.mark.parametrize(
    ("names", "streams"),
    [(("mle", "tprs"), 1), (("mle", "tprs"), 3), (("gru gsns", "gru ss-nnrs"), 2)],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:RNN module weights")  # which cuDNN reads from the fleet's memory here
def test_every_token_of_a_text_has_the_loss_that_evaluation_gives_it(names, streams, device):
    trainers = [make_trainer(name, device) for name in names]
    ids = text(TINY, 5, 2)  # the last window is shorter, or the last rows are
    windows = Windows(ids, batch_size=streams, length=2, eos_id=0, pad_remainder=True).to(device)
    fleet = Fleet(trainers, valid_windows(device))
    for _ in range(2):
        expected = [text_nats(t.model, ids, eos_id=0, streams=streams)[0].cpu() for t in trainers]
        for found, losses in zip(fleet.losses(windows), expected, strict=True):
            torch.testing.assert_close(found.double(), losses, **CLOSE)
        assert not torch.allclose(*expected, rtol=1e-4)
        with torch.no_grad():
            trainers[0].model.output_bias[ids[0]] += 1.0  # the model as it stands now


def further(trainer):
    trainer.live.position.step = 1


@pytest.mark.parametrize(
    ("topic", "name", "change"),
    [
        ("architecture", "three layers", None),
        ("architecture", "untied nnrs", None),
        ("training", "nnrs", None),
        ("optimizer", "adamw gsns", lambda trainer: setattr(trainer, "config", make_trainer("mle").config)),
        (
            "the text they are trained on",
            "ss greedy",
            lambda trainer: setattr(trainer, "windows", valid_windows()),
        ),
        ("vocabulary", "ss greedy", lambda trainer: setattr(trainer.model, "vocab_size", 24)),
        ("step", "ss greedy", further),
    ],
)
def test_runs_that_disagree_are_refused_by_name(topic, name, change):
    other = make_trainer(name)
    if change:
        change(other)
    with pytest.raises(ConfigError, match=f"the runs of a fleet must agree in {topic}(: .* is not |[.])"):
        Fleet([make_trainer("nnrs centroid"), other], valid_windows())


def test_a_fleet_has_a_cell_for_every_model_that_is_sent_to_it():
    assert tuple(CELLS) == BATCHED


def test_a_transformer_is_refused():
    trainer = make_trainer("mle")
    config = ModelConfig(kind="transformer", units=8, heads=2, dropout=0.0)
    trainer.model = build_model(config, TINY.vocab, Random(1, Stream.INITIALISATION))
    with pytest.raises(ConfigError, match="a fleet trains lstm, gru, highway models, not 'transformer'"):
        Fleet([trainer], valid_windows())


def test_neither_the_library_nor_its_command_line_imports_triton():
    modules = "nnrs, nnrs.cli.main, nnrs.cli.train, nnrs.experiments.together, nnrs.training.loop"
    code = f"import sys, {modules}; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# How many there is room for.


@pytest.mark.gpu
@pytest.mark.parametrize("names", [("mle",), MOVING, ("adamw ss-nnrs", "adamw gsns")], ids=str)
def test_small_models_are_all_affordable_and_trying_it_trains_nothing(names):
    trainers = [make_trainer(name, "cuda") for name in names]
    assert affordable(trainers, valid_windows("cuda")) == len(names)
    fit_fleet(trainers, "cuda")
    for name, trainer in zip(names, trainers, strict=True):
        assert_same_run(trainer, plainly(name, "cuda")[0])


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (1000, 6),  # 900 are there to be used: 100 for the first, 150 for each of five more, 850 in all
        (900, 5),  # of 810: 100 + 4 x 150 = 700
        (100, 1),  # even where one does not fit: training it will say so
    ],
)
def test_as_many_runs_are_affordable_as_the_costliest_two_say(free, expected, monkeypatch):
    taken = {("ss-nnrs",): 100, ("ss-nnrs", "gsns"): 250}
    trainers = [make_trainer(name) for name in ("mle", "gsns", "ss-nnrs", "nnrs", "tprs", "unigram")]
    names = {number: name for name, number in SEED.items()}

    def peak(costly, valid, device):
        return taken[tuple(names[trainer.seed] for trainer in costly)]

    monkeypatch.setattr(fleet_module, "_peak_bytes", peak)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free - 30, 10**6))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)  # 30 of the reserved are free, too
    assert affordable(trainers, valid_windows()) == expected


def test_one_run_is_affordable_where_two_do_not_fit(monkeypatch):
    def full(costly, valid, device):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(fleet_module, "_peak_bytes", full)
    assert affordable([make_trainer("mle"), make_trainer("nnrs")], valid_windows()) == 1


def test_a_squad_is_freed_as_soon_as_it_is_let_go(device):
    trainers = [make_trainer("ss-nnrs", device)]
    squad = Squad(trainers, valid_windows(device))
    squad.rehearse()
    gone = weakref.ref(squad)
    gc.disable()
    try:
        del squad
        assert gone() is None  # its memory would otherwise be counted against the next fleet
    finally:
        gc.enable()


def test_runs_that_predict_in_different_ways_stand_in_different_squads():
    names = ("ss", "mle", "ss two passes", "nnrs", "ss-nnrs", "ss-nnrs exact", "weights dropped alone")
    assert fleet_module._squads([make_trainer(name) for name in names]) == [[0, 4], [1, 3], [2], [5], [6]]
