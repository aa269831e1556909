import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.surroundings import default_dtype, unchecked

import nnrs
from nnrs.errors import ConfigError
from nnrs.neighbors.probabilities import neighbor_probabilities
from nnrs.policies.functional import capacity_for, draw_shape, positions_of

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


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("0.2", r"rate must be a probability in \[0, 1\], got '0\.2'"),
        (np.float32(2.0), r"rate must be a probability in \[0, 1\], got .*2\.0"),
        (None, "rate must be a probability"),
        (nnrs.Schedule("linear"), r"ask the schedule for it, as in rate=schedule\("),
    ],
)
def test_a_rate_that_is_no_probability_is_refused(rate, message):
    table = nnrs.NeighborTable.from_vectors(VECTORS, k=4)
    with unchecked(), pytest.raises(ConfigError, match=message):
        nnrs.replace_with_neighbors(torch.arange(30), table, rate=rate)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"rate": torch.full((3,), 0.5)}, r"rate must be one number, got a tensor of the shape \(3,\)"),
        ({"rate": torch.tensor(math.nan)}, r"rate must be a probability in \[0, 1\], got nan"),
        ({"rate": torch.tensor(5.0)}, r"rate must be a probability in \[0, 1\], got 5\.0"),
        ({"temperature": torch.ones(3, 3, 4)}, r"temperature must be one number, got .* shape \(3, 3, 4\)"),
        ({"temperature": torch.tensor(-1.0)}, r"temperature must be in \[0\.0001, 10000\], got -1\.0"),
        ({"temperature": torch.tensor(0.0)}, r"temperature must be in .* got 0\.0"),
        ({"temperature": torch.tensor(math.nan)}, r"temperature must be in .* got nan"),
    ],
)
def test_a_tensor_of_several_numbers_or_of_a_wrong_one_is_refused(numbers, message):
    table, tokens = nnrs.NeighborTable.from_vectors(VECTORS, k=4), torch.arange(9).view(3, 3)
    with unchecked(), pytest.raises(ConfigError, match=f"^{message}"):
        nnrs.replace_with_neighbors(tokens, table, **{"rate": 0.5, **numbers})


def test_a_number_that_would_have_to_be_waited_for_is_not_looked_at():
    table = nnrs.NeighborTable.from_vectors(VECTORS, k=4).to("meta")
    tokens, number = torch.arange(9, device="meta"), torch.tensor(0.5, device="meta")
    assert nnrs.replace_with_neighbors(tokens, table, rate=number, temperature=number).is_meta


def test_a_number_that_stands_for_several_is_not_looked_at():
    similarities = torch.rand(3, 4)
    temperatures = torch.tensor([0.5, 2.0])
    both = torch.vmap(neighbor_probabilities, in_dims=(None, 0))(similarities, temperatures)
    each = torch.stack([neighbor_probabilities(similarities, value) for value in (0.5, 2.0)])
    torch.testing.assert_close(both, each)


@pytest.mark.parametrize("kind", [np.float32, np.float64, torch.tensor])
def test_a_number_of_any_kind_is_a_rate(kind):
    table, tokens = nnrs.NeighborTable.from_vectors(VECTORS, k=4), torch.arange(30)
    drawn = []
    for rate in (0.25, kind(0.25)):
        generator = torch.Generator().manual_seed(0)
        with unchecked():
            drawn.append(nnrs.replace_with_neighbors(tokens, table, rate=rate, generator=generator))
    assert torch.equal(*drawn)
    assert not torch.equal(drawn[0], tokens)


@pytest.mark.parametrize("granularity", [1, None])
def test_a_granularity_that_is_no_name_is_refused(granularity):
    with unchecked(), pytest.raises(ConfigError, match=r"granularity must be a name, got .* Known: position"):
        draw_shape(granularity, 2, 3)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_ids_without_a_row_stay(rate):
    table = nnrs.NeighborTable.from_vectors(VECTORS, k=4)
    tokens = torch.tensor([[-100, 3, 30], [-1, 10**9, -(2**40)]])
    inputs = nnrs.replace_with_neighbors(tokens, table, rate=rate)
    assert (inputs == tokens).tolist() == [[True, rate == 0.0, True], [True, True, True]]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16])
def test_tokens_keep_their_dtype_and_become_what_int64_ones_do(dtype):
    table = nnrs.NeighborTable.from_vectors(VECTORS, k=4)
    tokens = torch.arange(30).repeat(4)
    as_long, narrow = (
        nnrs.replace_with_neighbors(each, table, rate=0.5, generator=torch.Generator().manual_seed(0))
        for each in (tokens, tokens.to(dtype))
    )
    assert narrow.dtype == dtype
    assert torch.equal(narrow.long(), as_long)
    assert not torch.equal(as_long, tokens)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(torch.int8, "int8"), (torch.float32, "float32"), (torch.bool, "bool"), (torch.complex64, "complex64")],
)
def test_tokens_that_could_not_hold_a_neighbor_are_refused(dtype, name):
    table = nnrs.NeighborTable.from_vectors(torch.randn(129, 4), k=2)
    message = rf"tokens of torch\.{name} cannot hold the ids of a table of 129 words"
    with unchecked(), pytest.raises(ConfigError, match=message):
        nnrs.replace_with_neighbors(torch.zeros(3, dtype=dtype), table, rate=0.0)


def test_a_mask_of_zeros_and_ones_protects_as_one_of_booleans_does():
    table = nnrs.NeighborTable.from_vectors(VECTORS, k=4)
    tokens = torch.arange(30)
    inputs = nnrs.replace_with_neighbors(tokens, table, rate=1.0, protect=(tokens < 3).long())
    assert torch.equal((inputs == tokens).nonzero()[:, 0], torch.arange(3))


@pytest.mark.parametrize(
    "protect", [[0, 1], torch.tensor([5]), torch.tensor([[0]])], ids=["list", "ids", "shape"]
)
def test_a_mask_of_another_shape_is_refused_by_name(protect):
    table, tokens = nnrs.NeighborTable.from_vectors(VECTORS, k=4), torch.arange(30)
    with (
        unchecked(),
        pytest.raises(ConfigError, match=r"^protect must be a mask of the tokens' shape, \(30,\)"),
    ):
        nnrs.replace_with_neighbors(tokens, table, rate=1.0, protect=protect)


def test_tokens_that_are_no_tensor_are_refused_by_name():
    table = nnrs.NeighborTable.from_vectors(VECTORS, k=4)
    with unchecked(), pytest.raises(ConfigError, match=r"^tokens must be a tensor of ids, got list\."):
        nnrs.replace_with_neighbors([1, 2], table, rate=1.0)


@pytest.mark.parametrize("table", [None, VECTORS, nnrs.Embeddings(VECTORS, "corpus")])
def test_what_is_no_table_is_refused_by_name(table):
    message = rf"^table must be a NeighborTable, got {type(table).__name__}\. Make it by NeighborTable\.from_"
    with unchecked(), pytest.raises(ConfigError, match=message):
        nnrs.replace_with_neighbors(torch.arange(30), table, rate=1.0)


@pytest.mark.parametrize("generator", [3, np.random.default_rng(3)])
def test_what_is_no_generator_of_torch_is_refused(generator):
    table = nnrs.NeighborTable.from_vectors(VECTORS, k=4)
    message = r"^generator must be a torch\.Generator, got (3|Generator\(PCG64\).*)\. Use torch\.Generator\("
    with unchecked(), pytest.raises(ConfigError, match=message):
        nnrs.replace_with_neighbors(torch.arange(30), table, rate=1.0, generator=generator)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_default_dtype_changes_no_draw(dtype):
    table, tokens = nnrs.NeighborTable.from_vectors(VECTORS, k=4), torch.arange(30).repeat(100)
    expected = nnrs.replace_with_neighbors(
        tokens, table, rate=0.2, generator=torch.Generator().manual_seed(1)
    )
    with default_dtype(dtype):
        inputs = nnrs.replace_with_neighbors(
            tokens, table, rate=0.2, generator=torch.Generator().manual_seed(1)
        )
    assert torch.equal(inputs, expected)


def test_the_one_line_use_compiles_whole():
    table = nnrs.NeighborTable.from_vectors(VECTORS, k=4)
    tokens, protect = torch.tensor([-100, *range(40)]), torch.arange(41) % 2
    compiled = torch.compile(nnrs.replace_with_neighbors, backend="eager", fullgraph=True)
    for rate, temperature in (
        (0.0, 0.5),
        (0.6, 0.7),
        (0.7, 0.9),
        (torch.tensor(0.6), torch.tensor(0.7)),
    ):  # second numbers make variables of the graph
        drawn = []
        for use in (compiled, nnrs.replace_with_neighbors):
            torch.manual_seed(1)
            with unchecked():
                drawn.append(use(tokens, table, rate=rate, temperature=temperature, protect=protect))
        assert torch.equal(*drawn)


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
    assert int(claims.max()) <= capacity_for(rate, "token", 20, 35) <= 700
