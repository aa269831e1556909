"""A score knows which way is better, and what keeps it from being compared with another."""

import pytest

from nnrs.errors import ConfigError
from nnrs.metrics.score import FAMILIES, Score, differences, over_seeds, seeds_at_odds


@pytest.mark.parametrize(
    ("metric", "better", "shown"),
    [
        ("ppl", "lower", "12.35"),
        ("ppl-neighbor-noise10", "lower", "12.35"),
        ("bleu4", "higher", "12.35"),
        ("self-bleu4", "lower", "12.35"),
        ("wmd", "lower", "12.3457"),
        ("wmd-similarity", "higher", "12.3457"),  # its own family, though its name begins like that of wmd
        ("excess-nats-h20", "lower", "12.3457"),
    ],
)
def test_a_metric_belongs_to_the_longest_family_its_name_begins_with(metric, better, shown):
    score = Score(metric, 12.34567, "seed:1")
    assert score.family.better == better
    assert str(score) == f"{metric}|seed:1 = {shown}"


@pytest.mark.parametrize("metric", ["pplx", "self", "unheard-of"])
def test_a_metric_without_a_family_is_refused(metric):
    with pytest.raises(ConfigError, match=f"unknown metric '{metric}'"):
        _ = Score(metric, 1.0, "seed:1").family


def test_every_family_says_which_way_is_better():
    assert {family.better for family in FAMILIES.values()} == {"higher", "lower"}


def test_a_score_becomes_plain_values_with_its_interval_and_its_curve():
    score = Score("excess-nats-h2", 0.5, "n:3|seed:1", (0.25, 0.75), {"own_nats": [1.0, 2.0]})
    assert score.as_dict() == {
        "metric": "excess-nats-h2",
        "value": 0.5,
        "signature": "excess-nats-h2|n:3|seed:1",
        "better": "lower",
        "interval": [0.25, 0.75],
        "curve": {"own_nats": [1.0, 2.0]},
    }
    plain = Score("ppl", 8.0, "seed:1")
    assert plain.as_dict()["interval"] is None
    assert "curve" not in plain.as_dict()
    assert (score.shown_interval(), plain.shown_interval()) == ("0.2500 to 0.7500", "")


def test_scores_of_different_methods_and_seeds_are_comparable():
    nnrs = Score("ppl", 8.0, "split:test|data:ptb|policy:nnrs|gamma:0-0.2:exponential|k:13|config:ab|seed:1")
    mle = Score("ppl", 9.0, "split:test|data:ptb|policy:mle|config:cd|seed:2")
    assert differences([nnrs, mle]) == {}


def test_what_else_differs_between_signatures_is_named_also_where_one_lacks_it():
    ours = Score("ppl", 8.0, "on:other|split:test|data:ptb|epochs:40|seed:1")
    theirs = Score("ppl", 9.0, "split:test|data:wikitext-2|epochs:40|seed:1")
    assert differences([ours, theirs, ours]) == {"on": ["other", "none"], "data": ["ptb", "wikitext-2"]}


def test_seeds_have_a_mean_where_nothing_else_differs_and_none_comes_twice():
    def scores(*made):
        return [Score(metric, value, signature) for metric, value, signature in made]

    first, second, third = (
        ("wmd", 0.2, "n:9|k:5|seed:1"),
        ("wmd", 0.4, "n:8|k:5|seed:2"),
        ("wmd", 0.9, "n:9|k:5|seed:3"),
    )
    [mean] = over_seeds(scores(first, second, third))
    assert mean.value == pytest.approx(0.5)
    assert mean.sd == pytest.approx((0.09 + 0.01 + 0.16) ** 0.5 / 2**0.5)
    assert str(mean) == "wmd|n:9,8|k:5|seed:1,2,3 = 0.5000 ± 0.3606 (sd)"
    assert over_seeds(scores(first)) == []
    [mean] = over_seeds(scores(first, second, first))  # a copy of a run says nothing of seeds
    assert (mean.value, mean.signature) == (pytest.approx(0.3), "n:9,8|k:5|seed:1,2")
    assert over_seeds(scores(first, first)) == []
    [mean] = over_seeds(scores(first, ("wmd", 0.2, "n:9|k:5|seed:2")))  # two seeds may have one value
    assert (mean.value, mean.sd) == (pytest.approx(0.2), 0.0)
    odd = ("wmd", 0.3, "n:9|k:5|seed:1")  # another value of the first seed
    assert over_seeds(scores(first, second, odd)) == []
    assert seeds_at_odds(scores(first, second, odd)) == scores(first)
    assert seeds_at_odds(scores(first, second, first)) == []
    assert over_seeds(scores(first, ("wmd", 0.4, "n:9|k:6|seed:2"))) == []  # another setting
    assert over_seeds(scores(first, ("self-wmd", 0.4, "n:9|k:5|seed:2"))) == []  # another metric
    assert over_seeds(scores(("bleu4", 1.0, "text:a"), ("bleu4", 2.0, "text:a"))) == []  # no seed
