"""The pass that makes predictions leaves no trace: buffers and what a model notes in its attributes."""

import pytest
import torch
from tests.integrations.outside import GREEDY, Outside
from tests.integrations.tiny import IDS
from torch import nn

from nnrs.integrations import undone
from nnrs.integrations.curriculum import curriculum


class Carrying(Outside):
    """A model that keeps its hidden state from window to window, and counts them."""

    def __init__(self, state=None):
        super().__init__()
        self.state, self.windows, self.begun = state, 0, []

    def hidden(self, x):
        self.begun.append(self.state)
        hidden, state = self.encode(self.embed(x), self.state)
        self.state, self.windows, self.last = state.detach(), self.windows + 1, (hidden, [state])
        return hidden


def test_a_state_that_a_model_keeps_is_in_both_passes_that_of_the_window_before():
    """Else the training pass would begin where the model had read the very words that it is to predict."""
    model = Carrying().train()
    with curriculum(model, inputs="x", steps=3, prediction_rate=0.5):
        ended = []
        for _ in range(3):
            model(IDS)
            ended.append(model.state)
    expected = [None, None, ended[0], ended[0], ended[1], ended[1]]
    assert all(begun is state for begun, state in zip(model.begun, expected, strict=True))
    assert model.windows == 3


def test_what_was_bound_is_bound_again_also_after_an_error_and_what_is_new_goes():
    model, first, kept = Carrying(), torch.zeros(1, 4, 16), {"one": [1]}
    model.state, model.name, model.kept, model.lazy, model.encode.note = first, "zeros", kept, None, 1

    def fails():
        model.hidden(IDS)
        model.name, model.kept, model.encode.note = torch.ones(2), {}, 2
        model.lazy, model.norm = nn.Linear(2, 2), torch.ones(3)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), undone.undone(model):
        fails()
    assert model.state is first
    assert model.windows == 0
    assert not hasattr(model, "last")
    assert not hasattr(model, "norm")
    assert (model.name, model.kept) == ("zeros", kept)
    assert isinstance(model.lazy, nn.Linear)  # a part by now
    assert model.encode.note == 2  # a layer of torch's own is left alone


def test_parts_and_weights_are_none_of_it():
    model = Outside()
    with undone.undone(model):
        model.out = nn.Linear(16, 3)
        model.embed.weight.data.zero_()
    assert model.out.out_features == 3
    assert not model.embed.weight.any()


def test_predictions_of_a_carried_state_are_those_of_the_state_passed_along():
    model = Carrying().train()
    with torch.no_grad():
        plain = Outside()
        _, state = plain.encode(plain.embed(IDS))
        said = plain.out(plain.encode(plain.embed(IDS), state)[0]).argmax(-1)
    seen = []
    model.embed.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    with curriculum(model, inputs="x", **{**GREEDY, "steps": 2}):
        model.eval()
        with torch.no_grad():
            model(IDS)
        model.train()
        model(IDS)
    assert torch.equal(seen[-1][:, 1:], said[:, :-1])
