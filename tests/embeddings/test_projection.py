import math

import pytest
import torch

from nnrs.embeddings import project
from nnrs.embeddings.projection import principal_axes


def test_wider_vectors_are_filled_up_with_zeros():
    vectors = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    assert torch.equal(project(vectors, 4), torch.tensor([[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]))
    assert torch.equal(project(vectors, 2), vectors)


def test_the_first_axis_of_points_on_a_line_is_that_line():
    # All rows are multiples of (3, 4) / 5: the coordinate on it is the length, and the axis points to +, +.
    vectors = torch.tensor([[3.0, 4.0], [-6.0, -8.0], [0.0, 0.0]])
    torch.testing.assert_close(project(vectors, 1), torch.tensor([[5.0], [-10.0], [0.0]]))


def test_narrower_vectors_keep_as_much_length_as_any_plane_can():
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(200, 10, generator=generator) * torch.linspace(3, 0.1, 10)
    narrow = project(vectors, 4)
    best = torch.linalg.svdvals(vectors.double())[:4].square().sum()  # Eckart and Young
    assert narrow.double().square().sum().item() == pytest.approx(best.item(), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_signs_do_not_depend_on_the_solver(seed):
    vectors = torch.randn(50, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    values, axes = principal_axes(vectors.T @ vectors, 8)
    assert (values.diff() < 0).all()
    assert (axes.gather(0, axes.abs().argmax(0, keepdim=True)) > 0).all()
    torch.testing.assert_close(vectors.T @ vectors @ axes, axes * values)


def test_a_lower_rank_than_the_width_leaves_columns_of_zeros():
    vectors = torch.tensor([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0]])
    expected = torch.tensor([[math.sqrt(2), 0.0], [math.sqrt(8), 0.0]])
    torch.testing.assert_close(project(vectors, 2), expected)


def test_no_vectors_at_all_stay_zero():
    assert torch.equal(project(torch.zeros(3, 5), 2), torch.zeros(3, 2))
