import math

import torch

from nnrs.metrics.significance import bootstrap_interval, resampled_means
from nnrs.seeding import Random, Stream


def test_means_of_resamples_scatter_as_the_mean_of_the_sample_does():
    rows = Random(3, Stream.TEXT).uniform(400, 1).double()
    means = resampled_means(rows, resamples=4000)
    expected = rows.std(correction=0).item() / math.sqrt(400)
    # The deviation of 4,000 means is known to 1 / sqrt(8000) = 1.1 %; five times that is allowed.
    assert abs(means.std().item() / expected - 1) < 0.056
    assert abs(means.mean().item() - rows.mean().item()) < 5 * expected / math.sqrt(4000)


def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    covered = 0
    for trial in range(200):
        rows = Random(trial, Stream.TEXT).uniform(60, 1).double()
        low, high = bootstrap_interval(rows, resamples=400, seed=trial)
        covered += bool(low <= 0.5 <= high)
    # 95 % of 200 is 190, with a standard error of 3.1; percentile intervals of 60 rows are a little short.
    assert 190 - 5 * 3.1 <= covered <= 200


def test_columns_of_a_row_stay_together():
    rows = Random(3, Stream.TEXT).uniform(50, 1).double()
    low, high = bootstrap_interval(
        torch.cat([rows, rows], dim=1), lambda means: means[..., :1] - means[..., 1:]
    )
    assert low.item() == high.item() == 0.0


def test_the_same_seed_gives_the_same_interval_and_another_one_another():
    rows = Random(3, Stream.TEXT).uniform(50, 1).double()
    first, again, other = (bootstrap_interval(rows, seed=seed)[0].item() for seed in (1, 1, 2))
    assert first == again != other
