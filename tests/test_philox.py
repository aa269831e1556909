"""Philox as a kernel: NumPy's own words, for many seeds in one launch."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from nnrs.philox import BLOCKS, fill, uniform_at
from nnrs.seeding import Random, Stream

SEEDS = [0, 1, 2**62 + 5, 2**63 - 1, -1]  # -1 stands for 2^64 - 1


def numpy_words(seed, stream, step, rank, first, count):
    key, counter = (
        np.array(numbers, dtype=np.uint64) for numbers in ([seed % 2**64, stream], [0, 0, step, rank])
    )
    words = np.random.Philox(key=key, counter=counter).random_raw(first + count)[first:]
    return torch.from_numpy(words.view(np.int64))


@pytest.mark.parametrize(
    ("stream", "step", "rank", "first", "count"),
    [
        (0, 0, 0, 0, 1),
        (1, 0, 1, 0, 6),  # Triton compiles the number 1 in
        (3, 812, 0, 0, 4 * BLOCKS + 3),  # more than one program's
        (2, 2**40, 7, 1, 9),
        (2, 5, 0, 4 * BLOCKS + 2, 4 * BLOCKS - 1),  # begins in the middle of a block of four
        (4, 1, 0, 4, 4),
    ],
)
def test_every_row_holds_the_words_that_numpy_gives(device, stream, step, rank, first, count):
    words = torch.zeros(len(SEEDS), count, dtype=torch.int64, device=device)
    seeds, steps = torch.tensor(SEEDS, device=device), torch.tensor(step, device=device)
    fill(words, seeds, steps, stream, rank, first_word=first)
    for row, seed in zip(words.cpu(), SEEDS, strict=True):
        assert torch.equal(row, numpy_words(seed, stream, step, rank, first, count))


def test_nothing_is_written_beyond_a_row(device):
    room = torch.full((2, 8), 7, dtype=torch.int64, device=device)
    seeds, step = torch.tensor([3], device=device), torch.tensor(0, device=device)
    fill(room[:1, :5], seeds, step, 3, first_word=3)
    assert (room[0, 5:] == 7).all()
    assert (room[1] == 7).all()
    assert torch.equal(room[0, :5].cpu(), numpy_words(3, 3, 0, 0, 3, 5))


@triton.jit(do_not_specialize=["seed", "step", "rank"])
def _numbers(out, seed: tl.int64, step: tl.int64, rank: tl.int64, key: tl.constexpr, count: tl.constexpr):
    index = tl.arange(0, count)
    tl.store(out + index, uniform_at(index, seed, key, step, rank))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("step", "rank"), [(0, 0), (1, 1), (2**31, 2**31 + 1), (2**40, 7)])
def test_a_number_at_an_index_is_the_one_drawn_there(device, seed, step, rank):
    numbers = torch.zeros(32, device=device)
    _numbers[(1,)](numbers, seed, step, rank, key=int(Stream.TEXT), count=32)
    assert torch.equal(numbers.cpu(), Random(seed, Stream.TEXT, step, rank).uniform(32))
