"""What both a fleet and the plain loop train, and how close the two must come.

The plain `Trainer`, with torch's own LSTM or GRU or our loop of a highway network, is the reference: `Random` gives
the same numbers on every device. On the CPU the kernels run in Triton's interpreter, which is why everything here is
tiny.
"""

from dataclasses import dataclass, field
from functools import cache

import pytest
import torch

from nnrs.batches import Windows
from nnrs.evaluation.evaluate import text_perplexity
from nnrs.models import ModelConfig, build_model
from nnrs.policies.methods import METHODS, Material, PolicyConfig
from nnrs.schedules import Schedule
from nnrs.seeding import Random, Stream
from nnrs.training.events import Callback
from nnrs.training.fleet import Fleet
from nnrs.training.loop import Trainer, TrainingConfig
from nnrs.training.optimize import OptimizerConfig
from nnrs.training.squad import Squad

# In float32 both sides add up the same numbers in another order. Each operation is off by at most 2^-24 = 6e-8 of its
# result, a loss is some fifty operations deep, and steps carry that on: a few 1e-6 of a value can be expected.
# Measured over all cases below, losses differ by 1.4e-7 of their value and parameters by 5e-7 at most; a wrong draw,
# mask or gradient shows at 1e-3.
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
# AdamW divides a gradient by its size and 1e-8. One that is nearly zero, 1e-8 say, is off by 1e-10 because of the
# terms that cancel in it, and so each step by 1% of the learning rate (0.01 here), a few steps by 5%; a wrong one by
# all of it. Measured: 2e-5 on a CPU, 1.4e-4 on an H200.
CLOSE_STEPS = {"sgd": CLOSE, "adamw": {"atol": 5e-4, "rtol": 1e-5}}


@dataclass(frozen=True)
class Sizes:
    vocab: int = 23
    units: int = 7  # neither a power of two nor a multiple of a tile
    batch: int = 3
    bptt: int = 3
    tokens: int = 16  # rows of 5: a window of 3 and a shorter one of 2


TINY, SMALL = Sizes(), Sizes(vocab=300, units=32, batch=8, bptt=10, tokens=8 * 64)


@dataclass(frozen=True)
class Case:
    """What a run is trained with."""

    method: str
    policy: dict = field(default_factory=dict)
    model: dict = field(default_factory=dict)
    optimizer: dict = field(default_factory=dict)
    epochs: int = 1


GRU, HIGHWAY = {"kind": "gru", "layers": 2}, {"kind": "highway", "layers": 2}
ADAM = {"name": "adamw", "learning_rate": 0.01}
READINGS = {
    "nnrs centroid": Case("nnrs", {"draw": "centroid"}),
    "ss two passes": Case("ss", {"passes": 2}),
    "ss-nnrs exact": Case("ss-nnrs", {"unroll": "exact"}),
    "ss greedy": Case("ss", {"predict": "greedy"}),
    "nnrs targets": Case("nnrs", {"replace": "targets"}),
    "ss-nnrs targets": Case("ss-nnrs", {"replace": "targets", "passes": 2}),
    "nnrs by position": Case("nnrs", {"granularity": "position"}),
    "ss-nnrs by sequence": Case("ss-nnrs", {"granularity": "sequence"}),
    "tprs by predecessor": Case("tprs", {"transition_row": "previous"}),
    "tprs whole rows": Case("tprs", {"transition_whole": True}),
}
VARIANTS = {
    "gru ss-nnrs": Case("ss-nnrs", model=GRU),
    "gru gsns": Case("gsns", model=GRU),
    "adamw ss-nnrs": Case("ss-nnrs", optimizer=ADAM, epochs=2),
    "adamw gsns": Case("gsns", optimizer=ADAM, epochs=2),
    "untied nnrs": Case("nnrs", model={"tied": False}),
    "untied ss without dropout": Case("ss", model={"tied": False, "dropout": 0.0}),
    "three layers": Case("mle", model={"layers": 3}),
    "gru adamw untied centroid": Case(
        "nnrs", {"draw": "centroid"}, model={"kind": "gru", "tied": False}, optimizer=ADAM
    ),
    "ss-nnrs centroid two passes": Case("ss-nnrs", {"draw": "centroid", "passes": 2}),
    "gsns again": Case("gsns"),  # with another k
    "highway ss-nnrs": Case("ss-nnrs", model=HIGHWAY),
    "highway gsns": Case("gsns", model=HIGHWAY),
    "highway exact, untied": Case("ss", {"unroll": "exact"}, model={**HIGHWAY, "layers": 1, "tied": False}),
    "highway adamw": Case("nnrs", model=HIGHWAY, optimizer=ADAM),
    "weights dropped ss-nnrs": Case("ss-nnrs", model={"weight_dropout": 0.5}),
    "weights dropped alone": Case("mle", model={"dropout": 0.0, "weight_dropout": 0.3}),
    "weights dropped gru": Case("ss", model={**GRU, "weight_dropout": 0.4}),
    "weights dropped highway exact": Case(
        "ss-nnrs", {"unroll": "exact"}, model={**HIGHWAY, "weight_dropout": 0.4}
    ),
    "ss more passes than steps": Case("ss", {"passes": 10**30}),
}
# These go through the end of an epoch: rates and temperatures change, the text begins anew.
MOVING = ("ss", "nnrs", "ss-nnrs")
CASES = {
    **{method: Case(method, epochs=2 if method in MOVING else 1) for method in METHODS},
    **READINGS,
    **VARIANTS,
}


def fleets():
    """The names of the runs that train together: three of one architecture and optimiser at most."""
    together = {}
    for name, case in CASES.items():
        shared = {key: value for key, value in case.model.items() if "dropout" not in key}
        together.setdefault(str((shared, case.optimizer, case.epochs)), []).append(name)
    return [names[first : first + 3] for names in together.values() for first in range(0, len(names), 3)]


FLEETS = fleets()
SEED = {name: number + 1 for number, name in enumerate(CASES)}


class Heard(Callback):
    def __init__(self):
        self.metrics = []

    def epoch_end(self, metrics, timing):
        self.metrics.append(metrics)


def text(sizes, tokens, step=0):
    return (Random(3, Stream.TEXT, step).uniform(tokens) * sizes.vocab).to(torch.int32)


def make_trainer(name, device="cpu", sizes=TINY, precision="fp32", epochs=None, **optimizer):
    """The trainer of a case; runs differ in seed, dropout, learning rate and clipping."""
    case, seed = CASES[name], SEED[name]
    ids = text(sizes, 300)
    material = Material(
        train_ids=ids,
        counts=torch.bincount(ids.long(), minlength=sizes.vocab).double(),
        vectors=Random(4, Stream.TEXT).uniform(sizes.vocab, 8) - 0.5,
        protected=(0, 1),
        case_groups=torch.arange(sizes.vocab),
        unknown_id=1,
        seed=seed,
    )
    method, rates = METHODS[case.method], {}
    if method.predictions:
        rates["prediction_rate"] = Schedule("linear", 0.5, 0.7)
    if method.proposal:
        rates["neighbor_rate"] = Schedule("linear", 0.4, 0.6)
    k = 2 + seed % 3 if method.rules and "transition_whole" not in case.policy else None
    policy = PolicyConfig(method=case.method, k=k, **rates, **case.policy)
    settings = {"units": sizes.units, "layers": 1, "dropout": 0.1 * (1 + seed % 4), **case.model}
    model = build_model(ModelConfig(**settings), sizes.vocab, Random(seed, Stream.INITIALISATION))
    with torch.no_grad():
        model.embedding.weight.mul_(5)  # so that predictions differ from position to position
        if model.config.weight_dropout:
            for weight in model.recurrent_weights:
                weight.mul_(4)  # so that losses differ with what is dropped; 20 would multiply rounding, too
    valid = text(sizes, 2 * sizes.bptt - 1, 1)
    return Trainer(
        model=model.to(device),
        policy=policy.build(material, device),
        windows=Windows(text(sizes, sizes.tokens), batch_size=sizes.batch, length=sizes.bptt, eos_id=0).to(
            device
        ),
        validate=lambda model: text_perplexity(model, valid, eos_id=0, streams=2).compute(),
        config=TrainingConfig(
            epochs=epochs or case.epochs, batch_size=sizes.batch, bptt=sizes.bptt, precision=precision
        ),
        optimizer_config=OptimizerConfig(
            **{"learning_rate": 1.0 + 0.2 * seed, "clip": 0.1 * seed, **case.optimizer, **optimizer}
        ),
        seed=seed,
        exact=policy.unroll == "exact",
        passes=policy.passes,
        callbacks=[Heard()],
    )


def valid_windows(device="cpu", sizes=TINY):
    """The text that `make_trainer` validates on; the second row is one token short."""
    ids = text(sizes, 2 * sizes.bptt - 1, 1)
    return Windows(ids, batch_size=2, length=sizes.bptt, eos_id=0, pad_remainder=True).to(device)


def fit_plain(trainer):
    """Train it, and give the loss of every window."""
    losses, train = [], trainer.train_window

    def train_window(window, rates):
        before = float(trainer.live.tally.nats)
        train(window, rates)
        losses.append(float(trainer.live.tally.nats) - before)

    trainer.train_window = train_window
    trainer.fit()
    return losses


def fit_fleet(trainers, device="cpu", sizes=TINY):
    """Train them together: the fleet, whether it came to its end, and the loss of every window of each run."""
    losses, train = [[] for _ in trainers], Squad.train_window

    def train_window(squad, index):
        before = [float(trainer.live.tally.nats) for trainer in squad.trainers]
        train(squad, index)
        squad.read_tallies()
        for trainer, nats in zip(squad.trainers, before, strict=True):
            losses[trainers.index(trainer)].append(trainer.live.tally.nats - nats)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Squad, "train_window", train_window)
        fleet = Fleet(trainers, valid_windows(device, sizes))
        return fleet, fleet.fit(), losses


@cache
def plainly(name, device):
    """A case trained by the plain loop, and its losses."""
    trainer = make_trainer(name, device)
    return trainer, fit_plain(trainer)


@cache
def together(names, device):
    """Cases trained in one fleet, and their losses."""
    trainers = [make_trainer(name, device) for name in names]
    _, finished, losses = fit_fleet(trainers, device)
    assert finished
    return dict(zip(names, zip(trainers, losses, strict=True), strict=True))


def assert_same_losses(ours, theirs):
    ours, theirs = (torch.tensor(losses, dtype=torch.float64) for losses in (ours, theirs))
    torch.testing.assert_close(ours, theirs, **CLOSE)


def assert_same_run(ours, theirs):
    """Parameters, what the policy learned and the optimiser's moments are close."""
    (tensors, values), (expected, expected_values) = ours.live.snapshot(), theirs.live.snapshot()
    assert tensors.keys() == expected.keys()
    close = CLOSE_STEPS[ours.optimizer_config.name]
    for name, tensor in tensors.items():
        torch.testing.assert_close(
            tensor, expected[name], **close, msg=lambda text, name=name: f"{name}: {text}"
        )
    for ours, theirs in ((values, expected_values), (values["temperature"], expected_values["temperature"])):
        perplexity, expected = (part.pop("best_valid_perplexity") for part in (ours, theirs))
        assert perplexity == pytest.approx(expected, rel=CLOSE["rtol"])
    assert values == expected_values


def assert_same_records(ours, theirs):
    """What was counted is equal, what was added up is close."""
    assert len(ours) == len(theirs) > 0
    for our, their in zip(ours, theirs, strict=True):
        our, their = dict(vars(our)), dict(vars(their))
        for name in ("train_perplexity", "valid_perplexity", "effective_neighbors"):
            value = their.pop(name)
            assert our.pop(name) == (value and pytest.approx(value, rel=CLOSE["rtol"]))
        assert our == their
