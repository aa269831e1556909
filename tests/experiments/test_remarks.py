"""What is told before training is of the runs to come, each thing once, and not of those that records have."""

from dataclasses import replace

import pytest
from tests.experiments.short_cells import REQUEST, cells_on

from nnrs.experiments.grid import Board
from nnrs.experiments.outlook import rate_remarks, text_remarks
from nnrs.experiments.plan import Plan
from nnrs.experiments.prepare import Shelf
from nnrs.grid_directory import GridDirectory

ONE_EPOCH = {"epochs": 1, "batch_size": 3, "bptt": 12, "valid_streams": 1}
STILL = "exponential 0:0.2 stays at 0.2: with epochs 1 it cannot move. Use more epochs for a curriculum."


@pytest.fixture
def board_of(tmp_path):
    def make(cells):
        plan = Plan(kind="grid", title="t", command="c", cells=tuple(cells), request=REQUEST)
        return Board(GridDirectory(tmp_path / "grid"), plan)

    return make


def test_a_rate_that_stands_still_is_told_of_once_and_not_where_records_have_the_runs(short_text, board_of):
    cells = cells_on(short_text, training=ONE_EPOCH, seeds="1-3")
    assert rate_remarks(board_of(cells), {}) == [STILL]
    assert rate_remarks(board_of(cells), {cell.config: {} for cell in cells}) == []
    longer = cells_on(short_text, seeds="1-3")
    assert rate_remarks(board_of(longer), {}) == []
    both = [*cells, *(replace(cell, name=f"{cell.name}-longer") for cell in longer)]
    assert rate_remarks(board_of(both), {}) == [STILL]  # of the same rates over more epochs nothing


def test_a_k_of_none_is_told_of_where_the_method_has_one(short_text, board_of):
    cells = cells_on(short_text, runs=({"method": "mle"}, *({"method": "nnrs", "k": k} for k in (0, 3))))
    idle = "k is 0: no word has a neighbor, so that none becomes one at any neighbor_rate."
    assert rate_remarks(board_of(cells), {}) == [idle]


def test_each_text_of_the_runs_to_come_is_told_of_and_none_that_only_records_have(tmp_path, board_of):
    cells = []
    for name, method in (("one.txt", "mle"), ("other.txt", "ss")):
        text = tmp_path / name  # 9 of 10 lines are to train on: the last one's words are in none of them
        text.write_text("a b a b\n" * 50 + f"unseen {name}\n")
        cells += cells_on(text, runs=({"method": method},))
    told = text_remarks(board_of(cells), {}, Shelf())
    assert [line.split(":")[0] for line in told] == ["one", "other"]
    assert text_remarks(board_of(cells), {cells[0].config: {}}, Shelf()) == told[1:]
