"""Eq. 6 for every run in one launch: what each input is made of, with each run's own rates, table and temperature."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from nnrs.neighbors.kernel import draw_neighbor
from nnrs.philox import to_uniform

BLOCK = 64


@triton.jit
def _uniform(words, index):
    """The number that `Random.uniform` makes of the index-th half word."""
    return to_uniform(tl.load(words + index))


@triton.jit(do_not_specialize=["batch", "time"])
def _choose(
    gold, targets, previous, words, fresh, settings, rates, temperatures, similarities, ids, replaceable, proposing,
    inputs, targets_out, claims, uniforms, replaced, words_run, table_run, vocab, batch, time, out_run,
    K: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1).to(tl.int64)
    rows_share = tl.load(settings + run * 5)
    steps_share = tl.load(settings + run * 5 + 1)
    in_targets = tl.load(settings + run * 5 + 2)
    by_previous = tl.load(settings + run * 5 + 3)
    fused = tl.load(settings + run * 5 + 4)
    count = batch * time
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # time-major
    inside = place < tl.where(fused != 0, count, 0)
    row, step = place % batch, place // batch
    token = row * time + step  # where it stands in the window
    # Draws in the order of `InputPolicy.choose`; each call starts at a new word of two numbers.
    draw_rows = tl.where(rows_share != 0, 1, batch)
    draw_steps = tl.where(steps_share != 0, 1, time)
    shared = draw_rows * draw_steps
    own = tl.where(rows_share != 0, 0, row) * draw_steps + tl.where(steps_share != 0, 0, step)
    own = tl.where(inside, own, 0)
    token = tl.where(inside, token, 0)
    words += run * words_run
    second = (3 * shared + 1) // 2 * 2
    third = second + (count + 1) // 2 * 2
    prediction_draw = _uniform(words, own)
    neighbor_draw = _uniform(words, shared + own)
    coin = _uniform(words, 2 * shared + own)
    prediction_uniform = _uniform(words, second + token)
    gold_token = tl.load(gold + token)
    target = tl.load(targets + token)
    before = tl.load(previous + token)
    original = tl.where(in_targets != 0, target, gold_token)
    proposer = tl.where(by_previous != 0, tl.where(in_targets != 0, gold_token, before), original)
    possible = tl.load(replaceable + run * vocab + original) & tl.load(proposing + run * vocab + proposer)
    neighbor = draw_neighbor(
        similarities + run * table_run, ids + run * table_run, proposer, _uniform(words, third + token),
        tl.load(temperatures + run), K, BLOCK_K,
    )  # fmt: skip
    wants_prediction = prediction_draw < tl.load(rates + run * 2)
    wants_neighbor = (neighbor_draw < tl.load(rates + run * 2 + 1)) & (possible != 0)
    new_target = tl.where((in_targets != 0) & wants_neighbor, neighbor, target)
    for_input = wants_neighbor & (in_targets == 0)
    takes_neighbor = for_input & ((wants_prediction == 0) | (coin < 0.5))
    takes_prediction = wants_prediction & (takes_neighbor == 0) & ((step > 0) | (tl.load(fresh) == 0))
    chosen = tl.where(takes_neighbor, neighbor, gold_token)
    changed = tl.where(in_targets != 0, new_target != target, takes_neighbor & (neighbor != gold_token))
    out = run * out_run + place
    tl.store(inputs + out, chosen, mask=inside)
    tl.store(targets_out + out, new_target, mask=inside)
    tl.store(claims + out, takes_prediction.to(tl.int8), mask=inside)
    tl.store(uniforms + out, prediction_uniform, mask=inside)
    tl.store(replaced + out, changed.to(tl.int8), mask=inside)


def choose(
    window: tuple[Tensor, Tensor, Tensor],  # gold inputs, targets and previous tokens, (batch, time)
    words: Tensor,  # (runs, n) random words of 64 bits
    fresh: Tensor,  # 1 where the window begins a text: no prediction precedes it
    settings: Tensor,  # (runs, 5): rows share draws, steps share draws, replaces targets, by previous, chosen here
    rates: Tensor,  # (runs, 2): ε and γ
    temperatures: Tensor,
    # similarities and ids (runs, vocab, k), replaceable, proposing
    table: tuple[Tensor, Tensor, Tensor, Tensor],
    out: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],  # inputs, targets, claims, uniforms, replaced
) -> None:
    """`InputPolicy.choose` for the runs whose proposals come from a table, or that have none.

    The parts of `out` are alike: (runs, rows), rows time-major and at least as many as the window has.
    """
    batch, time = window[0].shape
    runs, vocab, k = table[0].shape
    grid = (triton.cdiv(batch * time, BLOCK), runs)
    _choose[grid](
        *window,
        words.view(torch.int32),
        fresh,
        settings,
        rates,
        temperatures,
        *table,
        *out,
        2 * words.stride(0),
        vocab * k,
        vocab,
        batch,
        time,
        out[0].stride(0),
        K=k,
        BLOCK_K=triton.next_power_of_2(k),
        BLOCK=BLOCK,
        num_warps=2,
    )


@triton.jit(do_not_specialize=["count"])
def _compact(claims, positions, claims_run, count, capacity, BLOCK: tl.constexpr):
    run = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    claimed = tl.load(claims + run * claims_run + columns, mask=columns < count, other=0).to(tl.int32)
    place = tl.cumsum(claimed, 0) - 1
    used = tl.sum(claimed, 0)
    slots = tl.arange(0, BLOCK)
    positions += run * capacity
    tl.store(
        positions + slots, tl.full([BLOCK], 0, tl.int64) + count, mask=(slots < capacity) & (slots >= used)
    )
    tl.store(positions + place, columns.to(tl.int64), mask=(claimed != 0) & (place < capacity))


def claimed_positions(claims: Tensor, positions: Tensor) -> None:
    """`positions_of` for every run: where each claims a prediction, in order, padded with one past the end."""
    runs, count = claims.shape
    block = triton.next_power_of_2(max(count, positions.shape[1]))
    _compact[(runs,)](
        claims, positions, claims.stride(0), count, positions.shape[1], BLOCK=block, num_warps=4
    )
