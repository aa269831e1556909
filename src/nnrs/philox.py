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
def draw_neighbor(similarities, ids, row, uniform, temperature, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """One neighbor of each row's word (Eq. 3); see `neighbor_probabilities` and `pick`."""
    slots = tl.arange(0, BLOCK_K)
    inside = (slots < K)[None, :]
    place = row[:, None] * K + slots[None, :]
    values = tl.load(similarities + place, mask=inside, other=-float("inf"))
    highest = tl.maximum(tl.max(values, 1), -3.4028234663852886e38)
    weights = tl.exp((values - highest[:, None]) / temperature)
    shares = weights / tl.maximum(tl.sum(weights, 1), 1.1754943508222875e-38)[:, None]
    ends = tl.where(shares > 0, tl.cumsum(shares, 1), 0.0)
    past = ends > (uniform * tl.max(ends, 1))[:, None]
    slot = tl.min(tl.where(past, slots[None, :], K), 1)
    return tl.load(ids + row * K + tl.where(slot < K, slot, 0))


# What changes along a curriculum is compiled for once: floats always are, and these have one type at every value.
@triton.jit(do_not_specialize=["seed", "step", "rank", "batch", "time"])
def choose_inputs(
    gold, may_change, similarities, ids, replaceable, inputs, takes_neighbor, takes_prediction, uniforms, counts,
    seed: tl.int64, step: tl.int64, rank: tl.int64, prediction_rate, neighbor_rate, temperature,
    batch: tl.int32, time: tl.int32, vocab,
    STREAM: tl.constexpr, ROWS_SHARE: tl.constexpr, STEPS_SHARE: tl.constexpr,
    K: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Eq. 6 for one batch; see `nnrs.integrations.kernel`."""
    count = batch * time
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    token = tl.load(gold + place, mask=inside, other=0)
    allowed = tl.load(may_change + place, mask=inside, other=0) != 0
    # Draws in the order of `InputPolicy.choose`; each call starts at a new word of two numbers.
    draw_rows = 1 if ROWS_SHARE else batch
    draw_steps = 1 if STEPS_SHARE else time
    shared = draw_rows * draw_steps
    own = (0 if ROWS_SHARE else place // time) * draw_steps + (0 if STEPS_SHARE else place % time)
    second = (3 * shared + 1) // 2 * 2
    third = second + (count + 1) // 2 * 2
    prediction_draw = uniform_at(own, seed, STREAM, step, rank)
    neighbor_draw = uniform_at(shared + own, seed, STREAM, step, rank)
    coin = uniform_at(2 * shared + own, seed, STREAM, step, rank)
    prediction_uniform = uniform_at(second + place, seed, STREAM, step, rank)
    neighbor, possible = token, tl.zeros([BLOCK], tl.int1)
    if K > 0:
        row = tl.where(allowed & (token >= 0) & (token < vocab), token, 0)
        neighbor_uniform = uniform_at(third + place, seed, STREAM, step, rank)
        neighbor = draw_neighbor(similarities, ids, row, neighbor_uniform, temperature, K, BLOCK_K)
        possible = (row == token) & (tl.load(replaceable + row) != 0)
    wants_neighbor = allowed & (neighbor_draw < neighbor_rate) & possible
    wants_prediction = allowed & (prediction_draw < prediction_rate)
    neighbors = wants_neighbor & ((wants_prediction == 0) | (coin < 0.5))
    predictions = wants_prediction & (neighbors == 0)
    tl.store(inputs + place, tl.where(neighbors, neighbor, token), mask=inside)
    tl.store(takes_neighbor + place, neighbors, mask=inside)
    tl.store(takes_prediction + place, predictions, mask=inside)
    tl.store(uniforms + place, prediction_uniform, mask=inside)
    tl.atomic_add(counts, tl.sum(allowed.to(tl.int64), 0))
    tl.atomic_add(counts + 1, tl.sum(predictions.to(tl.int64), 0))
    tl.atomic_add(counts + 2, tl.sum((neighbors & (neighbor != token)).to(tl.int64), 0))


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
