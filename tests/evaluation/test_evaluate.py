"""Every token is scored once, with the history it really has."""

import pytest
import torch

from nnrs.evaluation.evaluate import text_nats, text_perplexity
from nnrs.models import MODELS
from nnrs.seeding import Random, Stream

VOCAB = 19


def text(length):
    return (Random(7, Stream.TEXT).uniform(length) * VOCAB).to(torch.int32)


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_one_stream_scores_every_token_after_its_whole_history(make_model, kind):
    model, ids = make_model(kind), text(1500)  # more than two windows of 700
    found, metric = text_nats(model, ids, eos_id=0)
    inputs = torch.cat([torch.tensor([0]), ids[:-1].long()])
    logits, _ = model(inputs[None])  # all at once, nothing carried
    nats = -logits[0].float().log_softmax(-1).gather(1, ids.long()[:, None])[:, 0].double()
    torch.testing.assert_close(found, nats, rtol=1e-5, atol=1e-5)
    assert int(metric.tokens) == 1500
    assert metric.nats_per_token() == pytest.approx(nats.mean().item(), rel=1e-6)


@pytest.mark.parametrize("streams", [2, 7, 10])
def test_several_streams_score_the_remainder_too(make_model, streams):
    model, ids = make_model(), text(101)
    nats, metric = text_nats(model, ids, eos_id=0, streams=streams)
    assert len(nats) == 101
    assert float(nats.sum()) == pytest.approx(float(metric.nats))
    alone = text_nats(model, ids[: -(-101 // streams)], eos_id=0)[0]
    torch.testing.assert_close(
        nats[: len(alone)], alone, rtol=1e-5, atol=1e-5
    )  # the first stream is the beginning
    assert int(metric.tokens) == 101
    one = text_perplexity(model, ids, eos_id=0)
    assert metric.compute() != one.compute()  # their histories are shorter
    assert metric.compute() == pytest.approx(one.compute(), rel=0.5)


def test_more_streams_than_tokens_are_no_error(make_model):
    assert int(text_perplexity(make_model(), text(3), eos_id=0, streams=10).tokens) == 3
