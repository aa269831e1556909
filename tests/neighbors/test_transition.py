import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nnrs.errors import ConfigError
from nnrs.neighbors.table import NeighborTable
from nnrs.neighbors.transition import TransitionRows, transition_table

# <eos>=0 and <unk>=1 are protected. The text: a b a b a c | a a <unk> b c | with <eos> as the bar.
EOS, UNK, A, B, C = range(5)
TEXT = torch.tensor([A, B, A, B, A, C, EOS, A, A, UNK, B, C, EOS])
REPLACEABLE = torch.tensor([False, False, True, True, True])
# Bigrams: a: b 2, c 1, a 1, <unk> 1 (of 5); b: a 2, c 1 (of 3); c: <eos> 2 (of 2); <eos>: a 1; <unk>: b 1.


def filled(table):
    return [[(word, round(math.exp(s), 6)) for word, s, _ in table.row(row, 1.0)] for row in range(5)]


def test_top_successors_are_worked_by_hand():
    table = transition_table(TEXT, 2, REPLACEABLE)
    assert filled(table) == [[], [], [(B, 0.4), (C, 0.2)], [(A, 0.666667), (C, 0.333333)], []]
    assert table.replaceable.tolist() == [False, False, True, True, False]
    assert table.ids.tolist() == [
        [EOS] * 2,
        [UNK] * 2,
        [B, C],
        [A, C],
        [C] * 2,
    ]  # empty slots hold their own id


def test_at_temperature_one_the_softmax_gives_the_renormalised_row():
    table = transition_table(TEXT, 2, REPLACEABLE)
    assert [round(p, 6) for _, _, p in table.row(A, 1.0)] == [round(2 / 3, 6), round(1 / 3, 6)]
    table = transition_table(TEXT, 1, REPLACEABLE)
    assert [p for _, _, p in table.row(A, 1.0)] == [1.0]


def test_the_rows_of_the_previous_token_exist_for_protected_ones_too():
    table = transition_table(TEXT, 2, REPLACEABLE, rows="previous")
    # After a the words a and c tie, and the lower id comes first; after <eos> comes a, after <unk> b.
    third = round(1 / 3, 6)
    assert filled(table) == [
        [(A, 1.0)],
        [(B, 1.0)],
        [(B, 0.4), (A, 0.2)],
        [(A, round(2 / 3, 6)), (C, third)],
        [],
    ]


def test_the_class_method_is_the_same_table():
    ours = NeighborTable.from_transitions(TEXT.int(), replaceable=REPLACEABLE, k=2)
    theirs = transition_table(TEXT, 2, REPLACEABLE)
    assert torch.equal(ours.ids, theirs.ids)
    assert torch.equal(ours.similarities, theirs.similarities)


@pytest.mark.parametrize("rows", ["own", "previous"])
@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 7), min_size=2, max_size=80), k=st.integers(1, 5), data=st.data())
def test_tables_and_whole_rows_equal_a_plain_count(rows, ids, k, data):
    protected = set(data.draw(st.lists(st.integers(0, 7), max_size=2)))
    replaceable = torch.tensor([word not in protected for word in range(8)])
    pairs = Counter(pairwise(ids))
    table = transition_table(torch.tensor(ids), k, replaceable, rows=rows)
    whole = TransitionRows.of(torch.tensor(ids), replaceable, rows=rows)
    for row in range(8):
        allowed = {
            after: count
            for (before, after), count in pairs.items()
            if before == row
            and replaceable[after]
            and (rows == "previous" or (replaceable[row] and after != row))
        }
        ranked = sorted(allowed, key=lambda after: (-allowed[after], after))
        assert [word for word, _, _ in table.row(row, 1.0)] == ranked[:k]
        assert whole.replaceable[row].item() == bool(allowed)
        # Each of the row's n occurrences is met by exactly one of n evenly spaced draws.
        n = sum(allowed.values())
        uniform = (torch.arange(n) + 0.5) / max(n, 1)
        assert Counter(whole.draw(torch.full((n,), row), uniform, 1.0).tolist()) == allowed


def test_whole_rows_are_drawn_in_proportion_to_their_counts():
    rows, n = TransitionRows.of(TEXT, REPLACEABLE), 30_000
    uniform = torch.rand(n, generator=torch.Generator().manual_seed(0))
    drawn = rows.draw(torch.full((n,), A), uniform, temperature=0.1)  # which plays no part
    share = (drawn == B).float().mean().item()
    assert abs(share - 2 / 3) < 4 * math.sqrt(2 / 9 / n)


def test_whole_rows_leave_tokens_without_successors_as_they_are():
    rows = TransitionRows.of(TEXT, REPLACEABLE)
    tokens = torch.tensor([[EOS, UNK], [C, B]])
    drawn = rows.draw(tokens, torch.full((2, 2), 1 - 2**-24), 1.0)
    assert drawn.tolist() == [[EOS, UNK], [C, C]]
    nothing = TransitionRows.of(TEXT, torch.zeros(5, dtype=torch.bool))
    assert torch.equal(nothing.draw(tokens, torch.rand(2, 2), 1.0), tokens)


def test_counts_stay_sparse():
    ids = torch.randint(50_000, (20_000,), generator=torch.Generator().manual_seed(0))
    rows = TransitionRows.of(ids, torch.ones(50_000, dtype=torch.bool))
    stored = sum(part.numel() for part in (rows.starts, rows.nexts, rows.ends))
    assert stored <= 50_001 + 2 * 19_999  # not 50,000 squared


def test_k_zero_is_an_empty_table():
    table = transition_table(TEXT, 0, REPLACEABLE)
    assert table.ids.shape == (5, 0)


def test_bad_settings_are_refused():
    with pytest.raises(ConfigError, match=r"k=3 .* only 3 words"):
        transition_table(TEXT, 3, REPLACEABLE)
    with pytest.raises(ConfigError, match=r"unknown transition row 'previus'\. Did you mean 'previous'"):
        TransitionRows.of(TEXT, REPLACEABLE, rows="previus")
