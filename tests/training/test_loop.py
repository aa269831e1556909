"""Algorithm 1: what an epoch does, what is recorded, and that a resumed run is an unbroken one."""

import copy
import math
from functools import cache

import pytest
import torch

from nnrs.batches import Windows
from nnrs.errors import ConfigError, DivergenceError
from nnrs.evaluation.evaluate import text_perplexity
from nnrs.models import MODELS, ModelConfig, build_model
from nnrs.policies.methods import METHODS, Material, PolicyConfig
from nnrs.schedules import Schedule
from nnrs.seeding import Random, Stream
from nnrs.synthetic import SyntheticLanguage
from nnrs.training.events import Callback
from nnrs.training.loop import Trainer, TrainingConfig
from nnrs.training.optimize import OptimizerConfig

LANGUAGE = SyntheticLanguage(concepts=8, synonyms=3)
WORDS = {word: index for index, word in enumerate(LANGUAGE.words)}
VOCAB = len(WORDS)


def text(sentences=150, step=1):
    lines = LANGUAGE.sentences(sentences, Random(3, Stream.TEXT, step))
    return torch.tensor([WORDS[word] for line in lines for word in (*line, "<eos>")], dtype=torch.int32)


TRAIN, VALID = text(), text(30, 2)


def material():
    return Material(
        train_ids=TRAIN,
        counts=torch.bincount(TRAIN.long(), minlength=VOCAB).double(),
        vectors=LANGUAGE.vectors(6).float(),
        protected=(0,),
        case_groups=torch.arange(VOCAB),
        unknown_id=0,
        seed=1,
    )


class Heard(Callback):
    def __init__(self):
        self.metrics, self.moments = [], []

    def epoch_start(self, record):
        self.moments.append(("start", record.epoch))

    def batch_end(self, record):
        self.moments.append(("beat", record.epoch))

    def epoch_end(self, metrics, timing):
        self.moments.append(("end", metrics.epoch))
        self.metrics.append(metrics)

    def fit_end(self, epochs):
        self.moments.append(("fit", epochs))


def make_trainer(
    method="ss-nnrs",
    kind="lstm",
    epochs=3,
    optimizer="sgd",
    annealing="cosine",
    validate=None,
    lr=None,
    weight_dropout=0.0,
    **settings,
):
    rates = {}
    if METHODS[method].predictions:
        rates["prediction_rate"] = Schedule("linear", 0.1, 0.5)
    if METHODS[method].proposal:
        rates["neighbor_rate"] = Schedule("linear", 0.1, 0.5)
    if METHODS[method].rules:
        settings.setdefault("k", 2)
    policy = PolicyConfig(method=method, **rates, **settings)
    config = ModelConfig(kind=kind, units=16, dropout=0.2, weight_dropout=weight_dropout, heads=2, context=8)
    heard = Heard()
    trainer = Trainer(
        model=build_model(config, VOCAB, Random(1, Stream.INITIALISATION)),
        policy=policy.build(material()),
        windows=Windows(TRAIN, batch_size=6, length=7, eos_id=0),
        validate=validate or (lambda model: text_perplexity(model, VALID, eos_id=0, streams=4).compute()),
        config=TrainingConfig(epochs=epochs, batch_size=6, bptt=7),
        optimizer_config=OptimizerConfig(name=optimizer, annealing=annealing, learning_rate=lr),
        seed=1,
        exact=policy.unroll == "exact",
        callbacks=[heard],
    )
    return trainer, heard


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_learns_the_synthetic_language(kind):
    trainer, heard = make_trainer("mle", kind, epochs=6, optimizer="adamw", lr=0.03)
    uniform = trainer.validate(trainer.model)
    assert uniform == pytest.approx(VOCAB, rel=0.2)
    trainer.fit()
    shares = (torch.bincount(TRAIN.long(), minlength=VOCAB) + 1) / (len(TRAIN) + VOCAB)
    unigram = math.exp(-shares[VALID.long()].log().mean().item())
    assert heard.metrics[-1].valid_perplexity < 0.9 * unigram  # so it has learned from the history
    assert heard.metrics[-1].valid_perplexity > math.exp(LANGUAGE.entropy_rate()) * 0.95


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_and_records_its_rates(method):
    trainer, heard = make_trainer(method, epochs=3, lr=2.0)
    assert trainer.fit()
    first, last = heard.metrics[0], heard.metrics[-1]
    assert last.valid_perplexity < first.valid_perplexity
    uses = METHODS[method]
    assert [m.prediction_rate for m in heard.metrics] == pytest.approx(
        [0.1, 0.3, 0.5] if uses.predictions else [0] * 3
    )
    assert [m.neighbor_rate for m in heard.metrics] == pytest.approx(
        [0.1, 0.3, 0.5] if uses.proposal else [0] * 3
    )
    replaced = last.effective_prediction_rate + last.effective_neighbor_rate
    assert last.effective_rate == pytest.approx(replaced)
    assert last.passes == (2.0 if uses.predictions else 1.0)


def test_the_effective_rate_is_the_rate_times_the_share_that_can_be_replaced():
    trainer, heard = make_trainer("nnrs", epochs=2, lr=1.0)
    trainer.fit()
    inputs = torch.cat([window.inputs.flatten() for window in trainer.windows])
    share = trainer.policy.replaceable[inputs].double().mean().item()
    for metrics in heard.metrics:
        expected = metrics.neighbor_rate * share
        assert abs(metrics.effective_rate - expected) < 4 * math.sqrt(expected / len(inputs))
    assert share < 0.95  # <eos> is protected, so the two differ


def test_moments_come_in_order():
    _, heard = trained = make_trainer("mle", epochs=2, lr=1.0)
    trained[0].fit()
    moments = [moment for moment in heard.moments if moment[0] != "beat"]
    assert moments == [("start", 0), ("end", 0), ("start", 1), ("end", 1), ("fit", 2)]
    assert ("beat", 0) in heard.moments


def test_the_temperature_rule_hears_each_epochs_validation():
    script = iter([20.0, 30.0, 10.0, 9.0])
    trainer, heard = make_trainer("nnrs", epochs=4, validate=lambda model: next(script), lr=1.0)
    trainer.fit()
    # V = 25: 20 improves, 30 does not, 10 does; each epoch is trained at the τ that the ones before led to
    up = 0.5 + abs(0.5 - (2**0.5 - 1))
    down = up - abs(up - (2**up - 1))
    again = down + abs(down - (2**down - 1))
    assert [m.temperature for m in heard.metrics] == pytest.approx([0.5, up, max(down, 0.5), max(again, 0.5)])


def test_two_methods_with_one_seed_share_initialisation_and_dropout():
    first, second = make_trainer("mle")[0], make_trainer("ss-nnrs")[0]
    pairs = zip(first.model.parameters(), second.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    masks = [
        trainer.model.draw_masks(2, 3, Random(trainer.seed, Stream.DROPOUT, 5)) for trainer in (first, second)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*masks, strict=True))


CASES = {
    "exact": {"method": "ss-nnrs", "unroll": "exact", "lr": 2.0},
    "effective": {"method": "ss-nnrs", "rule": "effective", "lr": 2.0},
    "gsns": {"method": "gsns", "optimizer": "adamw", "lr": 0.01},
    "centroid": {"method": "nnrs", "annealing": "plateau", "draw": "centroid", "lr": 2.0},
    "transformer": {"method": "tprs", "kind": "transformer", "optimizer": "adamw", "lr": 0.01},
    "gru": {"method": "ss", "kind": "gru", "predict": "greedy", "lr": 2.0},
    "weights dropped": {"method": "ss-nnrs", "weight_dropout": 0.4, "lr": 2.0},
}


@cache
def unbroken_run(case):
    """A run trained to its end, with what was heard of it."""
    trainer, heard = make_trainer(**CASES[case])
    trainer.fit()
    return trainer, heard


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("stop_after", [3, 37, 45])
def test_a_run_stopped_at_any_window_and_resumed_is_bitwise_the_unbroken_one(case, stop_after):
    unbroken, heard = unbroken_run(case)

    stopped, early = make_trainer(**CASES[case])
    countdown = iter(range(stop_after))
    stopped.should_stop = lambda: next(countdown, None) is None
    saved = []
    stopped.save = lambda live: saved.append(copy.deepcopy(live.snapshot()))
    assert not stopped.fit()
    assert stopped.live.position.window > 0  # in the middle of an epoch

    resumed, late = make_trainer(**CASES[case])
    resumed.live.restore(*saved[-1])
    assert resumed.fit()
    assert early.metrics + late.metrics == heard.metrics
    (ours, state), (theirs, expected) = resumed.live.snapshot(), unbroken.live.snapshot()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert state == expected


def test_a_loss_that_is_not_finite_stops_the_run_before_anything_is_saved():
    trainer, _ = make_trainer("mle", lr=1.0)
    saved = []
    trainer.save = lambda live: saved.append(live.position.epoch)
    with torch.no_grad():
        trainer.model.output_bias[3] = torch.nan
    with pytest.raises(DivergenceError, match=r"no longer finite in epoch 0.*--learning-rate"):
        trainer.fit()
    assert saved == []


def test_an_interruption_does_not_save_a_ruined_model():
    trainer, _ = make_trainer("mle", lr=1.0)
    saved = []
    trainer.save = lambda live: saved.append(live.position.epoch)
    trainer.should_stop = lambda: True
    with torch.no_grad():
        trainer.model.output_bias[3] = torch.nan
    with pytest.raises(DivergenceError):
        trainer.fit()
    assert saved == []


def test_adamw_leaves_the_neighbor_logits_alone_where_no_token_was_replaced():
    trainer, _ = make_trainer("gsns", optimizer="adamw", lr=0.1, epochs=1)
    first = trainer.policy.learned["neighbor_logits"].detach().clone()
    trainer.train_window(trainer.windows[0], trainer.policy.rates(0.0))
    moved = (trainer.policy.learned["neighbor_logits"] != first).any(-1)
    assert moved.any()
    assert set(moved.nonzero()[:, 0].tolist()) <= set(trainer.windows[0].inputs.flatten().tolist())


def test_learning_rates():
    cosine = OptimizerConfig(learning_rate=8.0)
    # ½(1 + cos(π e/4)): 1, (1 + √½)/2, ½, (1 − √½)/2
    rates = [cosine.rate_for(epoch, 4, drops=9) for epoch in range(4)]
    assert rates == pytest.approx([8.0, 6.828427, 4.0, 1.171573])
    plateau = OptimizerConfig(learning_rate=8.0, annealing="plateau")
    assert [plateau.rate_for(7, 40, drops) for drops in (0, 1, 2)] == [8.0, 2.0, 0.5]
    assert OptimizerConfig(annealing="constant").rate_for(39, 40, 3) == 20.0
    assert OptimizerConfig(name="adamw").learning_rate == 0.001


def test_plateau_counts_the_epochs_without_improvement():
    script = iter([20.0, 21.0, 19.0, 19.0, 18.0])
    trainer, heard = make_trainer(
        "mle", epochs=5, annealing="plateau", validate=lambda model: next(script), lr=4.0
    )
    trainer.fit()
    assert [m.learning_rate for m in heard.metrics] == [4.0, 4.0, 1.0, 1.0, 0.25]
    assert trainer.live.position.best_epoch == 4


def test_bad_settings_are_refused():
    for bad in ({"epochs": 0}, {"batch_size": 0}, {"precision": "fp8"}):
        with pytest.raises(ConfigError):
            TrainingConfig(**bad)
    with pytest.raises(ConfigError, match="positive"):
        OptimizerConfig(learning_rate=0.0)
    with pytest.raises(ConfigError, match="Did you mean 'cosine'"):
        OptimizerConfig(annealing="cosin")
