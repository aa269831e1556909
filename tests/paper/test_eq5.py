"""Eq. 5, the temperature rule, on scripted validation perplexities worked by hand."""

import itertools
import math

import pytest
import torch

from nnrs.errors import ConfigError
from nnrs.neighbors.probabilities import effective_neighbors
from nnrs.temperature import TemperatureController

SIMILARITIES = torch.tensor([[0.9, 0.5, 0.4, 0.1], [0.8, 0.7, 0.2, 0.1]])
WEIGHTS = torch.tensor([3.0, 1.0])


def temperatures(rule, script, start=0.1, vocab=100.0):
    controller = TemperatureController(rule, start, SIMILARITIES, WEIGHTS)
    state = controller.start()
    assert state.best_valid_perplexity == 2.0  # V rows: the uniform model's perplexity
    state = type(state)(state.temperature, vocab, state.target)  # as for a vocabulary of 100
    path = [state.temperature]
    for valid_perplexity in script:
        state = controller.update(state, valid_perplexity)
        path.append(state.temperature)
    return path, state


def test_prose_climbs_on_improvement_and_falls_back_otherwise():
    # start 0.1, clipped to 0.5. |0.5 − (2^0.5 − 1)| = |0.5 − 0.414214| = 0.085786
    # 90 < 100 improves: 0.585786; |0.585786 − (2^0.585786 − 1)| = |0.585786 − 0.500857| = 0.084929
    # 95 ≥ 90 does not: 0.585786 − 0.084929 = 0.500857
    # 90 equals the best, which is no improvement: step |0.500857 − 0.415054| = 0.085803 → 0.415054, clipped to 0.5
    path, state = temperatures("prose", [90.0, 95.0, 90.0])
    assert path == pytest.approx([0.5, 0.585786, 0.500857, 0.5], abs=1e-5)
    assert state.best_valid_perplexity == 90.0


def test_equation_has_the_opposite_signs():
    # 90 improves: 0.5 − 0.0858 is clipped to 0.5. 95 does not: 0.585786. 85 improves: 0.585786 − 0.084929
    path, _ = temperatures("equation", [90.0, 95.0, 85.0])
    assert path == pytest.approx([0.5, 0.5, 0.585786, 0.500857], abs=1e-5)


def test_the_comparison_is_with_the_best_before_the_epoch():
    # Had ℓ_* been updated first, as Algorithm 1 prints, 90 < 90 would be false and τ could only fall.
    path, _ = temperatures("prose", [90.0])
    assert path[1] > path[0]


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_perplexity_that_is_not_finite_is_no_improvement_and_never_the_best(broken):
    # 90 < 100 improves: 0.585786. The broken one does not: 0.585786 − 0.084929 = 0.500857. 80 < 90 improves on what
    # was best before: |0.500857 − 0.415054| = 0.085803 → 0.586660
    path, state = temperatures("prose", [90.0, broken, 80.0])
    assert path == pytest.approx([0.5, 0.585786, 0.500857, 0.586660], abs=1e-5)
    assert state.best_valid_perplexity == 80.0
    # 85 < 90 would be an improvement on 90, and so it is after a broken one; 95 is none
    path, state = temperatures("effective", [90.0, broken, 95.0, 85.0])
    assert state.best_valid_perplexity == 85.0
    assert state.target == pytest.approx(2.0)  # 2 → 2.4 → 2.0 → 2.0 / 1.2 → 2.0


def test_one_is_a_fixed_point_that_improvements_never_pass():
    path, _ = temperatures("prose", [99.0 - i for i in range(90)])
    assert all(a < b for a, b in itertools.pairwise(path[:20]))
    assert 0.98 < path[-1] < 1.0
    assert temperatures("prose", [50.0, 60.0], start=1.0)[0] == [1.0, 1.0, 1.0]


def test_above_one_the_upper_bound_holds():
    # |3 − 7| = 4 → 7; |7 − 127| = 120 → 127, clipped to 10
    assert temperatures("prose", [90.0, 80.0], start=3.0)[0] == [3.0, 7.0, 10.0]


def test_constant_keeps_any_temperature_also_one_outside_the_bounds():
    assert temperatures("constant", [90.0, 95.0], start=0.05)[0] == [0.05, 0.05, 0.05]


def test_effective_moves_the_number_of_neighbors_by_a_fifth():
    path, state = temperatures("effective", [90.0, 95.0, 80.0, 70.0])
    # targets 2 → 2.4 → 2.0 → 2.4 → 2.88
    assert state.target == pytest.approx(2.88)
    reached = [effective_neighbors(SIMILARITIES, t, WEIGHTS) for t in path]
    assert reached == pytest.approx([2.0, 2.4, 2.0, 2.4, 2.88], abs=1e-3)


def test_effective_stays_between_one_neighbor_and_all_of_them():
    assert temperatures("effective", [90.0 - i for i in range(20)])[1].target == 4.0
    assert temperatures("effective", [200.0] * 20)[1].target == 1.0


def test_bad_settings_are_refused():
    with pytest.raises(ConfigError, match="temperature must be in"):
        TemperatureController("prose", 0.0, SIMILARITIES, WEIGHTS)
    with pytest.raises(ConfigError, match="Did you mean 'prose'"):
        TemperatureController("prosa", 0.5, SIMILARITIES, WEIGHTS)
