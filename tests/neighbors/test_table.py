import dataclasses
import math
import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.surroundings import default_dtype, unchecked

import nnrs
from nnrs.embeddings import Embeddings
from nnrs.errors import ConfigError, DataError
from nnrs.neighbors import table as table_module
from nnrs.neighbors.cache import cache_path, fingerprint_of
from nnrs.neighbors.table import NeighborTable, load_or_make

EMPTY = -torch.inf


def small_table():
    """Word 0 has two neighbors, word 1 one, word 2 none."""
    return NeighborTable(
        ids=torch.tensor([[1, 2], [0, 1], [2, 2]]),
        similarities=torch.tensor([[math.log(3.0), 0.0], [0.5, EMPTY], [EMPTY, EMPTY]]),
        fingerprint="made by hand",
    )


def same(a, b):
    return torch.equal(a.ids, b.ids) and torch.equal(a.similarities, b.similarities)


class Quantised(torch.Tensor):
    """As torchao's: several tensors in the place of one."""

    def __tensor_flatten__(self):
        return ["scale", "data"], None


VECTORS = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 0.0], [0.0, 1.0], [math.nan, 1.0], [0.6, 0.8]])


def test_words_without_a_vector_have_no_neighbors_and_are_nobodys():
    table = NeighborTable.from_vectors(VECTORS, k=2)
    assert table.replaceable.tolist() == [True, True, False, True, False, True]
    assert table.ids.tolist() == [[1, 5], [5, 0], [2, 2], [5, 1], [4, 4], [1, 3]]
    # 0.8 * 0.6 + 0.6 * 0.8 = 0.96
    expected = torch.tensor([[0.8, 0.6], [0.96, 0.8], [EMPTY] * 2, [0.8, 0.6], [EMPTY] * 2, [0.96, 0.8]])
    torch.testing.assert_close(table.similarities, expected)
    assert (table.vocab_size, table.k) == (6, 2)


def test_protected_words_have_no_neighbors_and_are_nobodys():
    table = NeighborTable.from_vectors(VECTORS, k=1, protected=[5])
    assert table.ids.tolist() == [[1], [0], [2], [1], [4], [5]]
    assert table.replaceable.tolist() == [True, True, False, True, False, False]


def test_words_of_one_group_are_not_each_others_neighbors():
    table = NeighborTable.from_vectors(VECTORS, k=1, groups=torch.tensor([0, 1, 2, 3, 4, 1]))
    assert table.ids.tolist() == [[1], [0], [2], [5], [4], [3]]


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
def test_arrays_of_any_precision_are_taken_and_left_untouched(kind):
    array = VECTORS.numpy().astype(kind)
    before = array.copy()
    assert same(
        NeighborTable.from_vectors(array, k=2), NeighborTable.from_vectors(torch.from_numpy(before), k=2)
    )
    np.testing.assert_array_equal(array, before)


def test_a_models_own_embedding_is_taken_without_a_gradient():
    weight = torch.nn.Parameter(torch.randn(8, 4))
    assert not NeighborTable.from_vectors(weight, k=2).similarities.requires_grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_default_dtype_changes_no_table(dtype):
    text, everyone = torch.tensor([0, 1, 0, 2, 1, 0]), torch.ones(3, dtype=torch.bool)
    expected = (
        NeighborTable.from_vectors(VECTORS, k=2),
        NeighborTable.from_transitions(text, replaceable=everyone, k=2),
    )
    with default_dtype(dtype):
        found = (
            NeighborTable.from_vectors(VECTORS, k=2),
            NeighborTable.from_transitions(text, replaceable=everyone, k=2),
        )
    assert same(found[0], expected[0])
    assert same(found[1], expected[1])


def test_k_defaults_to_log2_of_the_vocabulary():
    assert NeighborTable.from_vectors(torch.randn(100, 5)).k == 7  # log2 100 = 6.6


@pytest.mark.parametrize(
    ("k", "message"),
    [(-1, "k must be 0 or more, got -1"), (4, "k=4 .* only 4 words"), (99, "k=99 .* only 4 words")],
)
def test_a_k_that_cannot_be_is_refused_with_both_numbers(k, message):
    with pytest.raises(ConfigError, match=message):
        NeighborTable.from_vectors(VECTORS, k=k)


def test_a_k_that_is_no_whole_number_is_refused_and_one_of_numpys_is_not():
    for k in (2.0, "2"):
        with unchecked(), pytest.raises(ConfigError, match=f"k must be a whole number, got {k!r}"):
            NeighborTable.from_vectors(VECTORS, k=k)
    with unchecked():
        found = NeighborTable.from_vectors(VECTORS, k=np.int64(2))
    expected = NeighborTable.from_vectors(VECTORS, k=2)
    assert same(found, expected)
    assert found.fingerprint == expected.fingerprint


def test_too_few_vectors_for_the_usual_k_are_not_blamed_on_the_user():
    vectors = torch.zeros(10_000, 2)
    vectors[:5] = 1.0
    with pytest.raises(
        ConfigError, match=r"k=13, the usual for 10,000 words, .* only 5 words .* at most k=4"
    ):
        NeighborTable.from_vectors(vectors)


@pytest.mark.parametrize("protected", [[5, 0], np.array([5, 0]), torch.tensor([5, 0]), {np.int64(5), 0}])
def test_protected_ids_may_be_any_whole_numbers(protected):
    with unchecked():
        table = NeighborTable.from_vectors(VECTORS, k=1, protected=protected)
    assert table.replaceable.tolist() == [False, True, False, True, False, False]


MASK = [False, False, True, False, False, False]


@pytest.mark.parametrize(
    "protected",
    [torch.tensor(MASK), np.array(MASK), MASK, ["<eos>"], "<eos>", [1.0], 0, None, torch.tensor(0)],
    ids=str,
)
def test_what_is_no_list_of_ids_is_not_taken_for_protected_ones(protected):
    with (
        unchecked(),
        pytest.raises(ConfigError, match=r"^protected must be a list of ids, got .*mask\.nonzero\(\)"),
    ):
        NeighborTable.from_vectors(VECTORS, k=1, protected=protected)


@pytest.mark.parametrize(
    ("groups", "got"),
    [
        (torch.zeros(5, dtype=torch.int64), r"torch\.int64 of the shape \(5,\)"),
        (torch.zeros(6, 1, dtype=torch.int64), r"torch\.int64 of the shape \(6, 1\)"),
        (torch.zeros(6), "torch.float32 of the shape"),
        ([0] * 6, "list"),
    ],
)
def test_groups_that_do_not_fit_the_words_are_refused(groups, got):
    message = f"groups must be a tensor with a whole number for each of the 6 words, got {got}"
    with unchecked(), pytest.raises(ConfigError, match=message):
        NeighborTable.from_vectors(VECTORS, k=1, groups=groups)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (torch.nn.Embedding(6, 2), r"got Embedding\. Use its \.weight\."),
        (Embeddings(VECTORS, "file"), r"got Embeddings\. Use its \.vectors\."),
        (torch.nn.ReLU(), "got ReLU"),
        (None, "got NoneType"),
        (["market", "stock"], "got list"),
        (torch.zeros(6), r"got the shape \(6,\)"),
        (VECTORS.to_sparse(), r"got torch\.sparse_coo\. Use its \.to_dense\(\)\."),
        (VECTORS.to(torch.complex64), r"got torch\.complex64\. Use its \.real\."),
        (VECTORS.as_subclass(Quantised), r"got Quantised\. Make the table before the model is quantised"),
        (VECTORS.to("meta"), r"got one on the meta device, which has none\. Load the weights first\."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_matrix_of_vectors_is_refused(vectors, message):
    with unchecked(), pytest.raises(ConfigError, match=f"^vectors must be .*{message}"):
        NeighborTable.from_vectors(vectors, k=1)


def without_kinds(make, errors):
    """What makes tensors, on a machine that lacks some kinds of devices, by what torch raises for each."""

    def made(*size, device):
        if torch.device(device).type in errors:
            raise errors[torch.device(device).type]
        return make(*size, device=device)

    return made


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("foo", r"unknown device 'foo'\. Use cpu, cuda or cuda:0\."),
        (
            "cuda",
            r"device 'cuda' is not there: torch\.cuda\.is_available\(\) is False\. Use the device cpu\.",
        ),
        (0, r"device '0' is not there: torch\.cuda\.is_available\(\) is False\. Use the device cpu\."),
        ("mps", r"device 'mps' is not there\. Use the device cpu\."),
        ("xpu", r"device 'xpu' is not there\. Use the device cpu\."),
        ("meta", r"device 'meta' is not there\. Use the device cpu\."),
    ],
)
def test_a_device_that_is_not_there_is_refused_by_name(device, message, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # whose driver, say, is too old
    errors = {"mps": NotImplementedError, "xpu": AssertionError}  # also where this machine has one of them
    monkeypatch.setattr(torch, "empty", without_kinds(torch.empty, errors))
    makers = [
        lambda: NeighborTable.from_vectors(VECTORS, k=1, device=device),
        lambda: NeighborTable.from_model(torch.nn.ReLU(), None, device=device),
        lambda: nnrs.load(tmp_path, device=device),
    ]
    for make in makers:
        with unchecked(), pytest.raises(ConfigError, match=f"^{message}$"):
            make()


def test_a_protected_id_outside_the_vocabulary_is_refused():
    with pytest.raises(ConfigError, match="protected id 6 is not one of the 6 words"):
        NeighborTable.from_vectors(VECTORS, k=1, protected=[6])


def test_k_zero_replaces_nothing_even_where_nothing_has_a_vector():
    table = NeighborTable.from_vectors(torch.zeros(3, 2), k=0)
    tokens = torch.tensor([[0, 2], [1, 1]])
    assert torch.equal(table.draw(tokens, torch.rand(2, 2), 0.5), tokens)
    assert table.replaceable.tolist() == [False] * 3
    assert table.hubs(3) == []
    assert table.row(0, 1.0) == []


@settings(deadline=None)
@given(
    tokens=st.lists(st.integers(0, 2), min_size=1, max_size=20),
    seed=st.integers(0, 1000),
    temperature=st.floats(0.01, 100),
)
def test_a_draw_is_the_neighbor_on_whose_stretch_of_the_unit_interval_it_falls(tokens, seed, temperature):
    table = small_table()
    uniform = torch.rand(len(tokens), generator=torch.Generator().manual_seed(seed))
    drawn = table.draw(torch.tensor(tokens), uniform, temperature)
    for token, u, neighbor in zip(tokens, uniform.tolist(), drawn.tolist(), strict=True):
        slots = table.row(token, temperature) or [(token, 0.0, 1.0)]
        ends = np.cumsum([probability for _, _, probability in slots])
        place = [candidate for candidate, _, _ in slots].index(neighbor)
        start = ends[place - 1] if place else 0.0
        assert start - 1e-6 <= u <= ends[place] + 1e-6  # float32 ends


def test_drawn_frequencies_match_the_softmax():
    # Odds 3 : 1 at temperature 1; 9 : 1 at 0.5. 40,000 draws, 4 standard errors.
    table, n = small_table(), 40_000
    tokens = torch.zeros(200, 200, dtype=torch.int64)
    uniform = torch.rand(200, 200, generator=torch.Generator().manual_seed(0))
    for temperature, share in [(1.0, 0.75), (0.5, 0.9)]:
        drawn = (table.draw(tokens, uniform, temperature) == 1).float().mean().item()
        assert abs(drawn - share) < 4 * math.sqrt(share * (1 - share) / n)


def test_tokens_without_neighbors_stay_themselves_and_inputs_are_left_untouched():
    table = small_table()
    tokens = torch.tensor([2, 1, 2])
    before = tokens.clone()
    assert table.draw(tokens, torch.tensor([0.0, 0.999, 0.999]), 1.0).tolist() == [2, 0, 2]
    assert torch.equal(tokens, before)


def test_a_temperature_may_be_a_tensor():
    tokens, uniform = torch.zeros(50, dtype=torch.int64), torch.linspace(0, 0.99, 50)
    table = small_table()
    assert torch.equal(table.draw(tokens, uniform, torch.tensor(0.7)), table.draw(tokens, uniform, 0.7))


def test_a_row_lists_its_filled_slots():
    [(first, similarity, probability), second] = small_table().row(0, temperature=1.0)
    assert (first, second[0]) == (1, 2)
    assert similarity == pytest.approx(math.log(3.0))
    assert probability == pytest.approx(0.75)
    assert small_table().row(2, 1.0) == []


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("the", "the id of a word must be a whole number, got 'the'."),
        (3, "id 3 is not one of the 3 words."),
        (-1, "id -1 is not one of the 3 words."),
    ],
)
def test_a_row_is_asked_for_by_the_id_of_a_word(word, message):
    with unchecked(), pytest.raises(ConfigError) as caught:
        small_table().row(word, 1.0)
    assert str(caught.value) == message


def test_hubs_are_counted_over_filled_slots_and_tied_ones_ordered_by_id():
    ids = torch.tensor([[2, 1], [2, 0], [1, 0], [3, 3]])
    similarities = torch.tensor([[0.9, 0.8], [0.9, 0.8], [0.9, 0.8], [EMPTY, EMPTY]])
    assert NeighborTable(ids, similarities).hubs(10) == [(0, 2), (1, 2), (2, 2)]
    assert NeighborTable(ids, similarities).hubs(1) == [(0, 2)]


@pytest.mark.parametrize("count", [-1, 1.5])
def test_a_count_of_hubs_that_is_none_is_refused(count):
    message = rf"^count must be a whole number of at least 0, got {count}\.$"
    with unchecked(), pytest.raises(ConfigError, match=message):
        small_table().hubs(count)


def test_a_saved_table_comes_back_whole(tmp_path):
    table = dataclasses.replace(small_table(), recall=0.1 + 0.2)
    table.save(tmp_path / "t.safetensors")
    loaded = NeighborTable.load(tmp_path / "t.safetensors")
    assert same(loaded, table)
    assert (loaded.fingerprint, loaded.recall) == ("made by hand", 0.1 + 0.2)
    assert [path.name for path in tmp_path.iterdir()] == ["t.safetensors"]


def test_a_path_may_be_a_text(tmp_path):
    path = str(tmp_path / "t.safetensors")
    small_table().save(path)
    assert same(NeighborTable.load(path), small_table())


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "cut":
        content = content[:-3]
    elif how == "flipped":
        content[-3] ^= 1
    elif how == "emptied":
        content = bytearray()
    elif how == "other":
        content = bytearray(b"not a table")
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["cut", "flipped", "emptied", "other"])
def test_a_damaged_table_is_refused_by_name(tmp_path, how):
    path = tmp_path / "t.safetensors"
    small_table().save(path)
    damage(path, how)
    with pytest.raises(DataError, match=r"t\.safetensors"):
        NeighborTable.load(path)


def test_a_missing_or_foreign_file_is_refused_by_name(tmp_path):
    from safetensors.torch import save_file

    save_file({"ids": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    for name in ("missing.safetensors", "foreign.safetensors"):
        with pytest.raises(DataError, match=name):
            NeighborTable.load(tmp_path / name)


def counting(calls):
    def make():
        calls.append(1)
        return dataclasses.replace(small_table(), fingerprint="f" * 64)

    return make


def test_a_table_is_made_once_and_then_comes_from_the_cache():
    calls = []
    tables = [load_or_make("f" * 64, counting(calls)) for _ in range(3)]
    assert len(calls) == 1
    assert all(same(table, small_table()) for table in tables)


@pytest.mark.parametrize("how", ["cut", "flipped", "emptied", "other"])
def test_a_damaged_cache_file_is_made_anew(how):
    calls = []
    load_or_make("f" * 64, counting(calls))
    damage(cache_path("f" * 64), how)
    assert same(load_or_make("f" * 64, counting(calls)), small_table())
    load_or_make("f" * 64, counting(calls))
    assert len(calls) == 2


def test_a_cache_file_of_another_fingerprint_is_not_taken():
    cache_path("f" * 64).parent.mkdir(parents=True, exist_ok=True)
    small_table().save(cache_path("f" * 64))  # "made by hand"
    calls = []
    assert load_or_make("f" * 64, counting(calls)).fingerprint == "f" * 64
    assert calls == [1]


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("NNRS_CACHE", str(tmp_path / "file"))
    calls = []
    assert same(load_or_make("f" * 64, counting(calls)), small_table())
    assert calls == [1]


def test_a_user_without_a_home_has_no_cache_and_no_error(monkeypatch):
    for name in ("NNRS_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)  # whom no password file knows
    calls = []
    assert same(load_or_make("f" * 64, counting(calls)), small_table())
    assert calls == [1]
    assert cache_path("ab") is None


def test_the_cache_folder_follows_the_environment(tmp_path, monkeypatch):
    assert cache_path("ab").parent == type(tmp_path)(os.environ["NNRS_CACHE"])
    monkeypatch.delenv("NNRS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_path("ab").parent == tmp_path / "nnrs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_path("ab").parent == tmp_path / ".cache" / "nnrs"


def test_a_large_table_is_searched_for_once(monkeypatch):
    monkeypatch.setattr(table_module, "WORTH_CACHING", 50)
    vectors = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    searches = []
    real = table_module.nearest
    monkeypatch.setattr(table_module, "nearest", lambda *a, **b: searches.append(1) or real(*a, **b))
    first, second = (NeighborTable.from_vectors(vectors, k=3) for _ in range(2))
    assert same(first, second)
    assert len(searches) == 1
    NeighborTable.from_vectors(vectors, k=3, protected=[5])
    NeighborTable.from_vectors(vectors, k=4)
    NeighborTable.from_vectors(vectors, k=3, groups=torch.arange(60) // 2)
    NeighborTable.from_vectors(vectors + 1, k=3)
    assert len(searches) == 5  # each asks for something else


def test_fingerprints_tell_parts_apart():
    a, b = torch.arange(4), torch.arange(4.0)
    lists = [(a,), (b,), (a.view(2, 2),), (a.int(),), ("a",), ("a", ""), ("", "a"), (1,), ("1",), (None,), ()]
    assert len({fingerprint_of(*parts) for parts in lists}) == len(lists)
    assert fingerprint_of(a, "x") == fingerprint_of(a.clone(), "x")
    assert fingerprint_of(a.view(2, 2).T) == fingerprint_of(a.view(2, 2).T.contiguous())


@pytest.mark.data
def test_ptb_has_the_effective_neighbors_that_the_method_page_states(shared_data):
    from nnrs.embeddings import read_vectors
    from nnrs.neighbors.probabilities import effective_neighbors

    text = (shared_data / "ptb" / "ptb.train.txt").read_text().split()
    words, numbers = np.unique(text, return_counts=True)
    file = shared_data / "embeddings" / "googlenews-negative300.subset.bin.gz"
    vectors = read_vectors(file, words.tolist()).vectors
    protected = [words.tolist().index(word) for word in ("<unk>", "N")]
    table = NeighborTable.from_vectors(vectors, k=13, protected=protected)
    weights = torch.from_numpy(numbers).float()
    for temperature, stated in [(0.02, 2.1), (0.05, 5.4), (0.1, 9.4), (0.5, 12.85), (10.0, 13.0)]:
        assert effective_neighbors(table.similarities, temperature, weights) == pytest.approx(
            stated, abs=0.06
        )
