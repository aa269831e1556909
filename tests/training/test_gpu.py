"""On a GPU the plain loop never waits for the device, and trains what it trains on the CPU.

LSTM and GRU language models train as a fleet there: see test_fleet.py. Translators do not.
"""

import copy

import pytest
import torch

from nnrs.batches import Windows
from nnrs.models import ModelConfig, build_model
from nnrs.pairs import Pairs, Sentences
from nnrs.policies.base import Rates
from nnrs.policies.methods import METHODS, Material, PolicyConfig
from nnrs.seeding import Random, Stream
from nnrs.training.loop import Trainer, TrainingConfig
from nnrs.training.optimize import OptimizerConfig

KINDS = ("highway", "transformer", "lstm translator", "gru translator")
VOCAB = 300
CASES = [(method, {}) for method in METHODS] + [("nnrs", {"draw": "centroid"}), ("ss", {"passes": 2})]


def pairs_of(ids):
    """Sentences of 2 to 11 words, each its own translation."""
    lengths = 3 + torch.arange(200) % 10
    both = Sentences(ids[: int(lengths.sum())], lengths)
    return Pairs(both, both, batch_size=8, eos_id=0)


def make_trainer(kind, method, settings, device, dropout=0.2):
    ids = (Random(3, Stream.TEXT).uniform(4000) * VOCAB).to(torch.int32)
    material = Material(
        train_ids=ids,
        counts=torch.bincount(ids.long(), minlength=VOCAB).double(),
        vectors=Random(4, Stream.TEXT).uniform(VOCAB, 8) - 0.5,
        protected=(0, 1),
        case_groups=torch.arange(VOCAB),
        unknown_id=1,
        seed=1,
    )
    policy = PolicyConfig(method=method, k=5 if METHODS[method].rules else None, **settings)
    name, _, translates = kind.partition(" ")
    config = ModelConfig(kind=name, units=32, dropout=dropout)
    model = build_model(config, VOCAB, Random(1, Stream.INITIALISATION), VOCAB if translates else None)
    windows = pairs_of(ids) if translates else Windows(ids, batch_size=8, length=10, eos_id=0)
    with torch.no_grad():
        model.embedding.weight.mul_(5)  # so that inputs and masks matter
    return Trainer(
        model=model.to(device),
        policy=policy.build(material, device),
        windows=windows.to(device),
        validate=lambda model: 1.0,
        config=TrainingConfig(precision="fp32"),
        optimizer_config=OptimizerConfig(learning_rate=1.0),
        seed=1,
        passes=policy.passes,
    )


def rates_for(method):
    return Rates(0.3 if METHODS[method].predictions else 0.0, 0.3 if METHODS[method].proposal else 0.0)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # a prototype, it says; it is what we want
@pytest.mark.parametrize(("method", "settings"), CASES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_no_training_step_waits_for_the_device(kind, method, settings):
    trainer, rates = make_trainer(kind, method, settings, "cuda"), rates_for(method)
    for index in range(2):  # kernels are loaded, and the first window has no history
        trainer.train_window(trainer.windows[index], rates)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for index in range(2, 6):
            trainer.train_window(trainer.windows[index], rates)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.isfinite(torch.as_tensor(trainer.live.tally.nats))


@pytest.mark.gpu
@pytest.mark.parametrize("exact", [False, True])
def test_for_the_same_choice_a_gpu_predicts_and_learns_what_the_cpu_does(exact):
    from nnrs.training.unroll import Carry, unroll, window_loss

    results = []
    cpu = make_trainer("highway", "ss-nnrs", {}, "cpu", dropout=0.0)
    choice = cpu.policy.choose(cpu.windows[0], Rates(0.4, 0.3), Random(1, Stream.DRAWS))
    for device in ("cpu", "cuda"):
        model = copy.deepcopy(cpu.model).double().to(device)
        parts = {
            name: value.to(device) if torch.is_tensor(value) else value
            for name, value in vars(choice).items()
        }
        moved = type(choice)(**parts | ({"prediction_capacity": 80} if device == "cuda" else {}))
        carry = Carry(model.init_state(8))
        unrolled = unroll(model, cpu.policy, moved, carry, None, predicts=True, exact=exact)
        window_loss(model, unrolled.hidden, unrolled.choice.targets).backward()
        results.append((unrolled.inputs.cpu(), model.embedding.weight.grad.cpu()))
    assert torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1], atol=1e-7, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_with_the_same_draws_and_masks_a_gpu_trains_what_the_cpu_does(kind, method, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # recurrent layers would round to 10 bits
    losses = []
    for device in ("cpu", "cuda"):
        trainer = make_trainer(kind, method, {}, device)
        losses.append([])
        for index in range(4):
            trainer.train_window(trainer.windows[index], rates_for(method))
            losses[-1].append(float(trainer.live.tally.nats))
    # float32 sums in another order: 2^-24 of each term, over four steps; another mask would show at 1e-3.
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
