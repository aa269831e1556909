"""Eq. 2: the similarity of two words is the cosine of their vectors, and N holds each word's k highest."""

import torch

from nnrs.neighbors.table import NeighborTable

# king and queen are close, apple and pear are close, the two pairs are at right angles but for a little.
WORDS = ["king", "queen", "apple", "pear"]
VECTORS = torch.tensor([[3.0, 4.0, 0.0], [4.0, 3.0, 0.0], [0.0, 0.0, 1.0], [0.0, 5.0, 12.0]])


def test_n_holds_the_cosines_of_the_k_nearest():
    table = NeighborTable.from_vectors(VECTORS, k=2)
    # Lengths 5, 5, 1, 13. king.queen = 24/25; king.pear = 20/65; queen.pear = 15/65; apple.pear = 12/13.
    expected = [
        [(1, 24 / 25), (3, 20 / 65)],
        [(0, 24 / 25), (3, 15 / 65)],
        [(3, 12 / 13), (0, 0.0)],  # king and queen tie at 0: the lower id
        [(2, 12 / 13), (0, 20 / 65)],
    ]
    assert table.ids.tolist() == [[word for word, _ in row] for row in expected]
    cosines = torch.tensor([[cosine for _, cosine in row] for row in expected])
    torch.testing.assert_close(table.similarities, cosines)


def test_the_length_of_a_vector_plays_no_part():
    lengths = torch.tensor([[0.01], [7.0], [300.0], [1.5]])
    ours, scaled = (NeighborTable.from_vectors(vectors, k=3) for vectors in (VECTORS, VECTORS * lengths))
    assert torch.equal(ours.ids, scaled.ids)
    torch.testing.assert_close(ours.similarities, scaled.similarities)


def test_a_word_is_not_its_own_neighbor():
    table = NeighborTable.from_vectors(VECTORS, k=3)
    assert (table.ids != torch.arange(4)[:, None]).all()
