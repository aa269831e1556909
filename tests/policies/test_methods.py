"""What every registered method must do, and what tells them apart."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from tests.surroundings import unchecked

from nnrs.batches import IGNORED, Window
from nnrs.errors import ConfigError
from nnrs.integrations.settings import Settings
from nnrs.models import ModelConfig, build_model
from nnrs.policies.base import Rates
from nnrs.policies.gumbel import GumbelPolicy
from nnrs.policies.methods import METHODS, Material, PolicyConfig
from nnrs.schedules import Schedule
from nnrs.seeding import Random, Stream
from nnrs.temperature import TemperatureState
from nnrs.training.unroll import Carry, unroll, window_loss

VOCAB, EOS, UNK = 40, 0, 1
BATCH, TIME = 6, 12


def material(seed=1):
    random = Random(11, Stream.TEXT)
    ids = (random.uniform(5000).square() * VOCAB).long().to(torch.int32)  # low ids are frequent
    vectors = random.uniform(VOCAB, 8) - 0.5
    vectors[[7, 8]] = 0.0  # no vector
    return Material(
        train_ids=ids,
        counts=torch.bincount(ids.long(), minlength=VOCAB).double(),
        vectors=vectors,
        protected=(EOS, UNK),
        case_groups=torch.arange(VOCAB),
        unknown_id=UNK,
        seed=seed,
    )


def configured(method, **settings):
    """A config with k = 3 where the method has a k."""
    return PolicyConfig(method=method, **({"k": 3} if METHODS[method].rules else {}) | settings)


def window(step=0):
    ids = (Random(9, Stream.TEXT, step).uniform(BATCH, TIME + 2) * VOCAB).long()
    return Window(inputs=ids[:, 1:-1], targets=ids[:, 2:], previous=ids[:, :-2])


def model():
    return build_model(ModelConfig(units=16, dropout=0.2), VOCAB, Random(1, Stream.INITIALISATION))


def loss_and_gradients(method, rates, **settings):
    net, policy = model(), configured(method, **settings).build(material())
    choice = policy.choose(window(), rates, Random(4, Stream.DRAWS))
    masks = net.draw_masks(BATCH, TIME, Random(4, Stream.DROPOUT))
    carry = Carry(net.init_state(BATCH))
    unrolled = unroll(net, policy, choice, carry, masks, predicts=rates.prediction > 0)
    loss = window_loss(net, unrolled.hidden, unrolled.choice.targets)
    loss.backward()
    return loss.detach(), [parameter.grad for parameter in net.parameters()], unrolled, policy


def assert_bitwise_teacher_forcing(result):
    loss, gradients, unrolled, _ = result
    plain_loss, plain_gradients, _, _ = loss_and_gradients("mle", Rates())
    assert torch.equal(unrolled.inputs, window().inputs)
    assert torch.equal(loss, plain_loss)
    assert all(torch.equal(a, b) for a, b in zip(gradients, plain_gradients, strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_at_rate_0_every_method_is_bitwise_teacher_forcing(method):
    assert_bitwise_teacher_forcing(loss_and_gradients(method, Rates(0.0, 0.0)))


@pytest.mark.parametrize(
    ("method", "settings"),
    [(method, {}) for method, made in METHODS.items() if made.rules]
    + [("nnrs", {"draw": "centroid"}), ("nnrs", {"rule": "effective"}), ("nnrs", {"replace": "targets"})],
    ids=str,
)
def test_with_k_0_every_neighbor_method_is_bitwise_teacher_forcing(method, settings):
    assert_bitwise_teacher_forcing(loss_and_gradients(method, Rates(0.0, 1.0), k=0, **settings))


@pytest.mark.parametrize("granularity", ["token", "position", "sequence"])
@pytest.mark.parametrize("method", [name for name, made in METHODS.items() if made.proposal])
def test_protected_tokens_and_those_without_a_vector_are_never_replaced_nor_proposed(method, granularity):
    policy = configured(method, granularity=granularity).build(material())
    for step in range(30):
        choice = policy.choose(window(step), Rates(0.0, 1.0), Random(4, Stream.DRAWS, step))
        spared = torch.isin(choice.gold, torch.tensor([EOS, UNK, 7, 8]))
        assert not (choice.takes_neighbor & spared).any()
        proposed = choice.neighbors[choice.takes_neighbor]
        allowed = torch.tensor([UNK]) if method == "word-dropout" else policy.replaceable.nonzero()[:, 0]
        assert torch.isin(proposed, allowed).all()
        assert (proposed != choice.gold[choice.takes_neighbor]).all()  # a replacement changes the token


@pytest.mark.parametrize("method", METHODS)
def test_the_same_step_gives_the_same_inputs_another_step_or_seed_others(method):
    def inputs(seed, step):
        policy = configured(method).build(material())
        return policy.choose(window(), Rates(0.0, 0.5), Random(seed, Stream.DRAWS, step)).neighbors

    assert torch.equal(inputs(4, 2), inputs(4, 2))
    if METHODS[method].proposal and method != "word-dropout":
        assert not torch.equal(inputs(4, 2), inputs(4, 3))
        assert not torch.equal(inputs(4, 2), inputs(5, 2))


@pytest.mark.parametrize("method", METHODS)
def test_the_tensors_passed_in_are_left_untouched(method):
    net, policy, given = model(), configured(method).build(material()), window()
    before = [part.clone() for part in (given.inputs, given.targets, given.previous)]
    choice = policy.choose(given, Rates(0.5, 0.5), Random(4, Stream.DRAWS))
    unroll(net, policy, choice, Carry(net.init_state(BATCH)), None, predicts=METHODS[method].predictions)
    assert all(
        torch.equal(a, b) for a, b in zip(before, (given.inputs, given.targets, given.previous), strict=True)
    )


def test_methods_on_the_same_tokens_have_the_same_effective_rate():
    masks = {}
    for method in ("nnrs", "word-dropout", "unigram", "shuffled"):
        policy = configured(method).build(material())
        masks[method] = policy.choose(window(), Rates(0.0, 0.5), Random(4, Stream.DRAWS)).takes_neighbor
    assert masks["nnrs"].any()
    assert all(torch.equal(mask, masks["nnrs"]) for mask in masks.values())


def test_unigram_noise_follows_the_counts_without_the_token_itself():
    policy, given = PolicyConfig(method="unigram").build(material()), material()
    counts = torch.where(policy.replaceable, given.counts, 0.0)
    token, size = 5, 60_000
    drawn = policy.proposal.draw(torch.full((size,), token), Random(0, Stream.DRAWS).uniform(size), 1.0)
    others = counts.clone()
    others[token] = 0.0
    shares = (others / others.sum()).tolist()
    for word in range(VOCAB):
        seen = (drawn == word).double().mean().item()
        assert abs(seen - shares[word]) <= 4 * math.sqrt(shares[word] * (1 - shares[word]) / size)


def test_shuffled_rows_are_those_of_another_word_of_similar_frequency():
    real = PolicyConfig(method="nnrs", k=3).build(material()).table
    shuffled = PolicyConfig(method="shuffled", k=3).build(material()).table
    rows = {tuple(row) for row in real.ids.tolist()}
    assert torch.equal(real.replaceable, shuffled.replaceable)
    for word in real.replaceable.nonzero()[:, 0].tolist():
        kept = shuffled.ids[word][shuffled.similarities[word] > -torch.inf].tolist()
        assert word not in kept
        assert any(set(kept) == set(row) - {word} for row in rows)
        assert kept != real.ids[word].tolist()
    again = PolicyConfig(method="shuffled", k=3).build(material()).table
    other = PolicyConfig(method="shuffled", k=3).build(material(seed=2)).table
    assert torch.equal(shuffled.ids, again.ids)
    assert not torch.equal(shuffled.ids, other.ids)


def test_replacing_targets_leaves_the_inputs_gold_and_the_callers_targets_alone():
    policy = PolicyConfig(method="nnrs", k=3, replace="targets").build(material())
    given = window()
    choice = policy.choose(given, Rates(0.0, 0.6), Random(4, Stream.DRAWS))
    assert torch.equal(choice.inputs(choice.gold), given.inputs)
    changed = choice.targets != given.targets
    assert changed.any()
    assert policy.replaceable[given.targets[changed]].all()
    neighbors = policy.table.ids[given.targets[changed]]
    assert (neighbors == choice.targets[changed].unsqueeze(1)).any(1).all()
    assert int(choice.replaced()[1]) == int(changed.sum())


def test_tprs_can_propose_from_the_row_of_the_previous_token():
    settings = {"method": "tprs", "transition_row": "previous", "transition_whole": True}
    policy, given = PolicyConfig(**settings).build(material()), window()
    ids = material().train_ids.long()
    followers = {(a, b) for a, b in zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True)}
    choice = policy.choose(given, Rates(0.0, 1.0), Random(4, Stream.DRAWS))
    taken = choice.takes_neighbor
    assert taken.any()
    pairs = zip(given.previous[taken].tolist(), choice.neighbors[taken].tolist(), strict=True)
    assert all(pair in followers for pair in pairs)


def test_a_temperature_saved_without_neighbors_is_a_start_where_there_are_some():
    alone, policy = (configured(method).build(material()) for method in ("ss", "nnrs"))
    alone.end_epoch(30.0)
    policy.end_epoch(30.0)
    policy.temperature_state = TemperatureState(**dataclasses.asdict(alone.temperature_state))
    assert policy.temperature_state == TemperatureState(0.5, 40.0)  # not τ = 1, which is a fixed point
    policy.end_epoch(30.0)  # 30 < 40: 0.5 + |0.5 − (2^0.5 − 1)|
    assert policy.temperature == pytest.approx(0.585786, abs=1e-5)
    saved = policy.temperature_state
    policy.temperature_state = TemperatureState(**dataclasses.asdict(saved))
    assert policy.temperature_state == saved


def test_gsns_learns_only_the_rows_that_the_curriculum_replaced():
    _, _, unrolled, policy = loss_and_gradients("gsns", Rates(0.0, 0.4), k=3)
    gradient = policy.learned["neighbor_logits"].grad
    touched = gradient.abs().sum(-1) > 0
    replaced = unrolled.choice.gold[unrolled.choice.takes_neighbor].unique()
    assert set(touched.nonzero()[:, 0].tolist()) == set(replaced.tolist())
    assert gradient.isfinite().all()


def test_gsns_padded_to_a_fixed_capacity_gives_the_same_vectors_and_gradients():
    results = []
    for capacity in (None, BATCH * TIME):
        net, policy = model(), PolicyConfig(method="gsns", k=3).build(material())
        choice = policy.choose(window(), Rates(0.0, 0.4), Random(4, Stream.DRAWS))
        choice = dataclasses.replace(choice, neighbor_capacity=capacity)
        vectors = policy.vectors(net.embed, choice.inputs(choice.gold), choice)
        vectors.square().sum().backward()
        results.append((vectors.detach(), net.embedding.weight.grad, policy.learned["neighbor_logits"].grad))
    for plain, padded in zip(*results, strict=True):
        assert padded.isfinite().all()
        torch.testing.assert_close(plain, padded)


def test_an_own_word_proposed_from_the_previous_row_does_not_count_as_replaced():
    settings = {"method": "tprs", "transition_row": "previous", "transition_whole": True}
    policy = PolicyConfig(**settings).build(material())
    counted = same = 0
    for step in range(50):
        choice = policy.choose(window(step), Rates(0.0, 1.0), Random(4, Stream.DRAWS, step))
        counted += int(choice.replaced()[1]) - int((choice.inputs(choice.gold) != choice.gold).sum())
        same += int((choice.takes_neighbor & (choice.neighbors == choice.gold)).sum())
    assert counted == 0
    assert same > 0  # it does happen


def test_gsns_feeds_the_neighbor_it_says_it_drew_and_starts_at_eq_3():
    net, policy = model(), PolicyConfig(method="gsns", k=3).build(material())
    choice = policy.choose(window(), Rates(0.0, 0.6), Random(4, Stream.DRAWS))
    inputs = choice.inputs(choice.gold)
    torch.testing.assert_close(policy.vectors(net.embed, inputs, choice), net.embed(inputs))
    nnrs = PolicyConfig(method="nnrs", k=3, rule="constant", temperature=0.5).build(material())
    assert policy.effective_neighbors() == pytest.approx(nnrs.effective_neighbors(), rel=1e-5)


def test_contradictions_and_unknown_names_are_refused():
    for settings, message in [
        ({"method": "nrns"}, "Did you mean 'nnrs'"),
        ({"method": "nnrs", "prediction_rate": Schedule()}, "no --prediction-rate"),
        ({"method": "mle", "neighbor_rate": Schedule()}, "no --neighbor-rate"),
        ({"method": "tprs", "draw": "centroid"}, "no --draw"),
        ({"method": "gsns", "draw": "centroid"}, "no centroid"),
        ({"method": "gsns", "replace": "targets"}, "replaces no targets"),
        ({"method": "ss", "replace": "targets"}, "no --replace"),
        ({"method": "mle", "k": 5}, "no --k"),
        ({"method": "nnrs", "passes": 3}, "no --passes"),
        ({"method": "nnrs", "transition_whole": True}, "no --transition-whole"),
        ({"method": "tprs", "transition_whole": True, "k": 5}, "neither k nor temperature"),
        ({"method": "nnrs", "replace": "targets", "draw": "centroid"}, "not a vector"),
        ({"method": "ss", "unroll": "exactly"}, "Did you mean 'exact'"),
        ({"method": "ss", "passes": 0}, "at least 1"),
        ({"method": "nnrs", "granularity": "tokens"}, "Did you mean 'token'"),
        ({"method": "nnrs", "temperature": 0.0}, "temperature must be in"),
        ({"method": "nnrs", "k": -1}, "0 or more"),
        ({"method": "nnrs", "rule": "prosa"}, "Did you mean 'prose'"),
        ({"method": "gsns", "rule": "prose"}, "constant temperature"),
        ({"method": "unigram", "temperature": 0.1}, "no --temperature: leave it out, or use one of nnrs"),
        ({"method": "ss", "rule": "prose"}, "no --rule: leave it out, or use one of nnrs"),
        ({"method": "mle", "granularity": "position"}, "no --granularity: leave it out, or use one of ss"),
    ]:
        with pytest.raises(ConfigError, match=message):
            PolicyConfig(**settings)
    with pytest.raises(ConfigError, match="k"):
        PolicyConfig(method="nnrs", k=VOCAB).build(material())


def test_a_temperature_of_numpys_becomes_a_plain_number_and_a_text_is_refused():
    with unchecked():
        config = PolicyConfig(method="nnrs", temperature=np.float32(0.75))
    assert type(config.temperature) is float
    assert config == PolicyConfig(method="nnrs", temperature=0.75)
    with (
        unchecked(),
        pytest.raises(ConfigError, match=r"temperature must be in .*, got '0\.5'"),
    ):
        PolicyConfig(method="nnrs", temperature="0.5")


@pytest.mark.parametrize(
    ("rule", "temperature", "told"),
    [
        (
            "prose",
            0.1,
            r"rule prose keeps .* in \[0\.5, 10\], and would begin at 0\.5 with 0\.1: leave the temp",
        ),
        (
            "equation",
            11.0,
            r"rule equation keeps .* and would begin at 10 with 11: .* or use the rule constant\.$",
        ),
        (
            "effective",
            0.9,
            r"rule effective finds its temperature by itself, got 0\.9: leave the temperature out",
        ),
    ],
)
def test_a_temperature_that_a_rule_would_not_begin_with_is_refused(rule, temperature, told):
    """Algorithm 1's own 0.1 among them: it is clipped at once, so that runs with it and without it are the same."""
    with pytest.raises(ConfigError, match=told):
        PolicyConfig(method="nnrs", rule=rule, temperature=temperature)
    with pytest.raises(ConfigError, match=told):
        Settings(neighbor_rate=0.1, rule=rule, temperature=temperature)
    assert PolicyConfig(method="nnrs", rule="constant", temperature=temperature).temperature == temperature
    assert Settings(prediction_rate=0.1, rule=rule, temperature=temperature)  # which has no neighbors to draw
    assert PolicyConfig(method="nnrs", rule=rule, temperature=0.5).temperature == 0.5


def test_labels_tell_settings_apart():
    exact = PolicyConfig(method="ss-nnrs", unroll="exact", k=13).label()
    assert exact == (
        "policy:ss-nnrs|eps:0-0.2:exponential|ss:exact:sample|gamma:0-0.2:exponential|k:13|tau:prose:0.5"
    )
    assert PolicyConfig(method="ss", passes=2).label().endswith("ss:parallel2:sample")
    assert PolicyConfig(method="nnrs", k=3, replace="targets").label().endswith("replace:targets")


@pytest.mark.parametrize("replaced", ["inputs", "targets"])
@pytest.mark.parametrize("granularity", ["token", "position", "sequence"])
@pytest.mark.parametrize("method", [name for name in METHODS if name != "mle"])
def test_nothing_is_replaced_where_nothing_is_scored(method, granularity, replaced):
    learned = METHODS[method].policy is GumbelPolicy  # which replaces no targets
    settings = {"replace": replaced} if METHODS[method].proposal and not learned else {}
    policy = configured(method, granularity=granularity, **settings).build(material())
    given = window()
    targets = given.targets.clone()
    targets[:, TIME // 2 :] = IGNORED
    short = dataclasses.replace(given, targets=targets, padding=int((targets == IGNORED).sum()))
    whole, part = (policy.choose(each, Rates(0.5, 0.5), Random(4, Stream.DRAWS)) for each in (given, short))
    first, rest = slice(None, TIME // 2), slice(TIME // 2, None)
    assert (part.targets[:, rest] == IGNORED).all()
    for name in ("takes_prediction", "takes_neighbor", "targets"):
        assert torch.equal(getattr(part, name)[:, first], getattr(whole, name)[:, first])  # the same draws
    assert not part.takes_prediction[:, rest].any()
    assert not part.takes_neighbor[:, rest].any()
    replaced_there = sum(int(count) for count in part.replaced())
    assert replaced_there <= short.num_tokens
    assert whole.takes_prediction[:, rest].any()  # which would have been
