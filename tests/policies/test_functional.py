import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nnrs
from nnrs.errors import ConfigError
from nnrs.policies.functional import capacity_for, positions_of

VECTORS = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))


def test_the_one_line_use_replaces_at_its_rate_and_leaves_its_argument():
    table = nnrs.NeighborTable.from_vectors(VECTORS, k=4)
    tokens = torch.arange(30).repeat(1000)
    kept = tokens.clone()
    generator = torch.Generator().manual_seed(1)
    inputs = nnrs.replace_with_neighbors(tokens, table, rate=0.2, temperature=0.5, generator=generator)
    assert torch.equal(tokens, kept)
    changed = inputs != tokens
    assert abs(changed.double().mean().item() - 0.2) < 4 * math.sqrt(0.2 * 0.8 / len(tokens))
    neighbors = table.ids[tokens[changed]]
    assert (neighbors == inputs[changed].unsqueeze(1)).any(1).all()


def test_protected_positions_and_words_without_a_vector_stay():
    vectors = VECTORS.clone()
    vectors[3], vectors[4] = 0.0, torch.nan
    table = nnrs.NeighborTable.from_vectors(vectors.numpy(), k=4)
    tokens = torch.arange(30)
    protect = tokens < 3
    inputs = nnrs.replace_with_neighbors(tokens, table, rate=1.0, protect=protect)
    assert torch.equal((inputs == tokens).nonzero()[:, 0], torch.arange(5))
    assert not torch.isin(inputs[5:], torch.tensor([3, 4])).any()


def test_rate_0_and_k_0_change_nothing_and_a_rate_above_1_is_refused():
    tokens = torch.arange(30)
    table = nnrs.NeighborTable.from_vectors(VECTORS, k=4)
    assert torch.equal(nnrs.replace_with_neighbors(tokens, table, rate=0.0), tokens)
    empty = nnrs.NeighborTable.from_vectors(VECTORS, k=0)
    assert torch.equal(nnrs.replace_with_neighbors(tokens, empty, rate=1.0), tokens)
    with pytest.raises(ConfigError, match="probability"):
        nnrs.replace_with_neighbors(tokens, table, rate=1.2)


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 45))
def test_padded_positions_are_the_plain_ones_and_then_one_past_the_end(mask, capacity):
    mask = torch.tensor(mask)
    plain, padded = positions_of(mask).tolist(), positions_of(mask, capacity).tolist()
    length = min(capacity, len(mask))
    assert padded == (plain + [len(mask)] * len(mask))[:length]


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.2, 0.5, 1.0])
def test_the_capacity_holds_every_claim_that_will_ever_be_seen(rate):
    generator = torch.Generator().manual_seed(2)
    claims = (torch.rand(2000, 700, generator=generator) < rate).sum(1)
    assert int(claims.max()) <= capacity_for(rate, 700, 1) <= 700
