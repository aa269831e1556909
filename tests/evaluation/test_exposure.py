"""Exposure is measured on the model's own history, and its accumulated error where the truth is known."""

import math
from itertools import cycle, islice
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nnrs.batches import Windows
from nnrs.errors import ConfigError
from nnrs.evaluation import exposure
from nnrs.evaluation.generate import DECODINGS, Decoding, generate
from nnrs.models import MODELS, ModelConfig, build_model
from nnrs.seeding import Random, Stream
from nnrs.synthetic import SyntheticLanguage

VOCAB = 19


def ids(count, length, seed=5):
    return (Random(seed, Stream.TEXT).uniform(count, length) * VOCAB).long()


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("decoding", [DECODINGS["greedy"], DECODINGS["sample"]], ids=["greedy", "sample"])
@torch.no_grad()
def test_the_gold_token_is_scored_after_what_the_model_said_and_after_the_gold_text(
    make_model, kind, decoding
):
    model, prefixes, gold = make_model(kind), ids(3, 4), ids(3, 6, seed=6)
    seen = exposure.evaluate(model, prefixes, gold, decoding=decoding, recovery=2, seed=9)
    own = generate(model, prefixes, length=4, decoding=decoding, seed=9)
    assert torch.equal(seen.generated, own)
    for row in range(3):
        for step in range(6):
            before = [*own[row, :step].tolist(), *gold[row, 4:step].tolist()]  # gold again after four steps
            for history, nats, hits in (
                (before, seen.own_nats, seen.own_hits),
                (gold[row, :step].tolist(), seen.gold_nats, seen.gold_hits),
            ):
                logits, _ = model(torch.tensor([prefixes[row].tolist() + history]))
                expected = F.cross_entropy(logits[0, -1], gold[row, step])
                assert nats[row, step].item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-6)
                assert hits[row, step] == (logits[0, -1].argmax() == gold[row, step])


def test_the_gold_continuation_changes_no_generation(make_model):
    model, prefixes = make_model(), ids(20, 4)
    first, second = (exposure.evaluate(model, prefixes, ids(20, 6, seed), seed=1) for seed in (6, 7))
    assert torch.equal(first.generated, second.generated)
    assert not torch.equal(first.own_nats, second.own_nats)


def test_corrupting_the_models_own_words_changes_the_curve_from_the_second_step_on(make_model):
    model, prefixes, gold = make_model(), ids(50, 4), ids(50, 6, seed=6)
    clean = exposure.evaluate(model, prefixes, gold, seed=1)
    noisy = exposure.evaluate(model, prefixes, gold, decoding=Decoding(temperature=50.0), seed=1)
    assert torch.equal(clean.own_nats[:, 0], noisy.own_nats[:, 0])  # nothing of its own yet
    assert torch.equal(clean.gold_nats, noisy.gold_nats)
    moved = (clean.own_nats - noisy.own_nats).abs() > 0
    assert moved[:, 1].double().mean() > 0.4  # some rows drew the same first word
    assert moved[:, -1].double().mean() > 0.9


def test_a_curve_has_the_means_and_an_interval_around_the_excess(make_model):
    seen = exposure.evaluate(make_model(), ids(60, 4), ids(60, 6, seed=6))
    curve = seen.curve()
    for h in range(6):
        assert curve["excess_nats"][h] == pytest.approx(curve["own_nats"][h] - curve["gold_nats"][h])
        assert curve["excess_low"][h] <= curve["excess_nats"][h] <= curve["excess_high"][h]
    assert curve["excess_nats"][0] == pytest.approx(0.0, abs=1e-12)  # the first step has the same history
    assert curve["own_accuracy"][0] == pytest.approx(seen.gold_hits[:, 0].double().mean().item())


def test_any_function_from_ids_to_logits_is_measured_like_a_model_of_ours(make_model):
    model, prefixes, gold = make_model(), ids(3, 4), ids(3, 6, seed=6)
    ours, theirs = (
        exposure.evaluate(given, prefixes, gold, seed=2) for given in (model, lambda ids: model(ids)[0])
    )
    torch.testing.assert_close(ours.own_nats, theirs.own_nats)
    assert torch.equal(ours.generated, theirs.generated)


def test_bad_settings_are_refused(make_model):
    model, prefixes, gold = make_model(), ids(2, 4), ids(2, 6)
    for bad in (
        {"prefixes": prefixes[:1]},
        {"recovery": 6},
        {"recovery": -1},
        {"decoding": Decoding(width=2)},
        {"prefixes": prefixes[:0], "continuations": gold[:0]},
        {"prefixes": prefixes[:, :0]},
    ):
        given = {"prefixes": prefixes, "continuations": gold, **bad}
        with pytest.raises(ConfigError):
            exposure.evaluate(model, given.pop("prefixes"), given.pop("continuations"), **given)


class Dropping(nn.Module):
    """A model with dropout of torch's own, a frozen part, and as many calls as it is to survive."""

    def __init__(self, calls=10**6, give=lambda logits: logits):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.drop = nn.Embedding(VOCAB, 16), nn.Dropout(0.5)
        self.out, self.frozen = nn.Linear(16, VOCAB), nn.Dropout(0.5).eval()
        self.calls, self.give = calls, give

    def forward(self, ids):
        self.calls -= 1
        if self.calls < 0:
            raise KeyError("mine")
        return self.give(self.out(self.drop(self.frozen(self.embed(ids)))))


def modes(model):
    return [part.training for part in model.modules()]


def test_a_module_in_training_mode_is_measured_in_eval_mode_and_left_as_it_was():
    model, prefixes, gold = Dropping(), ids(30, 4), ids(30, 5, seed=6)
    before = modes(model)
    assert set(before) == {True, False}
    first, second = (exposure.evaluate(model, prefixes, gold, seed=1) for _ in range(2))
    torch.testing.assert_close(first.own_nats[:, 0], first.gold_nats[:, 0])  # the same history
    assert torch.equal(first.own_nats, second.own_nats)
    assert modes(model) == before
    regrets = exposure.accumulated_error(model, Dropping(), prefixes, length=3)
    assert (regrets.own == 0).all()  # two models of the same weights
    assert modes(model) == before
    flat = exposure.accumulated_error(model, lambda ids: torch.zeros(*ids.shape, VOCAB), prefixes, length=3)
    assert flat.excess_percent()[0] == 0
    model.calls = 2
    with pytest.raises(KeyError, match="mine"):
        exposure.evaluate(model, prefixes, gold)
    assert modes(model) == before


GIVEN = {
    "tuple": lambda logits: (logits, None),
    "a loss before": lambda logits: (logits.mean(), logits),
    "object": lambda logits: SimpleNamespace(logits=logits),
    "dictionary": lambda logits: {"loss": None, "logits": logits},
    "prompt before": lambda logits: F.pad(logits, (0, 0, 3, 0)),
}


@pytest.mark.parametrize("give", GIVEN.values(), ids=GIVEN)
def test_logits_are_found_in_what_a_model_gives_back(give):
    prefixes, gold = ids(3, 4), ids(3, 5, seed=6)
    plain, found = (exposure.evaluate(model, prefixes, gold) for model in (Dropping(), Dropping(give=give)))
    assert torch.equal(plain.own_nats, found.own_nats)
    assert torch.equal(plain.gold_nats, found.gold_nats)


@pytest.mark.parametrize(
    "give",
    [
        lambda logits: None,
        lambda logits: (),
        lambda logits: logits[:, -1],
        lambda logits: (logits.mean(), None),
    ],
    ids=["nothing", "empty", "of the last", "a loss alone"],
)
def test_what_has_no_logits_for_each_id_is_refused(give):
    with pytest.raises(ConfigError, match=r"of ids \(3, 4\) the model made .* \(batch, time, vocab\)"):
        exposure.evaluate(Dropping(give=give), ids(3, 4), ids(3, 5))


def test_prefixes_of_no_token_are_refused_by_their_shape(make_model):
    for call in (
        lambda none: exposure.evaluate(make_model(), none, ids(2, 3)),
        lambda none: exposure.accumulated_error(make_model(), make_model(), none, length=2),
    ):
        with pytest.raises(ConfigError, match=r"at least one of each, got \(2, 0\)"):
            call(ids(2, 0))


# The accumulated error, where the truth is known.


def test_the_true_model_accumulates_no_error():
    language = SyntheticLanguage(concepts=6, synonyms=2)
    seen = exposure.accumulated_error(
        language.logits, language.logits, torch.zeros(100, 1, dtype=torch.long), length=10
    )
    assert torch.equal(seen.excess_percent(), torch.zeros(10, dtype=torch.float64))
    low, high = seen.interval()
    assert (low <= 0).all()
    assert (high >= 0).all()


def derailing(slip, lost):
    """Tokens 0 and 1 are the truth, a fair coin. The model says 2 with probability `slip`, and after the first 2 with
    probability `lost`."""

    def logits(ids):
        off = (ids == 2).cumsum(dim=1) > 0
        wrong = torch.where(off, lost, slip).double()
        return torch.stack([(1 - wrong) / 2, (1 - wrong) / 2, wrong], dim=-1).log()

    return logits


def test_a_compounding_error_has_its_closed_form():
    slip, lost, length, count = 0.1, 0.6, 12, 40_000
    truth = torch.tensor([0.5, 0.5, 0.0]).double().log()
    seen = exposure.accumulated_error(
        derailing(slip, lost),
        lambda ids: truth.expand(*ids.shape, 3),
        torch.zeros(count, 1, dtype=torch.long),
        length=length,
    )
    # On the truth's path nobody slips: each step's regret is KL = -log(1 - slip). On its own path the model is still
    # on the rails at step t with probability (1 - slip)^(t - 1), and regrets -log(1 - lost) once it is off them.
    on, off = -math.log(1 - slip), -math.log(1 - lost)
    still = [(1 - slip) ** t for t in range(length)]
    total = 0.0
    found, (low, high) = seen.excess_percent(), seen.interval()
    for t, share in enumerate(still):
        total += share * on + (1 - share) * off
        expected = 100 * (total / ((t + 1) * on) - 1)
        assert low[t] - 1e-9 <= expected <= high[t] + 1e-9
        assert found[t].item() == pytest.approx(expected, rel=0.03, abs=1e-9)
    assert found[0] == 0.0
    assert (found[1:] > found[:-1]).all()


def test_errors_that_do_not_depend_on_the_history_do_not_accumulate():
    flat = derailing(0.1, 0.1)
    truth = torch.tensor([0.5, 0.5, 0.0]).double().log()
    seen = exposure.accumulated_error(
        flat, lambda ids: truth.expand(*ids.shape, 3), torch.zeros(50, 1, dtype=torch.long), length=8
    )
    torch.testing.assert_close(seen.excess_percent(), torch.zeros(8).double(), atol=1e-9, rtol=0)


def spoken(language, tokens, step):
    """The ids of so many tokens of text, `<eos>` being 0; each step has its own."""
    places = {word: place for place, word in enumerate(language.words)}
    lines = language.sentences(tokens, Random(0, Stream.TEXT, step))
    words = (word for line in lines for word in (*line, "<eos>"))
    return torch.tensor([places[word] for word in islice(words, tokens)])


def trained(language, tokens, updates):
    """An LSTM without dropout after so many updates on a text of so many tokens, over and over."""
    config = ModelConfig(units=64, dropout=0.0)
    model = build_model(config, len(language.words), Random(1, Stream.INITIALISATION))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    windows, state = Windows(spoken(language, tokens, 1), batch_size=5, length=20, eos_id=0), None
    for window in islice(cycle(windows), updates):
        logits, state = model(window.inputs, state)
        state = tuple(part.detach() for part in state)
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), window.targets.flatten()).backward()
        optimizer.step()
    return model


def test_a_model_trained_on_too_little_accumulates_errors_that_one_trained_on_plenty_does_not():
    language = SyntheticLanguage(concepts=12, synonyms=2)
    prefixes = spoken(language, 400 * 40, 2).view(400, 40)[:, :10]
    # 600 tokens are learned by heart within 500 updates. Where the text goes another way the model hesitates; on its
    # own it falls back into what it knows by heart, and there it is sure of one word at a time, as the truth is not.
    models = {
        "little": trained(language, 600, 500),
        "plenty": trained(language, 50_000, 500),
        "truth": language.logits,
    }
    excess, low, high = {}, {}, {}
    for name, model in models.items():
        seen = exposure.accumulated_error(model, language.logits, prefixes, length=20)
        excess[name], (low[name], high[name]) = seen.excess_percent(), seen.interval()
    assert low["little"][-1] > 15
    assert excess["little"][-1] > excess["little"][9] > excess["little"][4]  # it goes on growing
    assert abs(excess["plenty"][-1]) < 5
    assert high["plenty"][-1] < low["little"][-1]
    assert low["truth"][-1] <= 0 <= high["truth"][-1]


def test_it_is_one_import_away():
    import nnrs

    assert nnrs.exposure.evaluate is exposure.evaluate
