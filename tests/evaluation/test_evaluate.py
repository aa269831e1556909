"""Every token is scored once, with the history it really has."""

import pytest
import torch

from nnrs.errors import ConfigError
from nnrs.evaluation.evaluate import text_perplexity
from nnrs.evaluation.generate import continuations, nucleus
from nnrs.models import MODELS, ModelConfig, build_model
from nnrs.seeding import Random, Stream

VOCAB = 19


def make_model(kind="lstm"):
    config = ModelConfig(kind=kind, units=16, dropout=0.5, heads=2, context=2000)
    model = build_model(config, VOCAB, Random(1, Stream.INITIALISATION)).double()
    with torch.no_grad():
        model.embedding.weight.mul_(20)
    return model


def text(length):
    return (Random(7, Stream.TEXT).uniform(length) * VOCAB).to(torch.int32)


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_one_stream_scores_every_token_after_its_whole_history(kind):
    model, ids = make_model(kind), text(1500)  # more than two windows of 700
    metric = text_perplexity(model, ids, eos_id=0)
    inputs = torch.cat([torch.tensor([0]), ids[:-1].long()])
    logits, _ = model(inputs[None])  # all at once, nothing carried
    nats = -logits[0].float().log_softmax(-1).gather(1, ids.long()[:, None]).double()
    assert int(metric.tokens) == 1500
    assert metric.nats_per_token() == pytest.approx(nats.mean().item(), rel=1e-6)


@pytest.mark.parametrize("streams", [2, 7, 10])
def test_several_streams_score_the_remainder_too(streams):
    model, ids = make_model(), text(101)
    metric = text_perplexity(model, ids, eos_id=0, streams=streams)
    assert int(metric.tokens) == 101
    one = text_perplexity(model, ids, eos_id=0)
    assert metric.compute() != one.compute()  # their histories are shorter
    assert metric.compute() == pytest.approx(one.compute(), rel=0.5)


def test_more_streams_than_tokens_are_no_error():
    assert int(text_perplexity(make_model(), text(3), eos_id=0, streams=10).tokens) == 3


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_greedy_continuation_takes_the_likeliest_token_each_time(kind):
    model, prompt = make_model(kind), torch.tensor([0, 3, 5])
    made = continuations(model, prompt, count=2, length=6, temperature=0.0)
    ids = prompt.tolist()
    for _ in range(6):
        logits, _ = model(torch.tensor([ids]))
        ids.append(int(logits[0, -1].argmax()))
    assert made.tolist() == [ids[3:]] * 2


def test_samples_repeat_with_their_seed_and_differ_within_and_between_seeds():
    model, prompt = make_model(), torch.tensor([0])
    first, again, other = (
        continuations(model, prompt, count=3, length=20, seed=seed).tolist() for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert first[0] != first[1]


def test_first_tokens_are_sampled_as_often_as_the_model_says():
    model, count = make_model(), 20_000
    with torch.no_grad():
        logits, _ = model(torch.tensor([[0]]))
    shares = torch.softmax(logits[0, -1].float() / 0.8, -1)
    drawn = continuations(model, torch.tensor([0]), count=count, length=1, temperature=0.8)[:, 0]
    seen = torch.bincount(drawn, minlength=VOCAB) / count
    assert ((seen - shares).abs() <= 4 * (shares * (1 - shares) / count).sqrt() + 1e-6).all()


def test_nucleus_keeps_the_smallest_sufficient_set():
    probabilities = torch.tensor([[0.1, 0.4, 0.2, 0.3]])
    torch.testing.assert_close(nucleus(probabilities, 0.71), torch.tensor([[0.0, 4 / 9, 2 / 9, 3 / 9]]))
    torch.testing.assert_close(nucleus(probabilities, 0.05), torch.tensor([[0.0, 1.0, 0.0, 0.0]]))
    torch.testing.assert_close(nucleus(probabilities, 1.0), probabilities)


def test_bad_settings_are_refused():
    for bad in ({"count": 0}, {"length": 0}, {"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.5}):
        with pytest.raises(ConfigError):
            continuations(make_model(), torch.tensor([0]), **{"count": 1, "length": 1, **bad})
