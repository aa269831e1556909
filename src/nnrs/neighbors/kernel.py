"""A draw from Ñ inside other kernels."""

import triton
import triton.language as tl


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
