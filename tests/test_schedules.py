import dataclasses
import json
import math
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.surroundings import unchecked

from nnrs.errors import ConfigError
from nnrs.schedules import SHAPES, Schedule, progress

RISING = {name: shape for name, shape in SHAPES.items() if name != "pulse"}


@pytest.mark.parametrize("shape", RISING.values(), ids=RISING)
@given(a=st.floats(0, 1), b=st.floats(0, 1))
def test_shapes_rise_within_the_unit_interval(shape, a, b):
    low, high = sorted((a, b))
    assert -1e-12 <= shape(low) <= shape(high) + 1e-12 <= 1.0 + 2e-12


@pytest.mark.parametrize("name", sorted(set(RISING) - {"static"}))
def test_rising_shapes_go_from_exactly_0_to_1(name):
    assert SHAPES[name](0.0) == 0.0
    assert SHAPES[name](1.0) == pytest.approx(1.0, abs=1e-15)


def test_hand_worked_values():
    # s-curve at 1/3: ½(1 + sin(π/3 − π/2)) = ½(1 − ½) = ¼
    assert SHAPES["s-curve"](1 / 3) == pytest.approx(0.25)
    # fast at ½: 1 − ½e^{−½} = 1 − 0.5·0.60653 = 0.69673
    assert SHAPES["fast"](0.5) == pytest.approx(0.69673, abs=1e-5)
    # exponential at 0.9: raw 2/(e + 1) = 0.537883, raw(0) = 2/(e^10 + 1) = 9.0795e-5; rescaled 0.537841
    assert SHAPES["exponential"](0.9) == pytest.approx((0.537883 - 9.0795e-5) / (1 - 9.0795e-5), abs=1e-6)
    # exponential-decay at ½: (1 − 0.1)/0.99 = 0.909091
    assert SHAPES["exponential-decay"](0.5) == pytest.approx(0.9 / 0.99)
    # inverse-sigmoid is odd about (½, ½)
    assert SHAPES["inverse-sigmoid"](0.5) == pytest.approx(0.5)
    assert SHAPES["inverse-sigmoid"](0.25) == pytest.approx(1 - SHAPES["inverse-sigmoid"](0.75))
    assert SHAPES["static"](0.0) == 1.0


def test_the_pulse_peaks_at_four_fifths_and_ends_where_it_began():
    pulse = SHAPES["pulse"]
    assert [pulse(z) for z in (0.0, 0.4, 0.8, 0.9, 1.0)] == pytest.approx([0.0, 0.5, 1.0, 0.5, 0.0])


def test_the_last_epoch_has_the_end_rate_and_the_first_the_start_rate():
    schedule = Schedule("linear", 0.1, 0.5)
    rates = [schedule(progress(epoch, 5)) for epoch in range(5)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert progress(0, 1) == 1.0  # where there is one epoch it is the last


def test_doses_are_those_of_the_method_page():
    doses = {name: Schedule(name, 0.0, 1.0).dose(40) for name in ("static", "linear", "exponential")}
    assert doses["static"] == 1.0
    assert doses["linear"] == pytest.approx(0.5)
    assert doses["exponential"] == pytest.approx(0.15, abs=0.005)


@given(st.sampled_from(sorted(SHAPES)), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_rate_never_leaves_its_two_ends(shape, start, end, z):
    assert min(start, end) <= Schedule(shape, start, end)(z) <= max(start, end)


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_beyond_the_end_a_schedule_stays_at_its_end_and_before_the_start_at_its_start(shape):
    schedule = Schedule(shape, 0.1, 0.3)
    assert schedule(1.25) == schedule(1.99) == schedule(1.0)
    assert schedule(-0.5) == schedule(0.0)


@pytest.mark.parametrize("step", [2.0, 200.0])
def test_a_step_in_the_place_of_a_share_is_warned_of_and_has_the_end_rate(step):
    told = r"progress is far past the end .* step / \(steps - 1\)"
    with pytest.warns(UserWarning, match=told):
        assert Schedule("linear", 0.0, 0.2)(step) == 0.2


def test_a_loop_that_gives_its_steps_is_warned_once():
    schedule = Schedule("linear", 0.0, 0.2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for step in range(5):
            schedule(float(step))
    assert len(caught) == 1


def test_a_schedule_may_stand_in_a_graph_that_is_compiled_whole():
    """In a process of its own: what checks types in this one cannot be compiled."""
    code = """
import torch, nnrs
schedule = nnrs.Schedule("exponential", 0.0, 0.2)

@torch.compile(backend="eager", fullgraph=True)
def rated(step):
    return torch.ones(()) * schedule(step / 99)

for step in (0, 3, 50, 99):  # from the second on, the graph is one for any step
    torch.testing.assert_close(rated(step), torch.tensor(schedule(step / 99)))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kind", [np.float32, np.array, torch.tensor])
def test_progress_is_a_number_of_any_kind(kind):
    with unchecked():
        assert Schedule("linear", 0.0, 0.2)(kind(0.5)) == 0.1


@pytest.mark.parametrize(
    "progress",
    [
        math.nan,
        np.float32("nan"),
        torch.tensor(math.nan),
        torch.tensor([0.5]),
        torch.empty((), device="meta"),
        "0.5",
        None,
    ],
)
def test_progress_that_is_no_number_is_refused(progress):
    message = (
        rf"^progress must be a number, 0 at the start and 1 at the end, got {re.escape(repr(progress))}\.$"
    )
    with unchecked(), pytest.raises(ConfigError, match=message):
        Schedule("linear", 0.0, 0.2)(progress)


@pytest.mark.parametrize("kind", [np.int64, torch.tensor])
def test_a_dose_is_over_whole_numbers_of_any_kind(kind):
    with unchecked():
        assert Schedule("linear", 0.0, 0.2).dose(kind(3)) == pytest.approx(0.1)


@pytest.mark.parametrize("epochs", [0, -1, 2.5, "3", None, True, torch.empty((), dtype=int, device="meta")])
def test_a_dose_of_no_epoch_is_refused(epochs):
    told = f"^a dose is over a whole number of epochs, at least 1, got {re.escape(repr(epochs))}\\.$"
    with unchecked(), pytest.raises(ConfigError, match=told):
        Schedule().dose(epochs)


def test_a_schedule_may_fall():
    assert Schedule("linear", 0.4, 0.0)(0.5) == pytest.approx(0.2)


@pytest.mark.parametrize("bad", [(-0.1, 0.2), (0.0, 1.5), (math.nan, 0.2), (0.0, np.float32(2.0))])
def test_rates_outside_the_unit_interval_are_refused(bad):
    with unchecked(), pytest.raises(ConfigError, match="probability"):
        Schedule("linear", *bad)


@pytest.mark.parametrize("bad", ["0.2", None, [0.2]])
def test_a_rate_that_is_no_number_is_refused(bad):
    with (
        unchecked(),
        pytest.raises(ConfigError, match=r"schedule end must be a probability in \[0, 1\], got"),
    ):
        Schedule("linear", 0.0, bad)


def test_numbers_of_any_kind_are_rates_and_become_plain_ones():
    with unchecked():
        schedule = Schedule("linear", 0, np.float32(0.25))
    assert schedule == Schedule("linear", 0.0, 0.25)
    assert json.dumps(dataclasses.astuple(schedule)) == '["linear", 0.0, 0.25]'


@pytest.mark.parametrize("shape", [0, None, ["linear"]])
def test_a_shape_that_is_no_name_is_refused_with_the_names(shape):
    with (
        unchecked(),
        pytest.raises(ConfigError, match=r"schedule shape must be a name, got .* Known: .*linear"),
    ):
        Schedule(shape, 0.1)


def test_an_unknown_shape_is_answered_with_the_closest_one():
    with pytest.raises(ConfigError, match="Did you mean 'linear'"):
        Schedule("liner", 0.0, 0.2)


@pytest.mark.parametrize(("text", "ends"), [("0:0.2", (0.0, 0.2)), ("0.3", (0.3, 0.3))])
def test_rates_are_read_from_text(text, ends):
    assert Schedule.parse(text, "static") == Schedule("static", *ends)


@pytest.mark.parametrize("text", ["", "a:b", "0:0.1:0.2", "0-0.2"])
def test_text_that_is_no_rate_is_refused(text):
    with pytest.raises(ConfigError, match="START:END"):
        Schedule.parse(text)


# Shape, ends and epochs; and where the rate stands still, or None where it is as asked for.
STILL = {
    "rising": ("linear", 0.0, 0.2, 1, "0.2"),
    "falling": ("s-curve", 0.4, 0.0, 1, "0"),
    "two epochs": ("linear", 0.0, 0.2, 2, None),
    "pulse, one epoch": ("pulse", 0.1, 0.2, 1, "0.1"),
    "pulse, two epochs": ("pulse", 0.0, 0.2, 2, "0"),  # the first and the last, which is as the first
    "pulse, three epochs": ("pulse", 0.0, 0.2, 3, None),
    "static": ("static", 0.0, 0.2, 1, None),
    "one rate": ("exponential", 0.2, 0.2, 1, None),
    "pulse of nothing": ("pulse", 0.0, 0.0, 1, None),
}


@pytest.mark.parametrize("case", STILL)
def test_a_rate_that_has_too_few_epochs_to_move_is_remarked_on(case):
    shape, start, end, epochs, stays = STILL[case]
    told = f"stays at {stays}: with --epochs {epochs} it cannot move. Use more epochs for a curriculum."
    remark = Schedule(shape, start, end).remark(epochs)
    assert remark == (f"{shape} {start:g}:{end:g} {told}" if stays else None)


@pytest.mark.parametrize("epochs", [1, 2, 40])
def test_a_pulse_of_one_rate_is_remarked_on(epochs):
    assert Schedule("pulse", 0.3, 0.3).remark(epochs) == (
        "pulse 0.3:0.3 stays at 0.3: it goes from START to END and back. Use 0:0.3, or --schedule static."
    )
