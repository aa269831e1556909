"""Eq. 7, the straight-through Gumbel-softmax, in its standard form."""

import math

import torch

from nnrs.policies.functional import gumbel_neighbors
from nnrs.seeding import Random, Stream

LOGITS = torch.tensor([0.0, 1.0, -1.0, -1e4])


def test_values_are_one_hot_and_gradients_are_the_softmaxs():
    logits = torch.tensor([[0.2, -0.3, 0.5]], requires_grad=True, dtype=torch.float64)
    uniform = torch.tensor([[0.5, 0.9, 0.1]], dtype=torch.float64)
    weights = gumbel_neighbors(logits, uniform, 0.5)
    # G = −log(−log U): 0.3665, 2.2504, −0.8340; plus logits: 0.5665, 1.9504, −0.3340. The second is largest.
    torch.testing.assert_close(weights.detach(), torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64))
    values = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    (weights * values).sum().backward()
    # softmax of (0.5665, 1.9504, −0.3340)/0.5 and its Jacobian times the values, divided by τ
    soft = [math.exp(x / 0.5) for x in (0.566513, 1.950367, -0.334032)]
    soft = [x / sum(soft) for x in soft]
    mean = sum(p * v for p, v in zip(soft, (1.0, 2.0, 4.0), strict=True))
    expected = [p * (v - mean) / 0.5 for p, v in zip(soft, (1.0, 2.0, 4.0), strict=True)]
    torch.testing.assert_close(
        logits.grad, torch.tensor([expected], dtype=torch.float64), atol=1e-5, rtol=1e-4
    )


def test_slots_are_drawn_as_often_as_the_softmax_of_the_logits_says():
    # The print would add log α twice and square these odds.
    count = 40_000
    uniform = Random(0, Stream.DRAWS).uniform(count, 4)
    drawn = gumbel_neighbors(LOGITS.expand(count, 4), uniform, 0.5).argmax(-1)
    expected = torch.softmax(LOGITS.double(), 0).tolist()
    for slot, share in enumerate(expected):
        seen = (drawn == slot).double().mean().item()
        assert abs(seen - share) <= 4 * math.sqrt(share * (1 - share) / count)


def test_a_draw_of_exactly_zero_is_harmless():
    weights = gumbel_neighbors(LOGITS.clone().requires_grad_(), torch.zeros(4), 0.5)
    weights.sum().backward()
    assert weights.isfinite().all()
    assert weights.argmax() == 1  # equal noise everywhere: the largest logit
