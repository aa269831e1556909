"""Gold targets are scored after a history of which the stated part, and nothing else, was replaced."""

import pytest
import torch
import torch.nn.functional as F

from nnrs.errors import ConfigError
from nnrs.evaluation.noise import LENGTH, noised_nats
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.functional import sample_tokens
from nnrs.seeding import Random, Stream

VOCAB = 12


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(vocab=VOCAB)


@pytest.fixture(scope="module")
def ids():
    return (Random(7, Stream.TEXT).uniform(143) * VOCAB).to(torch.int32)


@pytest.fixture(scope="module")
def table():
    return NeighborTable.from_vectors(Random(4, Stream.TEXT).uniform(VOCAB, 6) - 0.5, k=3, protected=(0, 1))


def scored(model, ids, table, **settings):
    given = {"rates": [0.4], "proposal": table, "streams": 2, **settings}
    return noised_nats(model, ids, eos_id=0, **given)[0]


@torch.no_grad()
def rows_by_hand(model, ids, inputs_of):
    """Two streams of 72 and 71 tokens, each read as one window after `<eos>` or its predecessor."""
    rows = []
    for first, last in ((0, 72), (72, 143)):
        before = [0 if first == 0 else int(ids[first - 1]), *ids[first : last - 1].tolist()]
        inputs = inputs_of(first // 72, torch.tensor(before))
        logits, _ = model(inputs[None])
        rows.append(F.cross_entropy(logits[0].float(), ids[first:last].long(), reduction="none").double())
    return torch.cat(rows)


def draws_of(row, seed=0):
    """The numbers of one stream: windows of 35, 35 and 2 steps draw one after another."""
    parts = [
        Random(seed, Stream.DRAWS, step).uniform(2, 2, length)
        for step, length in enumerate((LENGTH, LENGTH, 2))
    ]
    return torch.cat(parts, dim=2)[:, row]


def test_at_rate_zero_every_noise_is_the_plain_loss(model, ids, table):
    plain = rows_by_hand(model, ids, lambda row, inputs: inputs)
    for proposal in (table, None):
        torch.testing.assert_close(scored(model, ids, table, proposal=proposal, rates=[0.0]), plain)


def test_proposals_stand_in_the_history_and_the_targets_stay(model, ids, table):
    def noisy(row, inputs):
        chosen, drawn = (part[: len(inputs)] for part in draws_of(row))
        wanted = (chosen < 0.4) & table.replaceable[inputs]
        return torch.where(wanted, table.draw(inputs, drawn, 0.5), inputs)

    expected = rows_by_hand(model, ids, noisy)
    torch.testing.assert_close(scored(model, ids, table, temperature=0.5), expected)


def test_words_that_are_not_replaceable_stay(model, ids, table):
    vectors = Random(4, Stream.TEXT).uniform(VOCAB, 6) - 0.5
    two = NeighborTable.from_vectors(
        vectors, k=1, protected=range(VOCAB - 2)
    )  # all but the last two words stay

    def noisy(row, inputs):
        first, second = VOCAB - 2, VOCAB - 1
        return torch.where(inputs == first, second, torch.where(inputs == second, first, inputs))

    expected = rows_by_hand(model, ids, noisy)
    torch.testing.assert_close(scored(model, ids, two, rates=[1.0]), expected)


@torch.no_grad()
def test_own_words_are_drawn_after_the_history_the_model_had(model, ids):
    def noisy(row, inputs):
        chosen, drawn = draws_of(row)
        made = [int(inputs[0])]
        for step in range(1, len(inputs)):
            logits, _ = model(torch.tensor([made]))
            own = sample_tokens(logits[0, -1:].float(), drawn[step : step + 1])
            made.append(int(own if chosen[step] < 0.7 else inputs[step]))
        return torch.tensor(made)

    expected = rows_by_hand(model, ids, noisy)
    torch.testing.assert_close(scored(model, ids, None, rates=[0.7]), expected)


def test_the_noise_is_the_same_for_every_model_and_another_for_another_seed(model, ids, table):
    first, again, other = (scored(model, ids, table, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_rates_side_by_side_are_the_same_as_each_alone(model, ids, table):
    rates = [0.0, 0.3, 0.8]
    for proposal in (table, None):
        settings = {"proposal": proposal, "streams": 2}
        together = noised_nats(model, ids, eos_id=0, rates=rates, **settings)
        alone = [scored(model, ids, None, rates=[rate], **settings) for rate in rates]
        torch.testing.assert_close(together, torch.stack(alone))
        assert len({float(row.sum()) for row in together}) == 3


def test_a_rate_that_is_no_probability_is_refused(model, ids, table):
    with pytest.raises(ConfigError, match="probabilities"):
        scored(model, ids, table, rates=[0.2, 1.5])


def test_the_logits_of_one_rate_are_in_memory_at_a_time(model, ids, table, monkeypatch):
    """Of five rates and two streams: two rows of a window, or ten of one step where the words are the model's own."""
    positions, real = [], model.head
    monkeypatch.setattr(
        model, "head", lambda hidden: positions.append(hidden[..., 0].numel()) or real(hidden)
    )
    for proposal, most in ((table, 2 * LENGTH), (None, 10)):
        scored(model, ids, table, proposal=proposal, rates=[0.1, 0.2, 0.3, 0.4, 0.5])
        assert max(positions) == most
        positions.clear()
