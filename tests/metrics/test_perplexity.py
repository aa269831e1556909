import math

import pytest
import torch

from nnrs.metrics.perplexity import Perplexity, perplexity


def test_hand_worked_value():
    # probabilities of the targets: 1/2 and 1/8; mean nll = (ln 2 + ln 8)/2 = 2 ln 2, so perplexity 4
    logits = torch.log(torch.tensor([[[0.5, 0.5], [0.125, 0.875]]]))
    assert perplexity(logits, torch.tensor([[0, 0]])) == pytest.approx(4.0)


def test_updates_weigh_tokens_not_batches_and_skip_ignored_targets():
    generator = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(10, 7, generator=generator), torch.randint(0, 7, (10,), generator=generator)
    metric = Perplexity()
    metric.update(logits[:3], targets[:3])
    metric.update(logits[3:], targets[3:])
    assert metric.compute() == pytest.approx(perplexity(logits, targets))
    padded = targets.clone()
    padded[5:] = -100
    assert perplexity(logits, padded) == pytest.approx(perplexity(logits[:5], targets[:5]))


def test_an_impossible_target_gives_infinity_and_no_overflow():
    logits = torch.tensor([[0.0, -1e4]])
    assert perplexity(logits, torch.tensor([1])) == math.inf
