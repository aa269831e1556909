"""Scheduled sampling by repeated passes equals feeding one prediction at a time."""

import dataclasses

import pytest
import torch

from nnrs.batches import IGNORED, Window
from nnrs.models import MODELS, TRANSLATORS, ModelConfig, Translator, build_model
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.base import InputPolicy, Rates, Reading
from nnrs.schedules import Schedule
from nnrs.seeding import Random, Stream
from nnrs.temperature import TemperatureController
from nnrs.training.unroll import Carry, unroll, window_loss

VOCAB, BATCH, TIME = 23, 3, 14


def make_model(kind, dropout=0.3):
    name, _, translates = kind.partition(" ")
    drops = 0.0 if translates or name == "transformer" else 0.3
    config = ModelConfig(kind=name, units=16, dropout=dropout, weight_dropout=drops, heads=2, context=9)
    sources = VOCAB if translates else None
    model = build_model(config, VOCAB, Random(1, Stream.INITIALISATION), sources).double()
    with torch.no_grad():  # far from uniform, so that a changed input changes what follows
        for name, parameter in model.named_parameters():
            parameter.mul_(25.0 if name == "embedding.weight" else 2.0)
    return model


def first_state(model):
    """That of one who has read nothing, or sources of 3, 5 and 4 words."""
    if not isinstance(model, Translator):
        return model.init_state(BATCH)
    source = (Random(8, Stream.TEXT).uniform(BATCH, 5) * VOCAB).long()
    return model.read(source.masked_fill(torch.arange(5) >= torch.tensor([[3], [5], [4]]), IGNORED))


def make_policy(predict="sample", reading=None):
    vectors = Random(5, Stream.TEXT).uniform(VOCAB, 6) - 0.5
    table = NeighborTable.from_vectors(vectors, k=4)
    weights = torch.ones(VOCAB)
    return InputPolicy(
        proposal=table,
        prediction_rate=Schedule("static", 0.0, 0.6),
        neighbor_rate=Schedule("static", 0.0, 0.3),
        controller=TemperatureController("constant", 0.5, table.similarities, weights),
        replaceable=table.replaceable,
        token_weights=weights,
        reading=reading or Reading(predict=predict),
    )


def make_window(step=0):
    ids = (Random(9, Stream.TEXT, step).uniform(BATCH, TIME + 2) * VOCAB).long()
    return Window(inputs=ids[:, 1:-1], targets=ids[:, 2:], previous=ids[:, :-2])


def slow_pick(logits, draw):
    """The first token whose cumulative probability passes the draw: one at a time, in plain Python."""
    total = 0.0
    for token, probability in enumerate(torch.softmax(logits, -1).tolist()):
        total += probability
        if total > draw:
            return token
    return token


def step_by_step(model, choice, carry, masks, predict):
    """The obvious loop: choose an input, feed it, predict, choose the next."""
    state, hidden = carry.state, carry.hidden
    inputs, outputs = torch.empty_like(choice.gold), []
    for t in range(TIME):
        for row in range(BATCH):
            token = choice.gold[row, t].item()
            if choice.takes_neighbor[row, t]:
                token = choice.neighbors[row, t].item()
            elif choice.takes_prediction[row, t] and hidden is not None:
                logits = model.head(hidden[row])
                draw = choice.prediction_uniform[row, t].item()
                token = logits.argmax().item() if predict == "greedy" else slow_pick(logits, draw)
            inputs[row, t] = token
        step_masks = None if masks is None else tuple(mask[:, t : t + 1] for mask in masks)
        encoded, state = model.encode(model.embed(inputs[:, t : t + 1]), state, step_masks)
        hidden = encoded[:, 0]
        outputs.append(hidden)
    return inputs, torch.stack(outputs, dim=1), state


def masks_for(model, step):
    masks = model.draw_masks(BATCH, TIME, Random(2, Stream.DROPOUT, step))
    return tuple(mask.double() for mask in masks)


@pytest.mark.parametrize("predict", ["sample", "greedy"])
@pytest.mark.parametrize("kind", [*sorted(MODELS), *(f"{name} translator" for name in TRANSLATORS)])
@torch.no_grad()
def test_exact_equals_the_step_by_step_loop_token_by_token(kind, predict):
    model, policy = make_model(kind).dropped(Random(2, Stream.WEIGHTS)), make_policy(predict)
    carry = slow_carry = Carry(first_state(model))
    most_passes = 0
    for step in range(4):  # windows that hand their state and last prediction on
        choice = policy.choose(make_window(step), Rates(0.6, 0.3), Random(4, Stream.DRAWS, step))
        masks = masks_for(model, step)
        unrolled = unroll(model, policy, choice, carry, masks, predicts=True, exact=True)
        inputs, hidden, state = step_by_step(model, choice, slow_carry, masks, predict)
        assert torch.equal(unrolled.inputs, inputs)
        torch.testing.assert_close(unrolled.hidden, hidden)
        carry, slow_carry = unrolled.carry.detached(), Carry(state, hidden[:, -1])
        for ours, theirs in zip(carry.state, state, strict=True):
            torch.testing.assert_close(ours, theirs)
        most_passes = max(most_passes, unrolled.passes)
    assert most_passes >= 5  # three that changed inputs, one that found them settled, one for the gradient


@torch.no_grad()
def test_two_parallel_passes_are_not_enough_where_exact_needed_more():
    model, policy = make_model("lstm"), make_policy()
    carry = Carry(model.init_state(BATCH))
    choice = policy.choose(make_window(), Rates(0.6, 0.3), Random(4, Stream.DRAWS, 0))
    masks = masks_for(model, 0)
    exact = unroll(model, policy, choice, carry, masks, predicts=True, exact=True)
    by_passes = [
        unroll(model, policy, choice, carry, masks, predicts=True, passes=n).inputs
        for n in range(1, TIME + 1)
    ]
    settled = [torch.equal(inputs, exact.inputs) for inputs in by_passes]
    assert settled[:2] == [False, False]
    assert settled[-1]  # as many passes as steps are always enough
    asked = unroll(model, policy, choice, carry, masks, predicts=True, passes=10**12)  # and more are not made
    assert asked.passes == TIME + 1
    assert torch.equal(asked.inputs, exact.inputs)
    assert (
        settled.index(True) + 3 == exact.passes
    )  # n changed something, one found nothing to, one has the gradient


def test_the_pass_that_is_trained_on_is_the_one_that_settled_and_has_its_gradient():
    model, policy = make_model("gru"), make_policy()
    window, carry = make_window(), Carry(model.init_state(BATCH))
    choice = policy.choose(window, Rates(0.6, 0.3), Random(4, Stream.DRAWS, 0))
    masks = masks_for(model, 0)
    exact = unroll(model, policy, choice, carry, masks, predicts=True, exact=True)
    window_loss(model, exact.hidden, window.targets).backward()
    ours = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    hidden, _ = model.encode(model.embed(exact.inputs), carry.state, masks)  # plain training on those inputs
    window_loss(model, hidden, window.targets).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad)


@pytest.mark.parametrize("exact", [False, True])
def test_the_pass_that_is_trained_on_has_casts_of_its_own_under_autocast(monkeypatch, exact):
    """Before pytorch#165068 a weight that an earlier pass had cast would have no gradient."""
    model, policy, events = make_model("transformer"), make_policy(), []
    encode = model.encode
    monkeypatch.setattr(
        model, "encode", lambda *all: (events.append(torch.is_grad_enabled()), encode(*all))[1]
    )
    monkeypatch.setattr(torch, "clear_autocast_cache", lambda: events.append("cleared"))
    choice = policy.choose(make_window(), Rates(0.6, 0.3), Random(4, Stream.DRAWS, 0))
    unroll(model, policy, choice, Carry(model.init_state(BATCH)), None, predicts=True, exact=exact)
    assert events == [*[False] * (len(events) - 2), "cleared", True]
    assert len(events) > 2


@torch.no_grad()
def test_padding_to_a_fixed_capacity_changes_nothing():
    model, policy = make_model("lstm"), make_policy()
    carry = Carry(model.init_state(BATCH), torch.ones(BATCH, 16, dtype=torch.float64))
    choice = policy.choose(make_window(), Rates(0.6, 0.3), Random(4, Stream.DRAWS, 0))
    padded = dataclasses.replace(choice, prediction_capacity=BATCH * TIME, neighbor_capacity=BATCH * TIME)
    for exact in (True, False):
        plain = unroll(model, policy, choice, carry, None, predicts=True, exact=exact)
        static = unroll(model, policy, padded, carry, None, predicts=True, exact=exact)
        assert torch.equal(plain.inputs, static.inputs)


@torch.no_grad()
def test_the_output_layer_sees_only_the_positions_that_use_a_prediction(monkeypatch):
    model, policy = make_model("lstm"), make_policy()
    carry = Carry(model.init_state(BATCH), torch.zeros(BATCH, 16, dtype=torch.float64))
    choice = policy.choose(make_window(), Rates(0.3, 0.3), Random(4, Stream.DRAWS, 0))
    seen = []
    head = type(model).head
    monkeypatch.setattr(
        type(model), "head", lambda self, hidden: seen.append(hidden.shape[:-1].numel()) or head(self, hidden)
    )
    unroll(model, policy, choice, carry, None, predicts=True, passes=1)
    assert seen == [int(choice.takes_prediction.sum())]
    assert 0 < seen[0] < BATCH * TIME


@torch.no_grad()
def test_the_first_input_of_the_text_is_gold_and_of_a_later_window_may_be_predicted():
    model, policy = make_model("lstm"), make_policy()
    choice = policy.choose(make_window(), Rates(1.0, 0.0), Random(4, Stream.DRAWS, 0))
    state = model.init_state(BATCH)
    first = unroll(model, policy, choice, Carry(state), None, predicts=True)
    assert torch.equal(first.inputs[:, 0], choice.gold[:, 0])
    assert int(first.choice.replaced()[0]) == BATCH * (TIME - 1)  # and it is counted as gold
    hidden = torch.zeros(BATCH, 16, dtype=torch.float64)
    hidden[:, 0] = 50.0  # decides the prediction
    later = unroll(model, policy, choice, Carry(state, hidden), None, predicts=True)
    expected = [
        slow_pick(model.head(hidden[row]), choice.prediction_uniform[row, 0].item()) for row in range(BATCH)
    ]
    assert later.inputs[:, 0].tolist() == expected


@torch.no_grad()
def test_a_centroid_enters_as_the_weighted_mean_of_the_neighbors_embeddings():
    model = make_model("lstm")
    policy = make_policy(reading=Reading(draw="centroid"))
    choice = policy.choose(make_window(), Rates(0.0, 0.5), Random(4, Stream.DRAWS, 0))
    assert choice.takes_neighbor.any()
    vectors = policy.vectors(model.embed, choice.inputs(choice.gold), choice)
    table = policy.table
    for row in range(BATCH):
        for t in range(TIME):
            word = choice.gold[row, t]
            expected = model.embedding.weight[word]
            if choice.takes_neighbor[row, t]:
                weights = torch.softmax(table.similarities[word] / 0.5, -1).double()
                expected = sum(
                    w * model.embedding.weight[n] for w, n in zip(weights, table.ids[word], strict=True)
                )
            torch.testing.assert_close(vectors[row, t], expected)
    padded = dataclasses.replace(choice, neighbor_capacity=BATCH * TIME)
    torch.testing.assert_close(policy.vectors(model.embed, choice.inputs(choice.gold), padded), vectors)
