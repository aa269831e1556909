"""Scheduled sampling's second pass: what it reads, what it predicts, and how little of it is held at once."""

import pytest
import torch
from tests.integrations.tiny import IDS, VOCAB, embedded, gpt2, inputs_under, llama, t5
from transformers import Gemma2Config, Gemma2ForCausalLM

from nnrs.integrations import second_pass
from nnrs.integrations.curriculum import curriculum

GPT2, LLAMA = gpt2(), llama()
AT_ONCE = 5


def gemma2(cap):
    """A model that caps its logits after its output layer."""
    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        attn_implementation="eager",
        final_logit_softcapping=cap,
    )
    model = Gemma2ForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(30)  # so that a cap matters
    return model


def rows_of(layer):
    """How many hidden vectors the output layer is given, call by call."""
    rows = []
    layer.register_forward_hook(lambda _, args, out: rows.append(args[0].shape[:-1].numel()))
    return rows


@pytest.fixture
def few_at_once(monkeypatch):
    monkeypatch.setattr(second_pass, "LOGITS_AT_ONCE", AT_ONCE * VOCAB + 1)


@pytest.mark.parametrize("model", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_a_greedy_prediction_is_what_the_model_says_after_the_token_before(model):
    plain, mixed = inputs_under(model, prediction_rate=1.0, predict="greedy")
    said = model.eval()(input_ids=IDS).logits.argmax(-1)
    assert torch.equal(plain, IDS)  # the second pass reads gold
    assert torch.equal(mixed[:, 1:], said[:, :-1])
    assert torch.equal(mixed[:, 0], IDS[:, 0])


def test_the_second_pass_reads_the_neighbors_that_the_training_pass_reads():
    first, second = inputs_under(gpt2(), neighbor_rate=0.5, prediction_rate=0.5)
    neighbors, predictions = (first != IDS), (second != first)
    assert neighbors.any()
    assert predictions.any()
    assert not (neighbors & predictions).any()


def test_the_output_layer_sees_only_the_chosen_positions():
    model, rows = gpt2().train(), []
    with curriculum(model, steps=1, prediction_rate=0.2) as ours:
        model.lm_head.register_forward_hook(lambda _, args, out: rows.append(args[0].shape[:-1].numel()))
        model(input_ids=IDS, labels=IDS)
        chosen = ours.report()["effective_prediction_rate"] * 44  # of 4 rows of 11 changeable inputs
    assert rows == [round(chosen), 48]


def test_sampled_predictions_follow_the_models_distribution():
    model = gpt2().train()
    ids = IDS[:1].expand(4000, -1).contiguous()
    with torch.no_grad():
        expected = model(input_ids=IDS[:1]).logits[0, 4].softmax(-1)
    with embedded(model) as seen, curriculum(model, steps=1, prediction_rate=1.0), torch.no_grad():
        model(input_ids=ids, labels=ids)
    shares = torch.bincount(seen[1][:, 5], minlength=VOCAB) / 4000
    errors = (expected * (1 - expected) / 4000).sqrt()
    assert ((shares - expected).abs() < 5 * errors).all()  # 61 words, five standard errors


@pytest.mark.parametrize("predict", ["greedy", "sample"])
@pytest.mark.parametrize("make", [gpt2, llama, lambda: gemma2(0.5)], ids=["gpt2", "llama", "gemma2"])
def test_predictions_made_in_pieces_are_those_made_at_once(make, predict, monkeypatch):
    options = {"neighbor_rate": 0.3, "prediction_rate": 0.6, "predict": predict}
    whole = inputs_under(make(), **options)
    monkeypatch.setattr(second_pass, "LOGITS_AT_ONCE", AT_ONCE * VOCAB + 1)
    model = make()
    rows = rows_of(model.lm_head)
    pieces = inputs_under(model, **options)
    assert len(pieces) == 2  # all below the output layer runs once, then the training pass
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(pieces, whole, strict=True))
    *second, training = rows
    assert len(second) > 2
    assert second[:-1] == [AT_ONCE] * (len(second) - 1)
    assert second[-1] <= AT_ONCE
    assert training == IDS.numel()


def test_what_a_model_does_to_its_logits_is_done_in_every_piece(few_at_once):
    """The cap leaves the logits nearly equal: words are drawn evenly, where uncapped some would never be."""
    ids = IDS[:1].expand(300, -1).contiguous()
    shares = []
    for cap in (0.01, None):
        model = gemma2(cap).train()
        with embedded(model) as seen, curriculum(model, steps=1, prediction_rate=1.0), torch.no_grad():
            model(input_ids=ids, labels=ids)
        shares.append(torch.bincount(seen[1][:, 1:].flatten(), minlength=VOCAB) / (300 * 11))
    error = (1 / VOCAB / (300 * 11)) ** 0.5
    assert (shares[0] - 1 / VOCAB).abs().max() < 5 * error + 0.02 / VOCAB  # e^0.01 / e^-0.01 is 1.02
    assert (shares[1] == 0).any()


def test_a_model_that_does_not_name_its_lower_part_makes_its_predictions_at_once(few_at_once):
    model = t5().train()
    rows = rows_of(model.lm_head)
    with curriculum(model, steps=1, prediction_rate=0.9):
        model(input_ids=IDS, labels=IDS)
    assert len(rows) == 2
    assert rows[0] > AT_ONCE


def test_one_of_several_processes_makes_its_predictions_at_once(few_at_once, monkeypatch):
    """Another may have a smaller batch, and so fewer pieces."""
    for name, value in (("is_initialized", True), ("get_world_size", 2), ("get_rank", 1)):
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    model = gpt2().train()
    rows = rows_of(model.lm_head)
    inputs_under(model, prediction_rate=0.9)
    assert len(rows) == 2


def test_an_error_in_a_piece_leaves_the_model_its_own_forward(few_at_once):
    model = gpt2().train()
    handle = model.lm_head.register_forward_hook(lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        inputs_under(model, prediction_rate=0.9)
    handle.remove()
    assert "forward" not in vars(model.transformer)
    assert torch.equal(
        inputs_under(model, prediction_rate=0.9)[1], inputs_under(gpt2(), prediction_rate=0.9)[1]
    )
