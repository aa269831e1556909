import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nnrs.errors import ConfigError
from nnrs.neighbors import search
from nnrs.neighbors.search import nearest
from nnrs.neighbors.space import Space


def plain(vectors, k, candidates, groups=None):
    """Every row's neighbors by sorting all float64 cosines, rounded to float32 once, by (-cosine, id)."""
    rows = np.asarray(vectors, dtype=np.float64)
    norms = np.linalg.norm(rows, axis=1)
    answer = []
    for row in range(len(rows)):
        slots = []
        for other in np.flatnonzero(candidates) if candidates[row] else ():
            alike = row == other if groups is None else groups[row] == groups[other]
            if not alike:
                slots.append((-np.float32(rows[row] @ rows[other] / (norms[row] * norms[other])), other))
        answer.append([(int(other), -similarity) for similarity, other in sorted(slots)[:k]])
    return answer


def slots_of(found):
    """The filled slots of each row."""
    rows = zip(found.ids.tolist(), found.similarities.tolist(), strict=True)
    return [[(i, s) for i, s in zip(ids, values, strict=True) if s > -np.inf] for ids, values in rows]


def assert_same(found, expected):
    for mine, theirs in zip(slots_of(found), expected, strict=True):
        assert [i for i, _ in mine] == [i for i, _ in theirs]
        np.testing.assert_allclose([s for _, s in mine], [s for _, s in theirs], atol=1e-6)


def everyone(count):
    return torch.ones(count, dtype=torch.bool)


def test_the_nearest_of_four_directions_are_worked_by_hand():
    # Unit vectors at 0, 30, 90 and 180 degrees: cosines are those of the differences.
    angles = torch.deg2rad(torch.tensor([0.0, 30.0, 90.0, 180.0]))
    lengths = torch.tensor([[1.0], [5.0], [0.1], [2.0]])  # which do not matter
    found = nearest(torch.stack([angles.cos(), angles.sin()], 1) * lengths, 2, candidates=everyone(4))
    assert found.ids.tolist() == [[1, 2], [0, 2], [1, 0], [2, 1]]
    half, root = 0.5, 3**0.5 / 2
    expected = torch.tensor([[root, 0.0], [root, half], [half, 0.0], [0.0, -root]])
    torch.testing.assert_close(found.similarities, expected, atol=1e-6, rtol=0)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_the_search_equals_a_plain_sort_with_duplicates_groups_and_words_left_out(data):
    count = data.draw(st.integers(4, 90), label="rows")
    generator = np.random.default_rng(data.draw(st.integers(0, 10**6), label="seed"))
    vectors = generator.standard_normal((count, data.draw(st.sampled_from([1, 2, 7, 40])))).astype(np.float32)
    # Copies, also scaled by powers of two, give cosines that are equal.
    copies = generator.integers(count, size=data.draw(st.sampled_from([0, count // 2, 2 * count])))
    for copy in copies:
        vectors[copy] = vectors[generator.integers(count)] * 2.0 ** generator.integers(-3, 4)
    candidates = generator.random(count) < data.draw(st.sampled_from([0.7, 1.0]))
    candidates[:3] = True
    groups = generator.integers(data.draw(st.sampled_from([2, count // 2, count])), size=count)
    groups = groups if data.draw(st.booleans(), label="grouped") else None
    k = data.draw(st.integers(1, min(15, int(candidates.sum()) - 1)), label="k")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "CPU_SCORES", 128 * data.draw(st.integers(1, 64), label="block"))
        found = nearest(
            torch.from_numpy(vectors),
            k,
            candidates=torch.from_numpy(candidates),
            groups=None if groups is None else torch.from_numpy(groups),
        )
    assert_same(found, plain(vectors, k, candidates, groups))


@pytest.mark.parametrize("copies", [2, 9, 40])  # within the spare slots, at their edge, far beyond
def test_equal_vectors_are_ordered_by_id_however_many_there_are(copies):
    base = torch.randn(30, 20, generator=torch.Generator().manual_seed(copies))
    vectors = base.repeat(copies, 1)
    k = 7
    assert_same(
        nearest(vectors, k, candidates=everyone(len(vectors))), plain(vectors, k, everyone(30 * copies))
    )


def test_float32_scores_alone_would_get_near_ties_wrong():
    # Neighbors of row 0 that differ in the last bits: the case that the recomputation is there for.
    generator = torch.Generator().manual_seed(3)
    target = torch.randn(1, 300, generator=generator)
    near = target + 3e-4 * torch.randn(60, 300, generator=generator)
    vectors = torch.cat([target, near])
    truth = plain(vectors, 10, everyone(61))
    units = torch.nn.functional.normalize(vectors)
    naive = (units[:1] @ units[1:].T).topk(10).indices + 1
    assert naive.tolist()[0] != [i for i, _ in truth[0]]
    assert_same(nearest(vectors, 10, candidates=everyone(61)), truth)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6), groups=st.integers(1, 6), count=st.integers(1, 12), levels=st.integers(1, 500)
)
def test_the_two_stages_keep_the_highest_scores(seed, groups, count, levels):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(levels, (5, groups * search.COLUMN_GROUP), generator=generator).float()
    columns, values = search._top(scores, count)
    assert torch.equal(values, scores.topk(count).values)
    assert torch.equal(scores.gather(1, columns), values)
    assert all(len(set(row)) == count for row in columns.tolist())


def test_scores_further_apart_than_the_margin_are_in_true_order():
    # The bound is proved in Space.margin; here the errors actually met are far inside it.
    vectors = torch.randn(400, 300, generator=torch.Generator().manual_seed(0))
    space = Space(vectors, torch.arange(400), 1)
    exact = torch.nn.functional.normalize(vectors.double())
    errors = (space.units @ space.units.T).double() - exact @ exact.T
    assert 0 < errors.abs().max() < space.margin / 2


def test_lengths_at_the_ends_of_float32_do_not_matter():
    angles = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    lengths = torch.tensor([[1e38], [1e-38], [1e-30], [1e30]])
    found = nearest(angles * lengths, 1, candidates=everyone(4))
    assert found.ids.tolist() == [[1], [0], [3], [2]]


def test_a_row_whose_group_leaves_fewer_than_k_has_empty_slots():
    vectors = torch.eye(4) + 1
    found = nearest(vectors, 3, candidates=everyone(4), groups=torch.tensor([7, 7, 7, 2]))
    assert [[i for i, _ in row] for row in slots_of(found)] == [[3], [3], [3], [0, 1, 2]]


def test_the_callers_matmul_precision_is_left_as_it_was():
    torch.set_float32_matmul_precision("high")
    try:
        nearest(torch.randn(5, 3), 1, candidates=everyone(5))
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_faiss_finds_most_neighbors_and_says_how_many():
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(4000, 12, generator=generator)  # without clusters: hard for cells
    groups = torch.arange(4000) // 2
    exact = nearest(vectors, 5, candidates=everyone(4000), groups=groups)
    found = nearest(vectors, 5, candidates=everyone(4000), groups=groups, backend="faiss")
    hits = (exact.ids[:, :, None] == found.ids[:, None, :]).any(-1).float()
    assert exact.recall == 1.0
    assert 0.5 < found.recall < 0.99
    # The sample is every fourth row: 5,000 of 20,000 slots, whose share is within 4 standard errors of the whole.
    whole = hits.mean().item()
    assert abs(found.recall - whole) < 4 * (whole * (1 - whole) / 5000) ** 0.5
    assert (groups[found.ids] != groups[:, None]).all()
    same = (exact.ids == found.ids).all(-1)
    torch.testing.assert_close(found.similarities[same], exact.similarities[same])


def test_faiss_on_few_rows_looks_at_all_of_them():
    vectors = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    found = nearest(vectors, 3, candidates=everyone(30), backend="faiss")
    assert found.recall == 1.0
    assert torch.equal(found.ids, nearest(vectors, 3, candidates=everyone(30)).ids)


def test_faiss_that_is_not_installed_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ConfigError, match=r"pip install 'nnrs\[neighbors\]'"):
        nearest(torch.randn(5, 3), 1, candidates=everyone(5), backend="faiss")


def test_an_unknown_backend_is_answered_with_the_closest_name():
    with pytest.raises(ConfigError, match=r"unknown neighbor backend 'fais'\. Did you mean 'faiss'"):
        nearest(torch.randn(5, 3), 1, candidates=everyone(5), backend="fais")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_finds_the_same_neighbors():
    vectors = torch.randn(3000, 100, generator=torch.Generator().manual_seed(0)).repeat(2, 1)
    here = nearest(vectors, 9, candidates=everyone(6000))
    there = nearest(vectors, 9, candidates=everyone(6000), device="cuda")
    assert torch.equal(here.ids, there.ids.cpu())
    torch.testing.assert_close(here.similarities, there.similarities.cpu(), atol=1e-6, rtol=0)
