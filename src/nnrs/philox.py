"""Philox4x64-10 on a GPU, the very bits that NumPy's Philox gives: for many seeds at once, or where they are used."""

import triton
import triton.language as tl
from torch import Tensor

BLOCKS = 256  # counters per program; each gives four words of 64 bits


@triton.jit
def _round(c0, c1, c2, c3, k0, k1):
    m0 = tl.full([], 0xD2E7470EE14C6C93, tl.uint64)
    m1 = tl.full([], 0xCA5A826395121157, tl.uint64)
    return tl.umulhi(m1, c2) ^ c1 ^ k0, m1 * c2, tl.umulhi(m0, c0) ^ c3 ^ k1, m0 * c0


@triton.jit
def _block(number, seed, stream, step, rank):
    """The four words of each numbered block."""
    k0 = seed.to(tl.uint64)
    k1 = tl.full([], stream, tl.uint64)
    c0 = (number + 1).to(tl.uint64)  # NumPy counts up before it draws: the first block has counter 1
    c1 = tl.zeros_like(c0)
    c2 = c1 + step.to(tl.uint64)
    c3 = c1 + tl.full([], rank, tl.uint64)
    for _ in tl.static_range(10):
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
        k0 += tl.full([], 0x9E3779B97F4A7C15, tl.uint64)
        k1 += tl.full([], 0xBB67AE8584CAA73B, tl.uint64)
    return c0, c1, c2, c3


@triton.jit
def to_uniform(bits):
    """The number in [0, 1) that `Random.uniform` makes of 32 bits; higher ones are not looked at."""
    return ((bits >> 8) & 0xFFFFFF).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08  # 2^-24


@triton.jit
def uniform_at(index, seed, stream, step, rank):
    """The index-th number of `Random.uniform`; a word holds two, and each call begins with a new word."""
    word = index // 2
    c0, c1, c2, c3 = _block(word // 4, seed, stream, step, rank)
    place = word % 4
    words = tl.where(place < 2, tl.where(place == 0, c0, c1), tl.where(place == 2, c2, c3))
    return to_uniform(words >> (index % 2 * 32).to(tl.uint64))


@triton.jit
def _fill(words_ptr, seeds_ptr, step_ptr, stream, rank, num_words, first_word, BLOCKS: tl.constexpr):
    row = tl.program_id(1)
    number = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS) + first_word // 4
    c0, c1, c2, c3 = _block(number, tl.load(seeds_ptr + row), stream, tl.load(step_ptr), rank)
    words = tl.reshape(tl.join(tl.join(c0, c2), tl.join(c1, c3)), [BLOCKS * 4])  # in the order 0 1 2 3
    place = tl.program_id(0).to(tl.int64) * BLOCKS * 4 + tl.arange(0, BLOCKS * 4) - first_word % 4
    inside = (place >= 0) & (place < num_words)
    tl.store(words_ptr + row.to(tl.int64) * num_words + place, words.to(tl.int64, bitcast=True), mask=inside)


def fill(words: Tensor, seeds: Tensor, step: Tensor, stream: int, rank: int = 0, first_word: int = 0) -> None:
    """Fill each row of `words` (rows, n; int64) from its seed; `step` is a number on the device.

    Row r is `numpy.random.Philox(key=[seeds[r], stream], counter=[0, 0, step, rank]).random_raw(n)`, after
    `first_word` words have been drawn from it.
    """
    rows, count = words.shape
    programs = triton.cdiv(count + first_word % 4, 4 * BLOCKS)
    grid = programs, rows  # the first axis is the one without a limit
    _fill[grid](words, seeds, step, int(stream), rank, count, first_word, BLOCKS=BLOCKS)
