"""A fleet of runs against the plain loop: the same draws and masks, so the same losses, step by step.

The plain `Trainer` with torch's own LSTM or GRU is the reference: `Random` gives the same numbers on every device.
On the CPU the kernels run in Triton's interpreter, which is why everything here is tiny.
"""

import copy
import gc
import subprocess
import sys
import weakref
from dataclasses import dataclass, field
from functools import cache

import pytest
import torch

from nnrs.batches import Windows
from nnrs.errors import ConfigError, DivergenceError
from nnrs.evaluation.evaluate import text_perplexity
from nnrs.models import ModelConfig, build_model
from nnrs.policies.methods import METHODS, Material, PolicyConfig
from nnrs.schedules import Schedule
from nnrs.seeding import Random, Stream
from nnrs.training import fleet as fleet_module
from nnrs.training import loop
from nnrs.training.events import Callback
from nnrs.training.fleet import Fleet, affordable
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


GRU, ADAM = {"kind": "gru", "layers": 2}, {"name": "adamw", "learning_rate": 0.01}
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
        shared = {key: value for key, value in case.model.items() if key != "dropout"}
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


@pytest.fixture(autouse=True)
def full_precision(monkeypatch):
    """cuDNN would round float32 products to tf32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


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


# The same run as the plain loop's.


@pytest.mark.parametrize("name", CASES)
def test_every_policy_trains_in_a_fleet_as_in_the_plain_loop(name, device):
    names = next(tuple(names) for names in FLEETS if name in names)
    (ours, our_losses), (theirs, their_losses) = together(names, device)[name], plainly(name, device)
    assert_same_losses(our_losses, their_losses)
    assert len(our_losses) == 2 * CASES[name].epochs  # a whole window and a shorter one
    assert_same_run(ours, theirs)
    (ours,), (theirs,) = ours.callbacks, theirs.callbacks
    assert_same_records(ours.metrics, theirs.metrics)
    uses = METHODS[CASES[name].method]
    assert (theirs.metrics[-1].effective_neighbor_rate > 0) == (uses.proposal is not None)
    assert (theirs.metrics[-1].effective_prediction_rate > 0) == uses.predictions


@pytest.mark.parametrize("name", ["tprs", "ss-nnrs exact"])
def test_a_run_is_the_same_in_whatever_company(name, device):
    names = next(tuple(names) for names in FLEETS if name in names)
    (alone, losses), (among, others) = together((name,), device)[name], together(names, device)[name]
    assert_same_losses(losses, others)
    assert_same_run(alone, among)
    assert_same_records(alone.callbacks[0].metrics, among.callbacks[0].metrics)


def test_a_learned_distribution_that_starts_to_move_later_moves_as_in_the_plain_loop(device):
    trainers = []
    for _ in range(2):
        trainer = make_trainer("adamw gsns", device)
        trainer.policy.neighbor_rate = Schedule("linear", 0.0, 0.6)  # nothing is replaced in the first epoch
        trainers.append(trainer)
    ours, theirs = trainers
    fit_plain(theirs)
    fit_fleet([ours], device)
    assert_same_run(ours, theirs)


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


def test_a_run_whose_last_step_ruined_it_fails_at_validation(device):
    well, ill = make_trainer("nnrs centroid", device), make_trainer("nnrs targets", device)
    ill.save = ill.save_best = lambda live: pytest.fail("a ruined run was saved")
    beat = ill.beat

    def ruined(epoch):
        beat(epoch)  # finds nothing wrong
        with torch.no_grad():
            ill.model.output_bias.fill_(torch.nan)
        if device == "cuda":
            torch.cuda.synchronize()

    ill.beat = ruined
    fleet, finished, _ = fit_fleet([well, ill], device)
    assert finished
    assert list(fleet.failures) == [1]
    assert "validation perplexity is no longer finite" in str(fleet.failures[1])
    assert_same_run(well, plainly("nnrs centroid", device)[0])


# Stopping and going on.


def stop_after(trainers, windows):
    """Have them stop after so many windows that are not the last of an epoch; where each saves itself."""
    countdown, saved = iter(range(windows - 1)), {}
    for trainer in trainers:
        trainer.should_stop = lambda: next(countdown, None) is None
        trainer.save = lambda live, trainer=trainer: saved.update(
            {trainers.index(trainer): copy.deepcopy(live.snapshot())}
        )
    return saved


STOPPED = [("adamw ss-nnrs", "adamw gsns"), ("gru ss-nnrs", "gru gsns")]


@pytest.mark.parametrize("names", STOPPED, ids=str)
def test_a_fleet_stopped_and_resumed_is_the_unbroken_one(names, device):
    stopped = [make_trainer(name, device) for name in names]
    saved = stop_after(stopped, windows=CASES[names[0]].epochs)  # in its last epoch
    _, finished, _ = fit_fleet(stopped, device)
    assert not finished
    assert len(saved) == len(names)
    assert all(state["window"] == 1 and "carry.hidden" in tensors for tensors, state in saved.values())

    resumed = [make_trainer(name, device) for name in names]
    for run, trainer in enumerate(resumed):
        trainer.live.restore(*saved[run])
    _, finished, _ = fit_fleet(resumed, device)
    assert finished
    for name, trainer, before in zip(names, resumed, stopped, strict=True):
        unbroken, _ = together(names, device)[name]
        metrics = before.callbacks[0].metrics + trainer.callbacks[0].metrics
        assert_same_run(trainer, unbroken)
        assert_same_records(metrics, unbroken.callbacks[0].metrics)
        if device == "cpu":  # where every sum has one order
            (ours, state), (theirs, expected) = trainer.live.snapshot(), unbroken.live.snapshot()
            assert all(torch.equal(ours[part], theirs[part]) for part in ours)
            assert state == expected
            assert metrics == unbroken.callbacks[0].metrics


@pytest.mark.parametrize("name", ["ss-nnrs by sequence", "adamw gsns", "gru gsns"])
def test_a_run_goes_on_in_the_plain_loop_where_a_fleet_stopped_and_the_other_way_round(name, device):
    unbroken, _ = plainly(name, device)
    plain, member = make_trainer(name, device), make_trainer(name, device)
    saved_by_plain, saved_by_fleet = (stop_after([run], CASES[name].epochs) for run in (plain, member))
    assert not plain.fit()
    assert not fit_fleet([member], device)[1]
    (tensors, state), (expected, expected_state) = saved_by_fleet[0], saved_by_plain[0]
    assert tensors.keys() == expected.keys()
    assert state.keys() == expected_state.keys()

    now_plain, now_member = make_trainer(name, device), make_trainer(name, device)
    now_plain.live.restore(*saved_by_fleet[0])
    now_member.live.restore(*saved_by_plain[0])
    assert now_plain.fit()
    assert fit_fleet([now_member], device)[1]
    for trainer in (now_plain, now_member):
        assert_same_run(trainer, unbroken)
        assert_same_records(trainer.callbacks[0].metrics, unbroken.callbacks[0].metrics[-1:])


# Scoring, and what is refused.


@pytest.mark.parametrize(
    ("names", "streams"),
    [(("mle", "tprs"), 1), (("mle", "tprs"), 3), (("gru gsns", "gru ss-nnrs"), 2)],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:RNN module weights")  # which cuDNN reads from the fleet's memory here
def test_a_text_has_the_perplexity_that_evaluation_gives_it(names, streams, device):
    trainers = [make_trainer(name, device) for name in names]
    ids = text(TINY, 5, 2)  # the last window is shorter, or the last rows are
    windows = Windows(ids, batch_size=streams, length=2, eos_id=0, pad_remainder=True).to(device)
    fleet = Fleet(trainers, valid_windows(device))
    for _ in range(2):
        scores = [text_perplexity(t.model, ids, eos_id=0, streams=streams).compute() for t in trainers]
        assert fleet.perplexities(windows) == pytest.approx(scores, rel=CLOSE["rtol"])
        assert scores[0] != pytest.approx(scores[1], rel=1e-4)
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


def test_a_transformer_is_refused():
    trainer = make_trainer("mle")
    config = ModelConfig(kind="transformer", units=8, heads=2, dropout=0.0)
    trainer.model = build_model(config, TINY.vocab, Random(1, Stream.INITIALISATION))
    with pytest.raises(ConfigError, match="LSTM and GRU models, not 'transformer'"):
        Fleet([trainer], valid_windows())


def test_neither_the_library_nor_its_command_line_imports_triton():
    modules = "nnrs, nnrs.cli.main, nnrs.cli.train, nnrs.experiments.together, nnrs.training.loop"
    code = f"import sys, {modules}; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# What only a GPU can show.


def squad_of(names, **settings):
    """A squad in its first epoch, its windows longer than those above."""
    trainers = [make_trainer(name, "cuda", SMALL, **settings) for name in names]
    squad = Squad(trainers, valid_windows("cuda", SMALL))
    squad.set_epoch([trainer.open_epoch() for trainer in trainers])
    return squad


PARALLEL = [name for name, case in CASES.items() if case.policy.get("unroll") != "exact"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_bfloat16_losses_stay_as_close_as_its_rounding_allows(name):
    """The plain loop rounds the output layer alone, a fleet the recurrent layers too: hence the factor.

    bfloat16 has 8 digits, so a logit of order 1 is off by 2e-3; a mean over 80 tokens by less than 1e-3. A prediction
    between two near ties may fall the other way: then one input in 80 is another, and the loss moves by up to a nat.
    """
    losses, rate = {}, {} if CASES[name].optimizer else {"learning_rate": 1.0}
    for precision in ("fp32", "bf16"):
        trainer = make_trainer(name, "cuda", SMALL, precision, **rate)
        losses[precision] = torch.tensor(fit_plain(trainer)[:4]) / 80
    member = make_trainer(name, "cuda", SMALL, "bf16", **rate)
    ours = torch.tensor(fit_fleet([member], "cuda", SMALL)[2][0][:4]) / 80
    least = 1e-3 if member.policy.prediction_rate is None else 1 / 80
    allowed = 4 * (losses["bf16"] - losses["fp32"]).abs().clamp(min=least)
    assert ((ours - losses["fp32"]).abs() <= allowed).all()


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_captured_graphs_compute_what_the_launches_do(name, precision, monkeypatch):
    totals = []
    for captures in (True, False):
        if not captures:
            monkeypatch.setattr("nnrs.training.squad.Replay", lambda: lambda function: function())
        squad, tallies = squad_of([name], precision=precision), []
        for index in range(6):
            squad.train_window(index)
            squad.read_tallies()
            tallies.append(squad.trainers[0].live.tally.nats)
        totals.append(tallies)
    assert totals[0] == totals[1]
    assert len(set(totals[0])) == 6


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # a prototype, it says; it is what we want
@pytest.mark.parametrize("name", PARALLEL)
def test_no_window_of_a_squad_waits_for_the_device(name):
    squad = squad_of([name])
    for index in range(2):  # kernels are compiled, then captured
        squad.train_window(index)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for index in range(2, 6):
            squad.train_window(index)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    squad.read_tallies()
    assert squad.trainers[0].live.tally.nats > 0


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


def test_learned_tables_of_different_width_train_together(device):
    names = ("gsns", "gsns again")
    trainers = [make_trainer(name, device) for name in names]
    widths = [trainer.policy.proposal.k for trainer in trainers]
    assert widths[0] != widths[1]
    fit_fleet(trainers, device)
    for name, trainer in zip(names, trainers, strict=True):
        assert_same_run(trainer, plainly(name, device)[0])


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
    names = ("ss", "mle", "ss two passes", "nnrs", "ss-nnrs", "ss-nnrs exact")
    assert fleet_module._squads([make_trainer(name) for name in names]) == [[0, 4], [1, 3], [2], [5]]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_squads_that_overlap_do_not_disturb_each_other(precision):
    """Twelve runs in three squads on streams of their own, each as it is alone: the same launches, so bitwise."""
    squads = []
    for overlapping in (True, False):
        made = [
            squad_of([name], precision=precision) for name in ("mle", "nnrs", "ss-nnrs") for _ in range(4)
        ]
        for index in range(6):
            for squad in made:
                squad.train_window(index)
                if not overlapping:
                    torch.cuda.synchronize()
        torch.cuda.synchronize()
        squads.append([squad.trainers[0].model for squad in made])
    for ours, theirs in zip(*squads, strict=True):
        for parameter, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(parameter, expected)
