import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.surroundings import default_dtype, unchecked

from nnrs.embeddings import cooccurrence, vectors_from_text
from nnrs.embeddings.cooccurrence import _Text
from nnrs.errors import DataError
from nnrs.neighbors.table import NeighborTable


def slow_ppmi(ids, vocab_size, window):
    """PPMI by two loops over the text, with every word a context, on the left and on the right."""
    counts = np.zeros((vocab_size, 2 * vocab_size))
    for i, word in enumerate(ids):
        for j in range(max(0, i - window), min(len(ids), i + window + 1)):
            if i != j:
                counts[word, ids[j] + (vocab_size if j > i else 0)] += 1
    totals = counts.sum(1)
    shares = np.tile(totals**0.75 / (totals**0.75).sum(), 2) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(np.maximum(np.log(counts / (totals[:, None] * shares)), 0), nan=0.0)


def test_ppmi_of_three_words_is_worked_by_hand():
    # a b a c, window 1. Left contexts: b has a 1, a has b 1, c has a 1. Right ones: a has b 1 and c 1, b has a 1.
    # Totals a 3, b 2, c 1; a context's share is split evenly between its two sides.
    smoothed = [3**0.75, 2**0.75, 1.0]
    shares = [share / sum(smoothed) / 2 for share in smoothed]
    text = _Text.of(torch.tensor([0, 1, 0, 2]), 3, window=1, min_count=1)
    [(words, rows)] = text.blocks()
    assert words.tolist() == [0, 1, 2]
    order = text.contexts.argsort()
    left, right = rows[:, :3][:, order], rows[:, 3:][:, order]
    third = math.log(1 / 3 / shares[1]), math.log(1 / 3 / shares[2])
    half, whole = math.log(1 / 2 / shares[0]), math.log(1 / shares[0])
    torch.testing.assert_close(
        left, torch.tensor([[0.0, third[0], 0.0], [half, 0.0, 0.0], [whole, 0.0, 0.0]])
    )
    torch.testing.assert_close(right, torch.tensor([[0.0, *third], [half, 0.0, 0.0], [0.0, 0.0, 0.0]]))


@settings(deadline=None, max_examples=40)
@given(ids=st.lists(st.integers(0, 6), min_size=2, max_size=60), window=st.integers(1, 4))
def test_ppmi_in_blocks_equals_two_plain_loops(ids, window):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cooccurrence, "BLOCK", 3)
        text = _Text.of(torch.tensor(ids), 8, window, 1)
        found = np.zeros((8, 16))
        columns = np.concatenate([text.contexts.numpy(), text.contexts.numpy() + 8])
        for words, rows in text.blocks():
            found[np.ix_(words.numpy(), columns)] = rows.numpy()
    np.testing.assert_allclose(found, slow_ppmi(ids, 8, window), atol=1e-5)


def test_the_rows_are_those_of_a_truncated_svd():
    ids = torch.randint(12, (400,), generator=torch.Generator().manual_seed(0))
    vectors = vectors_from_text(ids, 12, dim=4, window=2).vectors.double()
    u, s, _ = np.linalg.svd(slow_ppmi(ids.tolist(), 12, 2))
    expected = u[:, :4] * np.sqrt(s[:4])
    # Axes are known up to sign, so compare the inner products, which have none.
    torch.testing.assert_close(
        vectors @ vectors.T, torch.from_numpy(expected @ expected.T), atol=1e-4, rtol=1e-4
    )


def test_numbers_beyond_the_rank_of_the_text_are_too_small_to_matter():
    ids = torch.randint(12, (400,), generator=torch.Generator().manual_seed(0))
    vectors = vectors_from_text(ids, 12, dim=100).vectors.double()
    assert vectors.shape[1] >= 12
    rows = torch.from_numpy(slow_ppmi(ids.tolist(), 12, 2))
    u, s, _ = torch.linalg.svd(rows)
    torch.testing.assert_close(vectors @ vectors.T, u @ s.diag() @ u.T, atol=1e-4, rtol=1e-4)


def speak(concepts, synonyms, length, seed):
    """A cycle of concepts with detours, each spoken by a random one of its synonyms."""
    generator = np.random.default_rng(seed)
    steps = generator.choice([1, 1, 1, 7], size=length)
    concept = np.cumsum(steps) % concepts
    return torch.from_numpy(concept * synonyms + generator.integers(synonyms, size=length))


def test_synonyms_come_out_nearest():
    ids = speak(concepts=20, synonyms=3, length=30_000, seed=0)
    table = NeighborTable.from_vectors(vectors_from_text(ids, 60, dim=20).vectors, k=2)
    for word, neighbors in enumerate(table.ids.tolist()):
        first = word // 3 * 3
        assert set(neighbors) == set(range(first, first + 3)) - {word}


def test_the_same_text_gives_the_same_vectors_bit_for_bit():
    ids = speak(20, 3, 3_000, seed=1)
    assert torch.equal(vectors_from_text(ids, 60).vectors, vectors_from_text(ids.int(), 60).vectors)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_default_dtype_changes_no_vector(dtype):
    ids = speak(20, 3, 3_000, seed=1)
    expected = vectors_from_text(ids, 60).vectors
    with default_dtype(dtype):
        assert torch.equal(vectors_from_text(ids, 60).vectors, expected)


def test_rare_and_unseen_words_get_no_vector():
    ids = torch.tensor([0, 1] * 20 + [2] * 4)
    embeddings = vectors_from_text(ids, 4, dim=2, min_count=5)
    assert embeddings.covered.tolist() == [True, True, False, False]
    assert embeddings.source == "corpus"


def test_a_text_without_a_frequent_word_is_refused():
    with pytest.raises(DataError, match="no word occurs 5 times in a text of 3 tokens"):
        vectors_from_text(torch.tensor([0, 1, 2]), 3)


NO_IDS = {
    "fractions": (torch.ones(10), r"torch\.float32 of the shape \(10,\)"),
    "truth values": (torch.ones(10) > 0, r"torch\.bool of the shape \(10,\)"),
    "lines": (torch.ones(2, 5).long(), r"torch\.int64 of the shape \(2, 5\)"),
    "list": ([0, 1], "list"),
    "too high": (torch.tensor([2, 10]), "ids from 2 to 10"),
    "negative": (torch.tensor([-1, 3]), "ids from -1 to 3"),
}


@pytest.mark.parametrize(("ids", "got"), NO_IDS.values(), ids=NO_IDS)
def test_what_is_no_text_of_ids_is_refused(ids, got):
    message = f"^ids must be a one-dimensional tensor of whole numbers from 0 to 9, got {got}\\.$"
    with unchecked(), pytest.raises(DataError, match=message):
        vectors_from_text(ids, 10, min_count=1)


def test_a_text_without_a_token_is_refused():
    # Counts of nothing are whole numbers to torch, which the shapes' check would see first.
    with unchecked(), pytest.raises(DataError, match="no word occurs 5 times in a text of 0 tokens"):
        vectors_from_text(torch.zeros(0, dtype=torch.int64), 3)
