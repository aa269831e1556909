"""What is told of a loop whose steps are other than it said, and of perplexities that are none."""

import pytest
import torch
from tests.integrations.outside import Outside
from tests.integrations.tiny import IDS

import nnrs
from nnrs.errors import ConfigError
from nnrs.integrations.curriculum import curriculum

RISING = nnrs.Schedule("linear", 0.0, 0.5)


def train(steps, forwards, *, rate=RISING, in_eval_mode=0, **settings):
    model = Outside().train()
    with curriculum(model, inputs="x", steps=steps, prediction_rate=rate, **settings) as ours:
        for _ in range(forwards):
            model(IDS)
        model.eval()
        for _ in range(in_eval_mode):
            model(IDS)
    return ours


FEW = {
    "steps that are forwards": (
        (8, 8, {"accumulation": 4}),
        r"made for 8 steps, and saw 2 steps: its rates ended at 0\.0714 .* and 0 .*\. Give steps= all",
    ),
    "half of them": ((8, 4, {}), r"saw 4 steps: its rates ended at 0\.214 "),
    "no model.train()": (
        (8, 2, {"in_eval_mode": 6}),
        r"saw 2 steps \(and 6 forwards with gradient in eval mode\): .* Call model\.train\(\) after each",
    ),
    "the same, four forwards a step": (
        (4, 4, {"accumulation": 4, "in_eval_mode": 12}),
        r"saw 1 step \(and 12 forwards with gradient",
    ),
    "stopped early, evaluated with gradient": (
        (8, 4, {"in_eval_mode": 3}),
        r"saw 4 steps: .* steps= all .* stopped early, or that goes on later, is as it should be",
    ),
    "the same where rates stand still": (
        (8, 2, {"in_eval_mode": 6, "rate": 0.5}),
        r"6 forwards with gradient in eval mode\): its rates ended at 0\.5 ",
    ),
}


@pytest.mark.parametrize(("loop", "told"), FEW.values(), ids=FEW)
def test_a_curriculum_that_hardly_began_is_told_of_when_it_ends(loop, told):
    steps, forwards, settings = loop
    with pytest.warns(UserWarning, match=told) as seen:
        train(steps, forwards, **settings)
    assert len(seen) == 1


ENOUGH = {
    "stopped early": (8, 5, {}),
    "rates that stand still": (8, 1, {"rate": 0.5}),
    "the same, evaluated with gradient": (8, 1, {"rate": 0.5, "in_eval_mode": 6}),
    "evaluations with gradient": (8, 8, {"in_eval_mode": 20}),
    "accumulation": (2, 8, {"accumulation": 4}),
}


@pytest.mark.parametrize("loop", ENOUGH.values(), ids=ENOUGH)
def test_one_that_went_on_is_not(loop):
    steps, forwards, settings = loop
    train(steps, forwards, **settings)  # a warning would be an error


def test_an_error_in_the_loop_is_all_that_is_told():
    def fails(ids):
        raise ZeroDivisionError

    model = Outside().train()
    model.hidden = fails
    with pytest.raises(ZeroDivisionError), curriculum(model, inputs="x", steps=8, prediction_rate=RISING):
        model(IDS)


@pytest.mark.parametrize("given", [float("nan"), 0.5, -3, torch.tensor(0.0)])
def test_a_perplexity_below_one_is_warned_of_and_moves_nothing(given):
    ours = train(1, 1)
    with pytest.warns(UserWarning, match=r"a perplexity is at least 1, got .* math\.exp\(loss\)"):
        ours.end_evaluation(given)
    assert ours.policy.temperature_state == train(1, 1).policy.temperature_state


@pytest.mark.parametrize("given", ["a", None, torch.ones(2)])
def test_what_is_no_number_is_no_perplexity(given):
    with pytest.raises(ConfigError, match="a perplexity must be a number, got"):
        train(1, 1).end_evaluation(given)


WRONG = {
    "before the first": ((-1, 4), "step must be a whole number of at least 0, got -1"),
    "of none": ((0, 0), "steps must be a whole number of at least 1, got 0"),
}


@pytest.mark.parametrize(("given", "told"), WRONG.values(), ids=WRONG)
def test_a_step_that_is_none_is_refused_where_it_is_said(given, told):
    with pytest.raises(ConfigError, match=told):
        train(1, 1).begin_step(*given)


def test_a_misspelt_number_of_forwards_is_known_by_its_name():
    with pytest.raises(ConfigError, match=r"'acumulation'\. Did you mean 'accumulation'\?"):
        train(1, 1, acumulation=4)
