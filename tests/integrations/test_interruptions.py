"""A Trainer's run that is interrupted: whatever comes next on its model is not touched by it."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch
from tests.integrations.test_huggingface import same, trainer, weights
from tests.integrations.tiny import IDS, embedded, gpt2, table_of
from transformers import Trainer, TrainerCallback

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


class Robust(Trainer):
    """A trainer with a method of its own, which outlives an interrupted training."""

    def go_on(self):
        with pytest.raises(KeyboardInterrupt):
            self.train()
        with embedded(self.model.train()) as seen:
            self.model(input_ids=IDS, labels=IDS)
        return seen


def test_a_method_of_the_trainer_that_goes_on_after_it_reads_what_it_gives(tmp_path):
    model = gpt2()
    plain = trainer(
        tmp_path, InputCurriculum(table_of(model), neighbor_rate=1.0), Interrupts(True), model=model
    )
    plain.__class__ = Robust
    assert torch.equal(plain.go_on()[0], IDS)


class Within(TrainerCallback):
    """Something else that is done with a model in the middle of a training."""

    def __init__(self, act):
        self.act = act

    def on_step_end(self, args, state, control, **kwargs):
        self.act()


def test_a_training_within_another_that_is_interrupted_leaves_its_own_model_alone(tmp_path):
    outer, inner = gpt2(), gpt2()
    read = []

    def train_inner():
        curriculum = InputCurriculum(table_of(inner), neighbor_rate=1.0)
        with pytest.raises(KeyboardInterrupt):
            trainer(tmp_path / "inner", curriculum, Interrupts(True), model=inner).train()
        with embedded(inner.train()) as seen:
            inner(input_ids=IDS, labels=IDS)
        read.extend(seen)

    ours = InputCurriculum(table_of(outer), neighbor_rate=1.0)
    around = trainer(tmp_path, ours, Within(train_inner), model=outer, max_steps=2, logging_steps=1)
    around.train()
    assert all(torch.equal(ids, IDS) for ids in read)
    assert [entry["effective_neighbor_rate"] for entry in around.state.log_history[:2]] == [1.0, 1.0]


def test_a_forward_in_another_thread_disturbs_nothing(tmp_path):
    model = gpt2()

    def evaluate():
        with ThreadPoolExecutor(1) as pool:
            model.eval()
            pool.submit(model, input_ids=IDS).result()
            model.train()

    ours = InputCurriculum(table_of(model), neighbor_rate=1.0)
    made = trainer(tmp_path, ours, Within(evaluate), model=model, max_steps=2, logging_steps=1)
    made.train()
    assert [entry["effective_neighbor_rate"] for entry in made.state.log_history[:2]] == [1.0, 1.0]


@pytest.mark.parametrize("interrupts", [False, True], ids=["after a run", "after an interrupted run"])
def test_a_model_that_is_let_go_is_freed_and_so_is_its_trainer(tmp_path, interrupts):
    model = gpt2()
    callbacks = [
        InputCurriculum(table_of(model), neighbor_rate=1.0),
        *([Interrupts(True)] if interrupts else []),
    ]
    made = trainer(tmp_path, *callbacks, model=model, max_steps=1)
    with suppress(KeyboardInterrupt):
        made.train()
    left = weakref.ref(made)
    del made, callbacks
    gc.collect()
    assert left() is None
    left = weakref.ref(model)
    del model
    gc.collect()
    assert left() is None


def test_a_callback_given_twice_is_refused(tmp_path):
    model = gpt2()
    callback = InputCurriculum(table_of(model), neighbor_rate=0.5)
    ours = trainer(tmp_path, callback, callback, model=model)
    with pytest.raises(ConfigError, match="given the same InputCurriculum twice"):
        ours.train()
