"""A grid's cells are shared out among hands: once, together where they can be, again where one is lost."""

import threading

import pytest
import typer

from nnrs.cli.grid import carry_out
from nnrs.errors import RunError
from nnrs.experiments.grid import MOST_TOGETHER, Board, share_out
from nnrs.experiments.work import News
from nnrs.run_directory import RunDirectory


class Scripted:
    """Hands that note what they are given, and end each cell as the script says."""

    def __init__(self, script=(), kind=lambda cell: None, have_time=True):
        self.given, self.cells, self._script, self._time = [], [], dict(script), have_time
        self.kind, self.stopped, self.takes = kind, False, lambda cell: True

    @property
    def have_time(self):
        return self._time and not self.cells

    def give(self, cells, request):
        self.given.append([cell.name for cell in cells])
        self.cells = self.given[-1][:]

    def hear(self, seconds):
        news = [News(name=name, how=how, error=why) for name in self.cells for how, why in [self._next(name)]]
        self.cells = []
        return news

    def stop(self):
        self.stopped = True

    def _next(self, name):
        ends = self._script.get(name, [])
        return ends.pop(0) if ends else ("done", "")


def test_cells_of_a_kind_are_given_together_and_others_one_by_one(board):
    names = [cell.name for cell in board.left]
    hands = Scripted(kind=lambda cell: "fleet" if cell.config.policy.method == "mle" else None)
    share_out(board, hands, lambda progress: None, lambda: False)
    assert hands.given == [names[:3], *([name] for name in names[3:])]
    assert MOST_TOGETHER > 3


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_more_cells_of_a_kind_are_given_together_than_are_asked_for(most, board):
    names = [cell.name for cell in board.left]
    hands = Scripted(kind=lambda cell: "fleet")
    share_out(board, hands, lambda progress: None, lambda: False, most)
    assert hands.given == [names[at : at + most] for at in range(0, 6, most)]
    assert board.outcome().done == 6


@pytest.mark.parametrize(("asked", "most"), [(5, 5), (None, MOST_TOGETHER)])
def test_the_size_of_a_fleet_is_told_to_who_shares_out(asked, most, board, monkeypatch):
    told = []
    monkeypatch.setattr("nnrs.experiments.grid.share_out", lambda *arguments: told.append(arguments[-1]))
    with pytest.raises(typer.Exit):  # for nothing was done
        carry_out(board.plan, board.grid.path, jobs=1, fleet=asked, device="cpu", ray=None)
    assert told == [most]


@pytest.mark.parametrize(("done", "code"), [(1, 130), (5, 2)], ids=["stopped", "ended"])
def test_a_grid_with_a_failure_tells_of_its_results_at_its_end_and_not_when_it_is_stopped(
    done, code, board, monkeypatch, capsys
):
    bad, *others = (cell.name for cell in board.left)

    def share_some(board, *more):
        board.hear(News(name=bad, how="error", error="no such word."))
        for name in others[:done]:
            board.hear(News(name=name, how="done"))

    told = []

    def tell(failed):
        told.append(failed)
        typer.echo("the table", err=True)

    monkeypatch.setattr("nnrs.experiments.grid.share_out", share_some)
    with pytest.raises(typer.Exit) as left:
        carry_out(board.plan, board.grid.path, jobs=1, device="cpu", ray=None, tell=tell)
    assert left.value.exit_code == code
    said = {  # the errors first, whatever becomes of the table
        130: ["stopped with 1 run done and 4 left; saved. Run it again to continue."],
        2: ["the table", f"5 runs done, 1 failed. Run it again to retry 1: {board.grid.path}"],
    }
    assert capsys.readouterr().err.splitlines() == [f"error: {bad}: no such word.", *said[code]]
    assert told == ([] if code == 130 else [{bad: "no such word."}])


def test_a_lost_cell_is_tried_three_times_and_one_with_an_error_once(board):
    lost, bad, *_ = (cell.name for cell in board.left)
    hands = Scripted({lost: [("lost", "killed")] * 3, bad: [("error", "no such word.")]})
    share_out(board, hands, lambda progress: None, lambda: False)
    assert hands.given.count([lost]) == 3
    assert hands.given.count([bad]) == 1
    assert board.outcome().failed == {bad: "no such word.", lost: "lost 3 times: killed"}
    assert board.outcome().done == 4
    recorded = [(item["name"], item["kind"], item["try"]) for item in board.grid.failures()]
    assert recorded == [(lost, "lost", 1), (lost, "lost", 2), (lost, "lost", 3), (bad, "error", 1)]


def test_a_cell_that_was_lost_twice_may_still_end_well(board):
    name = board.left[0].name
    share_out(board, Scripted({name: [("lost", "killed")] * 2}), lambda progress: None, lambda: False)
    assert board.outcome().failed == {}


def test_a_fleet_that_dies_is_one_loss_however_many_cells_it_had(board, monkeypatch):
    monkeypatch.setattr("nnrs.experiments.grid.LOSSES", 2)
    script = {cell.name: [("lost", "killed")] for cell in board.left}
    share_out(board, Scripted(script, kind=lambda cell: "fleet"), lambda progress: None, lambda: False)
    assert board.outcome().done == 6


def test_workers_that_die_one_after_the_other_are_given_up(board, monkeypatch):
    monkeypatch.setattr("nnrs.experiments.grid.LOSSES", 2)
    script = {board.left[0].name: [("lost", "no memory")] * 2}
    with pytest.raises(RunError, match="2 workers died one after the other, the last with: no memory"):
        share_out(board, Scripted(script), lambda progress: None, lambda: False)


def test_a_cell_that_another_process_has_is_waited_for_and_taken_when_it_is_free(board):
    name = board.left[0].name
    claim = board.grid.claim(name)
    threading.Timer(0.5, claim.release).start()
    hands = Scripted()
    share_out(board, hands, lambda progress: None, lambda: False)
    assert hands.given[-1] == [name]
    assert board.outcome().done == 6


def test_progress_counts_epochs_and_estimates_the_rest(board):
    seen = []
    share_out(board, Scripted(), seen.append, lambda: False)
    assert (seen[-1].done, seen[-1].total, seen[-1].epochs, seen[-1].all_epochs) == (6, 6, 12, 12)
    assert seen[-1].seconds_left == 0.0
    first = board.plan.cells[0].name
    fresh = Board(board.grid, board.plan)
    assert fresh.progress().seconds_left is None
    RunDirectory.create(board.grid.run_path(first), {}).append("metrics", {"epoch": 0})
    fresh.taken.add(first)
    assert fresh.progress().epochs == 1
    # one of 6 * (2 + 1) units is done
    assert fresh.progress().seconds_left > 0
