"""Eq. 1, the log-likelihood: the loss a window is trained on."""

import math

import pytest
import torch

from nnrs.models import ModelConfig, build_model
from nnrs.seeding import Random, Stream
from nnrs.training.unroll import window_loss


def test_the_loss_is_the_mean_negative_log_likelihood_in_nats():
    model = build_model(ModelConfig(units=2, dropout=0.0), 3, Random(1, Stream.INITIALISATION))
    with torch.no_grad():  # logits are h·w: choose w so that h = (1, 0) gives probabilities 1/2, 1/4, 1/4
        model.embedding.weight.copy_(torch.tensor([[math.log(2.0), 0.0], [0.0, 0.0], [0.0, 5.0]]))
    hidden = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    # targets 0 then 2: −(ln ½ + ln ¼)/2 = (0.693147 + 1.386294)/2 = 1.039721
    loss = window_loss(model, hidden, torch.tensor([[0, 2]]))
    assert loss.item() == pytest.approx(1.039721, abs=1e-6)
