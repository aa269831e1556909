import itertools
import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from nnrs.metrics.frequency import decile_perplexities, frequency_deciles


@given(counts=st.lists(st.integers(0, 1000), min_size=1, max_size=60))
def test_rarer_words_never_come_before_more_frequent_ones(counts):
    deciles = frequency_deciles(torch.tensor(counts).double())
    pairs = sorted(zip(counts, deciles.tolist(), strict=True), reverse=True)
    assert all(0 <= decile <= 9 for _, decile in pairs)
    for (more, before), (less, after) in itertools.pairwise(pairs):
        assert more == less or before <= after


def test_many_equal_words_fill_the_tenths_evenly():
    deciles = frequency_deciles(torch.full((200,), 3.0).double())
    assert torch.bincount(deciles).tolist() == [20] * 10


def test_each_tenth_has_the_perplexity_of_its_own_tokens():
    deciles = torch.tensor([0, 0, 9])
    nats = torch.tensor([1.0, 3.0, 2.0, 4.0]).double()
    found = decile_perplexities(nats, torch.tensor([0, 1, 0, 2]), deciles)
    assert math.isclose(found[0].item(), math.exp((1 + 3 + 2) / 3))
    assert math.isclose(found[9].item(), math.exp(4))
    assert found[1:9].isnan().all()
