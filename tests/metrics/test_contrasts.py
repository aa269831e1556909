"""Contrasts over seeds: worked by hand, beside scipy, and by simulation where there is nothing to find."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nnrs.errors import ConfigError
from nnrs.metrics.contrasts import (
    ALPHA,
    contrast,
    corrected,
    fewest_seeds,
    holm,
    sign_flip_p,
    smallest_p,
    t_interval,
)

values = st.lists(st.integers(-20, 20), min_size=1, max_size=9)


def by_seed(*numbers: float) -> dict[int, float]:
    return dict(enumerate(numbers, start=1))


def test_the_t_interval_of_five_differences_is_the_one_worked_by_hand():
    # mean 0.3, deviations -0.2 -0.1 0 0.1 0.2, variance 0.1/4 = 0.025, √(0.025/5) = 0.070711, t(4) = 2.776445
    low, high = t_interval([0.1, 0.2, 0.3, 0.4, 0.5])
    assert low == pytest.approx(0.3 - 2.776445 * 0.070711, abs=1e-6)
    assert high == pytest.approx(0.3 + 2.776445 * 0.070711, abs=1e-6)


@pytest.mark.parametrize("count", [2, 3, 5, 30])
def test_the_t_interval_is_scipys(count):
    draws = np.random.default_rng(count)
    ours, theirs = draws.normal(4.3, 0.1, count), draws.normal(4.32, 0.1, count)
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert t_interval((ours - theirs).tolist()) == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_one_difference_has_no_interval():
    assert t_interval([0.3]) is None


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([0.7], 1.0),  # + and − are all there is
        ([1.0, 2.0, 3.0], 2 / 8),  # only all of one sign is as far as 6
        ([-1.0, 2.0, 3.0], 4 / 8),  # |4|: − + +, + + + and their mirrors
        ([1.0, 1.0, 1.0, -1.0], 10 / 16),  # |2|: C(4,3) + C(4,4) = 5 on either side
        ([0.0, 0.0, 3.0], 1.0),  # a pair without a difference says nothing
        ([1.0, -1.0], 1.0),
        ([0.3, -0.1, -0.2], 1.0),  # 0 but for rounding
    ],
)
def test_the_sign_flip_test_counts_patterns_as_by_hand(differences, expected):
    assert sign_flip_p(differences) == expected


@given(values)
def test_the_sign_flip_test_counts_what_a_plain_loop_counts(whole):
    """Integers, whose sums have no rounding; tenths of them must count the same though theirs have."""
    sums = [
        sum(s * v for s, v in zip(signs, whole, strict=True))
        for signs in itertools.product((1, -1), repeat=len(whole))
    ]
    expected = sum(abs(value) >= abs(sum(whole)) for value in sums) / len(sums)
    assert sign_flip_p([float(value) for value in whole]) == expected
    assert sign_flip_p([value / 10 for value in whole]) == expected


@pytest.mark.parametrize("count", [4, 7, 12])
def test_the_sign_flip_test_is_scipys_permutation_test(count):
    differences = np.random.default_rng(count).normal(0.3, 1.0, count)
    expected = stats.permutation_test(
        (differences, np.zeros(count)),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert sign_flip_p(differences.tolist()) == pytest.approx(expected.pvalue, abs=1e-12)


def test_forty_pairs_are_still_counted_one_by_one():
    """All equal but one: at least as far are the patterns with no sign turned, with one, and their mirrors."""
    assert sign_flip_p([1.0] * 39 + [-1.0]) == (2 + 2 * 40) / 2**40


def test_more_pairs_are_sampled_within_the_error_of_the_sample():
    differences = [1.0] * 30 + [-1.0] * 20  # a sum of 10: as far as 30 heads of 50
    expected = 2 * stats.binom.sf(29, 50, 0.5)
    error = math.sqrt(expected * (1 - expected) / 100_000)
    assert sign_flip_p(differences) == pytest.approx(expected, abs=4 * error)


def test_holm_multiplies_by_what_is_left_and_never_falls():
    # sorted .01 .02 .04 .3: × 4, 3, 2, 1 = .04 .06 .08 .3
    assert holm([0.02, 0.3, 0.01, 0.04]) == pytest.approx([0.06, 0.3, 0.04, 0.08])
    # .03 × 2 = .06; .04 × 1 = .04 is raised to it; nothing passes 1
    assert holm([0.03, 0.04]) == pytest.approx([0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_as_many_seeds_as_it_says_can_pass_and_one_less_cannot():
    for contrasts in (1, 3, 6, 10):
        enough = fewest_seeds(contrasts)
        for seeds, passes in ((enough, True), (enough - 1, False)):
            every_sign_alike = sign_flip_p([0.1 * seed for seed in range(1, seeds + 1)])
            assert every_sign_alike == smallest_p(seeds)
            family = holm([every_sign_alike] + [1.0] * (contrasts - 1))
            assert (family[0] < ALPHA) is passes


def test_a_contrast_is_paired_over_the_seeds_that_both_have():
    made = contrast("nnrs", "mle", "ppl", ({1: 4.0, 2: 4.2, 9: 1.0}, {2: 4.5, 1: 4.1, 3: 7.0}))
    assert made.seeds == (1, 2)
    assert made.differences == pytest.approx((-0.1, -0.3))
    assert made.mean == pytest.approx(-0.2)
    assert made.percent == pytest.approx(100 * (math.exp(-0.2) - 1))
    with pytest.raises(ConfigError, match="nnrs and mle have no seed in common"):
        contrast("nnrs", "mle", "ppl", ({1: 4.0}, {2: 4.0}))


def test_percent_is_the_change_of_the_perplexity_itself():
    ours, theirs = by_seed(math.log(76.0)), by_seed(math.log(80.0))
    made = contrast("a", "b", "ppl", (ours, theirs))
    assert made.percent == pytest.approx(-5.0)
    assert contrast("a", "b", "bleu4|test|sample", (ours, theirs), "higher").percent is None


def test_the_verdict_follows_the_corrected_test_then_the_interval():
    steady = [-0.1, -0.11, -0.12, -0.09, -0.1, -0.13, -0.1, -0.12]
    zero = by_seed(*[0.0] * 8)
    eight = contrast("a", "b", "ppl", (by_seed(*steady), zero))
    five = contrast("a", "b", "ppl", (by_seed(*steady[:5]), zero))
    mixed = contrast("a", "b", "ppl", (by_seed(-0.1, 0.12, -0.08, 0.1, 0.02), zero))
    two = contrast("a", "b", "ppl", (by_seed(-0.5, -0.51), zero))
    one = contrast("a", "b", "ppl", (by_seed(-0.5), zero))
    assert two.interval[1] < 0
    assert [item.verdict for item in (eight, five, mixed, two, one)] == [
        "better",
        "probably better",
        "no difference found",
        "too few seeds",
        "too few seeds",
    ]
    crowd = corrected([eight, *[mixed] * 6])  # 2/256 × 7 = .0547
    assert crowd[0].holm_p == pytest.approx(7 * 2 / 256)
    assert crowd[0].family == 7
    assert crowd[0].verdict == "probably better"


def test_a_lower_value_is_worse_where_higher_is_better():
    steady = by_seed(-0.1, -0.11, -0.12, -0.09, -0.1, -0.13)
    zero = by_seed(*[0.0] * 6)
    assert contrast("a", "b", "bleu4", (steady, zero), "higher").verdict == "worse"
    assert contrast("a", "b", "bleu4", (zero, steady), "higher").verdict == "better"
    assert contrast("a", "b", "ppl", (zero, steady), "lower").verdict == "worse"


@pytest.mark.parametrize("seeds", [5, 8])
def test_without_an_effect_a_family_rejects_at_most_as_often_as_it_says(seeds):
    """2,000 experiments: four methods that differ by nothing, three contrasts that share runs, heavy tails.

    Any rejection in a family counts. At a true rate of .05 the standard error is .0049; three are allowed above it.
    With 5 seeds no test can pass; with 8 some must, or the correction would be idle talk.
    """
    draws, experiments, rejected = np.random.default_rng(seeds), 2000, 0
    for _ in range(experiments):
        runs = draws.standard_t(3, (4, seeds)) * 0.01 + draws.normal(4.3, 0.05, seeds)
        mle, ss, nnrs, both = (by_seed(*row.tolist()) for row in runs)
        pairs = [(ss, mle), (nnrs, mle), (both, ss)]
        family = corrected([contrast("a", "b", "ppl", pair) for pair in pairs])
        rejected += any(item.verdict in ("better", "worse") for item in family)
    rate, error = rejected / experiments, math.sqrt(ALPHA * (1 - ALPHA) / experiments)
    assert rate <= ALPHA + 3 * error
    assert (rate == 0) is (seeds < fewest_seeds(3))


def test_with_an_effect_it_is_found():
    """Ten seeds, an effect of two standard deviations of a difference: the exact test rejects nearly always."""
    draws, found = np.random.default_rng(0), 0
    for _ in range(300):
        theirs = draws.normal(4.3, 0.05, 10)
        ours = theirs - draws.normal(0.02, 0.01, 10)
        found += (
            contrast("a", "b", "ppl", (by_seed(*ours.tolist()), by_seed(*theirs.tolist()))).verdict
            == "better"
        )
    assert found >= 285
