"""Eq. 4: the centroid is the sum of the neighbors' vectors weighted by Ñ. The printed 1/k is left out."""

import math

import torch

from nnrs.neighbors.probabilities import centroid, neighbor_probabilities


def test_the_centroid_of_two_neighbors_is_worked_by_hand():
    weights = neighbor_probabilities(torch.tensor([[math.log(3.0), 0.0]]), 1.0)  # 3/4 and 1/4
    vectors = torch.tensor([[[4.0, 0.0, 8.0], [0.0, 4.0, -8.0]]])
    torch.testing.assert_close(centroid(weights, vectors), torch.tensor([[3.0, 1.0, 4.0]]))


def test_neighbors_that_agree_have_themselves_as_centroid():
    # With the printed factor 1/k this would come out k times too short.
    vector = torch.tensor([1.0, -2.0])
    weights = torch.tensor([0.5, 0.3, 0.2])
    torch.testing.assert_close(centroid(weights, vector.expand(3, 2)), vector)


def test_every_position_of_a_batch_equals_the_plain_sum():
    generator = torch.Generator().manual_seed(0)
    weights = neighbor_probabilities(torch.rand(2, 3, 5, generator=generator), 0.5)
    vectors = torch.randn(2, 3, 5, 7, generator=generator)
    found = centroid(weights, vectors)
    for row in range(2):
        for time in range(3):
            plain = sum(weights[row, time, slot] * vectors[row, time, slot] for slot in range(5))
            torch.testing.assert_close(found[row, time], plain)


def test_the_vectors_learn_through_it():
    vectors = torch.ones(2, 3, requires_grad=True)
    centroid(torch.tensor([0.75, 0.25]), vectors).sum().backward()
    assert vectors.grad.tolist() == [[0.75] * 3, [0.25] * 3]
