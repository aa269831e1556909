"""The choice in one launch: the very inputs, claims, numbers and counts that the policy itself gives."""

import pytest
import torch
from tests.integrations.tiny import IDS, VOCAB, embedded, gpt2, t5, table_of
from torch.utils._python_dispatch import TorchDispatchMode

from nnrs.integrations import choice as choosing
from nnrs.integrations import kernel
from nnrs.integrations.choice import Key
from nnrs.integrations.curriculum import Curriculum, curriculum
from nnrs.integrations.settings import Settings
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.base import Rates
from nnrs.policies.functional import GRANULARITIES
from nnrs.schedules import Schedule
from nnrs.seeding import Random, Stream
from nnrs.temperature import TemperatureState

CASES = [  # shape and k: less than one program's positions and more, no table, an empty one and full ones
    ((1, 1), 3),
    ((1, 9), 16),
    ((7, 1), 1),
    ((3, 5), None),
    ((3, 7), 0),
    ((5, 13), 2),
    ((4, 33), 13),
]
DRAWS = [  # ε, γ, τ and what the numbers depend on
    (0.3, 0.6, 0.05, Key(0, 0, 0)),
    (0.0, 0.4, 0.3, Key(1, 1, 1)),
    (0.4, 0.0, 0.5, Key(7, 2**31, 0)),
    (1.0, 1.0, 0.7, Key(2**40 + 3, 2**33 + 5, 6)),
    (0.7, 0.8, 10.0, Key(2**63 - 1, 2**47, 1)),
    (0.0, 1.0, 0.5, Key(-3, 2**32 - 1, 2**20)),
]


def random_table(k):
    """k neighbors of every word but each fifth, which has none; the last slot of each third is empty.

    It is laid out by columns, as a part of a wider table might be by longer rows.
    """
    random = Random(k, Stream.TEXT)
    similarities = random.uniform(VOCAB, k).sort(descending=True).values
    similarities[::3, k - 1 :] = -torch.inf
    similarities[4::5] = -torch.inf
    ids = (random.uniform(VOCAB, k) * VOCAB).long()
    ids = torch.where(similarities.isinf(), torch.arange(VOCAB)[:, None], ids)
    return NeighborTable(ids.T.contiguous().T, similarities.T.contiguous().T)


def policy_of(k, granularity="token", temperature=0.5, device="cpu"):
    """What the settings make of a table of k neighbors, of none for None."""
    table = None if k is None else random_table(k)
    settings = Settings(
        neighbor_rate=None if k is None else 0.5,
        prediction_rate=0.5,
        rule="constant",
        temperature=temperature,
        granularity=granularity,
    )
    policy = settings.policy(table)
    policy.proposal = policy.proposal.to(device) if policy.proposal else None
    policy.replaceable = policy.replaceable.to(device)
    return policy


def window_of(shape, seed):
    """Ids, and which of them may change."""
    random = Random(seed, Stream.TEXT)
    return (random.uniform(*shape) * VOCAB).long(), random.uniform(*shape) < 0.8


@pytest.mark.parametrize(("shape", "k"), CASES, ids=str)
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_the_kernel_chooses_what_the_policy_does(device, shape, k, granularity):
    total = torch.zeros(3, dtype=torch.int64, device=device)
    sums = torch.zeros(3, dtype=torch.int64)
    for seed, (prediction, neighbor, temperature, key) in enumerate(DRAWS):
        gold, may_change = window_of(shape, seed)
        rates = Rates(prediction, neighbor)
        policy = policy_of(k, granularity, temperature)
        expected, choice = choosing.choose(policy, gold, may_change, rates, key, sums)
        policy = policy_of(k, granularity, temperature, device)
        inputs, ours = kernel.choose(policy, gold.to(device), may_change.to(device), rates, key, total)
        assert torch.equal(inputs.cpu(), expected)
        assert torch.equal(ours.inputs(ours.gold).cpu(), expected)
        for part in ("takes_prediction", "takes_neighbor", "prediction_uniform"):
            assert torch.equal(getattr(ours, part).cpu(), getattr(choice, part)), part
        assert torch.equal(total.cpu(), sums)  # they add up


@pytest.mark.parametrize("choose", [choosing.choose, kernel.choose], ids=["policy", "kernel"])
def test_ids_that_the_table_does_not_know_stay(device, choose):
    gold = torch.tensor([[VOCAB, 1, -200, 2, VOCAB + 10**9]], device=device)
    counts = torch.zeros(3, dtype=torch.int64, device=device)
    policy, rates = policy_of(2, device=device), Rates(0.0, 1.0)
    inputs, choice = choose(
        policy, gold, torch.ones_like(gold, dtype=torch.bool), rates, Key(0, 0, 0), counts
    )
    taken = choice.takes_neighbor.tolist()
    assert taken == [[False, True, False, True, False]]
    assert torch.equal(inputs[~choice.takes_neighbor], gold[~choice.takes_neighbor])
    assert counts.tolist()[:2] == [5, 0]


@pytest.mark.parametrize("k", [None, 0, 3])
def test_at_ids_that_the_table_does_not_know_the_kernel_chooses_what_the_policy_does(device, k):
    gold, may_change = window_of((6, 40), seed=1)
    gold = torch.where(gold % 3 == 0, gold * 50 - 300, gold)
    expected, choice = choosing.choose(
        policy_of(k), gold, may_change, Rates(0.6, 0.7), Key(1, 2, 3), torch.zeros(3, dtype=torch.int64)
    )
    counts = torch.zeros(3, dtype=torch.int64, device=device)
    inputs, ours = kernel.choose(
        policy_of(k, device=device),
        gold.to(device),
        may_change.to(device),
        Rates(0.6, 0.7),
        Key(1, 2, 3),
        counts,
    )
    assert torch.equal(inputs.cpu(), expected)
    assert torch.equal(ours.takes_prediction.cpu(), choice.takes_prediction)
    assert torch.equal(ours.takes_neighbor.cpu(), choice.takes_neighbor)


def under(options, make, device="cpu"):
    """The ids that reach the embeddings in three forwards of a curriculum, and its report."""
    model = make().to(device).train()
    ids = IDS.to(device)
    table = table_of(make()) if "neighbor_rate" in options else None
    with embedded(model) as seen, curriculum(model, table, steps=3, **options) as ours:
        for _ in range(3):
            model(input_ids=ids, labels=ids)
        return [inputs.tolist() for inputs in seen], ours.report()


@pytest.mark.parametrize("make", [gpt2, t5], ids=["gpt2", "t5"])
@pytest.mark.parametrize(
    "rates", [("neighbor_rate",), ("prediction_rate",), ("neighbor_rate", "prediction_rate")]
)
def test_a_model_reads_the_same_whichever_of_the_two_chooses(device, monkeypatch, make, rates):
    options = dict.fromkeys(rates, Schedule("linear", 0.0, 0.6))
    expected = under(options, make)
    launches = []

    def choose(*arguments):
        launches.append(arguments)
        return kernel.choose(*arguments)

    monkeypatch.setattr("nnrs.integrations.curriculum.choose", choose)
    assert under(options, make, device) == expected
    assert len(launches) == 2  # the first step has rate 0


class Operations(TorchDispatchMode):
    """The operations that a GPU would be given: all but making room and looking at a part."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if not func.is_view and not name.startswith("empty"):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("rate", "expected"), [(0.5, ["ne", "fill_", "kernel"]), (0.0, ["ne", "fill_", "sum", "add_", "clone"])]
)
def test_a_plain_batch_costs_a_handful_of_launches(monkeypatch, rate, expected):
    model = gpt2().train()
    ours = Curriculum(model, table_of(model), Settings(neighbor_rate=rate))
    monkeypatch.setattr("nnrs.integrations.curriculum.choose", kernel.choose)
    with Operations() as seen:
        monkeypatch.setattr(kernel, "_choose", {(1,): lambda *_, **__: seen.names.append("kernel")})
        ours.before_forward(model, (), {"input_ids": IDS, "labels": IDS})
    assert seen.names == expected


@pytest.mark.gpu
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_on_a_gpu_a_model_reads_what_it_reads_on_the_cpu(granularity):
    options = {"neighbor_rate": Schedule("linear", 0.0, 0.6), "granularity": granularity}
    assert under(options, gpt2, "cuda") == under(options, gpt2)


@pytest.mark.gpu
def test_the_kernel_is_compiled_once_for_a_whole_curriculum():
    kernel._choose.device_caches.clear()
    counts = torch.zeros(3, dtype=torch.int64, device="cuda")
    policy = policy_of(4, device="cuda")
    for step in range(50):
        gold, may_change = window_of((1 + step % 16, 1 + step % 33), seed=step)
        policy.temperature_state = TemperatureState(0.5 + step / 10, 0.0)
        rates, key = Rates(step / 49, 1 - step / 49), Key(7**step, step**7, step % 17)
        kernel.choose(policy, gold.cuda(), may_change.cuda(), rates, key, counts)
    [(compiled, *_)] = kernel._choose.device_caches.values()
    assert len(compiled) == 1
