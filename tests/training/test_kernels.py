"""Each kernel against a slow, obvious reference of torch, for several runs in one launch.

Tolerances: both sides add the same float32 numbers in another order. An operation is off by 2^-24 of its result, sums
here have at most a few hundred terms of order 1, and the largest difference seen is 1e-6: `CLOSE` allows ten of it.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nnrs.batches import IGNORED
from nnrs.policies.functional import sample_tokens
from nnrs.seeding import Random, Stream, dropout_threshold
from nnrs.training.kernels import rows, softmax, update

CLOSE = {"atol": 1e-5, "rtol": 1e-5}

pytestmark = pytest.mark.usefixtures("full_precision")


# Rows.


def dropout_case(rates, seeds, places, batch, time, width, device):
    """The masks of every run as the plain loop draws them, time-major, and the same as `Dropout`."""
    masks, bits = [], []
    for rate, seed in zip(rates, seeds, strict=True):
        mask = Random(seed, Stream.DROPOUT, 4).dropout_mask(places, batch, time, width, rate=rate)
        masks.append(mask.transpose(1, 2).flatten(1, 2))
        words = Random(seed, Stream.DROPOUT, 4)._words(-(-mask.numel() // 4))
        bits.append(words.view(torch.int16))
    cuts = [dropout_threshold(rate) for rate in rates]
    dropout = rows.Dropout(
        torch.stack(bits).to(device),
        torch.tensor([threshold for threshold, _ in cuts], dtype=torch.int32, device=device),
        torch.tensor([scale for _, scale in cuts], device=device),
    )
    return torch.stack(masks, 1).to(device), dropout  # (places, runs, rows, width)


@pytest.mark.parametrize("place", [0, 2])
def test_rows_are_gathered_and_dropped_as_the_plain_loop_does(device, draw, place):
    batch, time, width = 3, 2, 5
    masks, dropout = dropout_case([0.3, 0.0, 0.8], [7, 8, 9], 3, batch, time, width, device)
    source = draw(3, 11, width)
    ids = torch.tensor([[0, 10, 3, 3, 7, 1], [5, 5, 5, 5, 5, 5], [9, 8, 7, 6, 5, 4]], device=device)
    out = torch.full((3, 8, width), 9.0, device=device)
    rows.copy_rows(out[:, :6], source, ids, dropout, place=place, batch=batch, time=time)
    gathered = torch.stack([table[chosen] for table, chosen in zip(source, ids, strict=True)])
    assert torch.equal(out[:, :6], gathered * masks[place])
    assert (out[:, 6:] == 9).all()
    assert (masks[place][0] == 0).any()


def test_rows_are_dropped_in_place_for_some_of_the_runs(device, draw):
    batch, time, width = 2, 3, 6
    masks, dropout = dropout_case([0.3, 0.6], [7, 8], 2, batch, time, width, device)
    values = draw(1, 6, width)
    expected = values * masks[1, 1:]
    rows.copy_rows(values, values, None, dropout.of_runs(slice(1, 2)), place=1, batch=batch, time=time)
    assert torch.equal(values, expected)


def test_rows_are_copied_as_they_are_without_dropout(device, draw):
    source, out = draw(2, 4, 7), torch.zeros(2, 3, 7, device=device)
    rows.copy_rows(out, source, torch.tensor([[3, 0, 3], [1, 2, 0]], device=device))
    assert torch.equal(out[0], source[0, [3, 0, 3]])
    assert torch.equal(out[1], source[1, [1, 2, 0]])


@pytest.mark.parametrize("count", [1, 2, 13])
def test_gradients_of_equal_ids_add_up(device, draw, count):
    ids = (Random(count, Stream.TEXT).uniform(3, count) * 4).long().to(device)  # 4 words: many are equal
    gradient, changes = draw(3, 6, 5), draw(3, count, 5)
    wanted = torch.tensor([1, 0, 1], dtype=torch.int8, device=device)
    expected = gradient.clone()
    for run in (0, 2):
        expected[run].index_add_(0, ids[run], changes[run])
    rows.add_rows(gradient, changes, ids, wanted)
    torch.testing.assert_close(gradient, expected, **CLOSE)
    assert torch.equal(gradient[1], expected[1])


# The output layer.


@pytest.fixture(params=[8, softmax.BLOCK])
def in_blocks(request, monkeypatch):
    """Rows that are read in several blocks, or in one."""
    monkeypatch.setattr(softmax, "BLOCK", request.param)


def score_case(draw, steepest):
    vocab, width = 21, 24  # rows are padded
    logits = draw(2, 5, width) * 3
    logits[1, 2] *= steepest  # one token has nearly all the probability
    logits[..., vocab:] = 1e6  # what stands there does not matter
    bias = draw(2, vocab + 3)[:, :vocab]  # rows that are not contiguous
    targets = torch.tensor([[3, 20, IGNORED, 0, 7, 1], [0, IGNORED, 5, 20, 20, 1]], device=logits.device)[
        :, :5
    ]
    return logits, bias, targets, torch.full((2, 7), 9.0, device=logits.device)


def test_losses_are_those_of_torch_and_an_ignored_target_counts_nothing(draw, in_blocks):
    logits, bias, targets, losses = score_case(draw, 1e4)
    given = logits.clone()
    softmax.cross_entropy(logits, bias, targets, losses[:, :5])
    full = logits[..., :21] + bias[:, None]
    expected = F.cross_entropy(full.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")
    torch.testing.assert_close(losses[:, :5].flatten(), expected, **CLOSE)
    assert (losses[targets.new_tensor([0, 1]), targets.new_tensor([2, 1])] == 0).all()
    assert (losses[:, 5:] == 9).all()
    assert torch.equal(logits, given)


def test_the_gradient_of_the_loss_takes_the_place_of_the_logits(draw, in_blocks):
    logits, bias, targets, losses = score_case(draw, 10.0)
    full = (logits[..., :21] + bias[:, None]).requires_grad_()
    (
        0.25 * F.cross_entropy(full.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")
    ).backward()
    softmax.cross_entropy(logits, bias, targets, losses[:, :5], gradient_weight=0.25)
    torch.testing.assert_close(logits[..., :21], full.grad, **CLOSE)
    assert (logits[..., 21:] == 0).all()  # so that the padding of the weights gets no gradient
    assert (logits[0, 2] == 0).all()


def predict_case(draw, positions):
    logits, bias = draw(3, len(positions[0]), 24) * 2, draw(3, 21)
    logits[..., 21:] = 1e6
    inputs = torch.full((3, 9), 100, device=logits.device)
    uniform = draw(3, 9).add(1).div(2)
    uniform[0, [0, 1, 4, 8]] = torch.tensor(
        [0.0, 1 - 2**-24, 0.5, 0.8], device=uniform.device
    )  # both ends, and between
    return logits, bias, torch.tensor(positions, device=logits.device), uniform, inputs


def flags(tensor, *values):
    return torch.tensor(values, dtype=torch.int8, device=tensor.device)


def test_predictions_fall_where_the_uniform_number_does(draw, in_blocks):
    positions = [[0, 1, 4, 8], [2, 3, 9, 9], [1, 2, 3, 4]]  # 9: padding
    logits, bias, places, uniform, inputs = predict_case(draw, positions)
    changed = flags(logits, 0, 0, 0)
    softmax.predict(
        logits, bias, places, uniform, flags(logits, 0, 1, 0), flags(logits, 1, 1, 0), inputs, changed
    )
    full, expected = logits[..., :21] + bias[:, None], torch.full_like(inputs, 100)
    expected[0, positions[0]] = sample_tokens(full[0], uniform[0, positions[0]])
    expected[1, [2, 3]] = full[1, :2].argmax(-1)
    assert torch.equal(inputs, expected)  # nowhere else, and nothing in the run that is not wanted
    assert len(expected[0].unique()) > 3
    assert changed.tolist() == [1, 1, 0]


def test_a_prediction_that_was_there_already_is_no_change(draw, in_blocks):
    positions = [[0, 1, 4, 8], [2, 3, 9, 9], [1, 2, 3, 4]]
    logits, bias, places, uniform, inputs = predict_case(draw, positions)
    settings = flags(logits, 0, 1, 0), flags(logits, 1, 1, 1)
    softmax.predict(logits, bias, places, uniform, *settings, inputs, flags(logits, 0, 0, 0))
    inputs[1, 3] = 50
    settled, changed = inputs.clone(), flags(logits, 0, 0, 0)
    softmax.predict(logits, bias, places, uniform, *settings, inputs, changed)
    assert changed.tolist() == [0, 1, 0]
    settled[1, 3] = inputs[1, 3]
    assert torch.equal(inputs, settled)


def test_of_equally_likely_tokens_the_greedy_prediction_is_the_lowest(device, in_blocks):
    logits, bias = torch.zeros(1, 2, 24, device=device), torch.zeros(1, 21, device=device)
    logits[0, 0, [20, 5, 6, 14]] = 2.0
    logits[0, 1] = -3.0  # all of them
    inputs, places = torch.full((1, 2), 100, device=device), torch.tensor([[1, 0]], device=device)
    yes = flags(logits, 1)
    softmax.predict(logits, bias, places, torch.rand(1, 2, device=device), yes, yes, inputs, flags(logits, 0))
    assert inputs.tolist() == [[0, 5]]


# The optimiser.


@pytest.mark.parametrize("count", [100, update.BLOCK + 77])
def test_gradient_norms_are_those_of_each_run(draw, count):
    gradients = draw(3, count)
    torch.testing.assert_close(update.gradient_norms(gradients), gradients.norm(dim=1), **CLOSE)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_steps_are_those_of_torchs_optimisers_with_clipping(device, draw, name):
    count, decayed = update.BLOCK + 77, update.BLOCK + 10
    parameters = draw(3, count)
    rates, clips = (
        torch.tensor([0.5, 0.02, 1.0], device=device),
        torch.tensor([0.25, 1e9, 0.25], device=device),
    )
    moments = (torch.zeros_like(parameters), torch.zeros_like(parameters)) if name == "adamw" else None
    active, rounded = flags(parameters, 1, 1, 0), parameters.bfloat16()
    theirs = [
        [nn.Parameter(part.clone()) for part in (row[:decayed], row[decayed:])] for row in parameters[:2]
    ]
    frozen = parameters[2].clone()
    make = torch.optim.SGD if name == "sgd" else torch.optim.AdamW
    optimizers = [
        make([{"params": pair[:1]}, {"params": pair[1:], "weight_decay": 0.0}], lr=rate.item())
        for pair, rate in zip(theirs, rates, strict=False)
    ]
    for step in range(4):
        gradients = draw(3, count)
        for run, (pair, optimizer) in enumerate(zip(theirs, optimizers, strict=True)):
            pair[0].grad, pair[1].grad = gradients[run, :decayed].clone(), gradients[run, decayed:].clone()
            nn.utils.clip_grad_norm_(pair, clips[run].item())
            optimizer.step()
        coefficients = (clips / (update.gradient_norms(gradients) + 1e-6)).clamp(max=1.0)
        done = torch.tensor(step, device=device)
        update.optimizer_step(
            parameters, rounded, gradients, moments, coefficients, rates, active, done, decayed
        )
    for run, pair in enumerate(theirs):
        torch.testing.assert_close(parameters[run], torch.cat(pair).detach(), **CLOSE)
    assert torch.equal(parameters[2], frozen)
    # Triton's interpreter cuts off what a GPU rounds: up to a unit in the last of bfloat16's 8 digits.
    torch.testing.assert_close(rounded.float(), parameters, atol=0.0, rtol=2**-7)
