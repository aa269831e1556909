"""A Trainer's run that is interrupted: whatever comes next on its model is not touched by it."""

import pytest
import torch
from tests.integrations.test_huggingface import same, trainer, weights
from tests.integrations.tiny import IDS, embedded, gpt2, table_of
from transformers import TrainerCallback

from nnrs.errors import ConfigError
from nnrs.integrations.huggingface import InputCurriculum


class Interrupts(TrainerCallback):
    """Ctrl-C, in the middle of the first step or after it."""

    def __init__(self, within):
        self.within = within

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        if self.within:
            raise KeyboardInterrupt

    def on_step_end(self, args, state, control, **kwargs):
        raise KeyboardInterrupt


@pytest.fixture(params=[True, False], ids=["within a step", "after a step"])
def interrupted(request, tmp_path):
    """A model as it was before a run on it was interrupted."""
    model = gpt2(dropout=0.2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    callback = InputCurriculum(table_of(model), neighbor_rate=1.0)
    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path, callback, Interrupts(request.param), model=model).train()
    model.load_state_dict(before)
    assert model._forward_pre_hooks  # callbacks do not hear of it
    return model


@pytest.mark.parametrize("rate", [None, 0.0], ids=["no curriculum", "another curriculum"])
def test_the_next_run_is_its_own(interrupted, rate, tmp_path):
    callbacks = [] if rate is None else [InputCurriculum(table_of(interrupted), neighbor_rate=rate)]
    ours = trainer(tmp_path, *callbacks, model=interrupted)
    ours.train()
    plain = trainer(tmp_path)
    plain.train()
    assert same(weights(plain), weights(ours))
    assert not interrupted._forward_pre_hooks


def test_a_loop_of_ones_own_reads_what_it_is_given(interrupted):
    with embedded(interrupted.train()) as seen:
        interrupted(input_ids=IDS, labels=IDS)
    assert torch.equal(seen[0], IDS)
    assert not interrupted._forward_pre_hooks


def test_the_same_trainer_goes_on_with_its_curriculum(tmp_path):
    model = gpt2()
    interrupts = Interrupts(within=True)
    ours = trainer(tmp_path, InputCurriculum(table_of(model), neighbor_rate=1.0), interrupts, model=model)
    with pytest.raises(KeyboardInterrupt):
        ours.train()
    ours.remove_callback(interrupts)
    with embedded(model) as seen:
        ours.train()
    assert len(seen) == 6
    assert ours.state.log_history[0]["effective_neighbor_rate"] == 1.0


def test_a_callback_given_twice_is_refused(tmp_path):
    model = gpt2()
    callback = InputCurriculum(table_of(model), neighbor_rate=0.5)
    ours = trainer(tmp_path, callback, callback, model=model)
    with pytest.raises(ConfigError, match="given the same InputCurriculum twice"):
        ours.train()
