"""The workers of a device: what they train beside each other, and when they give its memory back."""

from dataclasses import replace

import pytest
import torch

from nnrs.experiments.grid import run_grid, share_out
from nnrs.experiments.processes import Worker, Workers
from nnrs.experiments.work import News
from nnrs.run_directory import RunDirectory


class Busy(Worker):
    """A worker that is at cells, and never ends them."""

    def __init__(self, cells, alone):
        self.cells, self.alone, self.fleet = dict.fromkeys(cells), alone, len(cells) > 1
        self.ended = False

    def end(self):
        self.ended = True


def finish_training(board, cell):
    """What a run directory has after its last epoch."""
    directory = RunDirectory.create(board.grid.run_path(cell.name), cell.config.as_dict())
    for epoch in range(cell.config.training.epochs):
        directory.append("metrics", {"epoch": epoch})
    directory.write_summary({})


class FakeGpu(Workers):
    """A GPU whose workers are done at once with what they are given, which is noted in order."""

    def __init__(self, board):
        super().__init__(board.grid, torch.device("cuda"), jobs=3, threads=1)
        self.given, self._board = [], board

    def give(self, cells, request):
        trains = not all(map(self._is_trained, cells))
        self.given.append(("train" if trains else "measure", [cell.name for cell in cells]))
        worker = Busy([cell.name for cell in cells], trains)
        self._all.append(worker)
        for cell in cells:
            if trains:
                finish_training(self._board, cell)
            self._heard.put((worker, News(name=cell.name, how="trained" if trains else "done")))


@pytest.mark.parametrize("most", [2, 3, 6])
def test_each_fleet_of_a_gpu_is_measured_before_the_next_one_is_trained(most, board):
    names, gpu = [cell.name for cell in board.left], FakeGpu(board)
    share_out(board, gpu, lambda progress: None, lambda: False, most)
    fleets = [names[at : at + most] for at in range(0, 6, most)]
    expected = [[("train", fleet), *(("measure", [name]) for name in fleet)] for fleet in fleets]
    assert gpu.given == [order for orders in expected for order in orders]


@pytest.mark.parametrize("shares", [True, False])
def test_a_gpu_trains_one_fleet_or_measures_several_runs_that_are_trained(shares, board):
    trained, other, fresh, *_ = board.plan.cells
    for cell in (trained, other):
        finish_training(board, cell)
    workers = Workers(board.grid, torch.device("cuda"), 3, 1, shares=shares)
    assert workers.takes(fresh)
    assert workers.kind(fresh) == workers.kind(board.plan.cells[-1])
    assert workers.kind(fresh) is not None
    assert workers.kind(trained) is None
    workers._all = [Busy([other.name], alone=False)]
    assert (workers.have_time, workers.takes(trained), workers.takes(fresh)) == (True, True, False)
    workers._all = [Busy([fresh.name], alone=True)]
    assert not workers.have_time
    workers._all = [Busy([], alone=True)]
    assert (workers.have_time, workers.takes(fresh)) == (True, True)


class Unsent(Worker):
    """A worker that is given cells and does nothing about them."""

    def __init__(self, command, heard):
        self.cells = {}

    def _send(self, order):
        pass


def as_transformer(cell):
    return replace(
        cell, config=replace(cell.config, model=replace(cell.config.model, kind="transformer", heads=1))
    )


@pytest.mark.parametrize(
    ("shares", "expected"), [(True, [[0, 1, 2], [3, 4, 5]]), (False, [[0], [1], [2], [3], [4], [5]])]
)
def test_a_gpu_trains_what_makes_no_fleet_one_by_one_or_as_many_as_it_was_told(
    shares, expected, board, monkeypatch
):
    monkeypatch.setattr("nnrs.experiments.processes.Worker", Unsent)
    names = [cell.name for cell in board.plan.cells]
    board.plan = replace(board.plan, cells=tuple(map(as_transformer, board.plan.cells)))
    workers, begun = Workers(board.grid, torch.device("cuda"), 3, 1, shares=shares), []
    for _ in expected:  # in rounds: all that can be begun, then the end of all that was
        while workers.have_time and (cell := next(filter(workers.takes, board.free()), None)):
            board.taken.add(cell.name)
            workers.give([cell], board.plan.request)
        begun.append([names.index(name) for name in workers.cells])
        for worker in workers._all:
            for name in worker.cells:
                board.hear(News(name=name, how="done"))
            worker.cells = {}
    assert begun == expected
    assert not board.left


def test_a_fleet_that_is_begun_has_the_gpu_to_itself(board, monkeypatch):
    monkeypatch.setattr("nnrs.experiments.processes.Worker", Unsent)
    workers = Workers(board.grid, torch.device("cuda"), 3, 1, shares=True)
    workers.give(board.plan.cells[:2], board.plan.request)
    assert not workers.have_time


@pytest.mark.parametrize("shares", [True, False])
def test_on_a_cpu_runs_train_beside_each_other(shares, board):
    first, second, *_ = board.plan.cells
    workers = Workers(board.grid, torch.device("cpu"), 3, 1, shares=shares)
    workers._all = [Busy([first.name], alone=False)]
    assert (workers.have_time, workers.takes(second)) == (True, True)


@pytest.mark.parametrize(("jobs", "shares"), [(None, False), (2, True)])
def test_runs_that_make_no_fleet_share_a_gpu_only_where_it_is_said_how_many(jobs, shares, board, monkeypatch):
    asked = []

    class Asked(Workers):
        def __init__(self, *arguments, shares):
            super().__init__(*arguments, shares=shares)
            asked.append(shares)

    monkeypatch.setattr("nnrs.experiments.grid.Workers", Asked)
    monkeypatch.setattr("nnrs.experiments.grid.share_out", lambda *arguments: None)
    run_grid(board.plan, board.grid.path, jobs=jobs, device="cpu")
    assert asked == [shares]


def test_what_makes_no_fleet_is_not_trained_beside_one(board):
    lstm, other, *_ = board.plan.cells
    workers = Workers(board.grid, torch.device("cuda"), 3, 1, shares=True)
    workers._all = [Busy([other.name], alone=False)]
    assert workers.have_time
    assert workers.takes(as_transformer(lstm))
    assert not workers.takes(lstm)


@pytest.mark.parametrize("last", ["trained", "diverged", "error", "stopped"])
def test_a_worker_that_trained_a_fleet_gives_its_memory_back(board, last):
    first, second, *_ = (cell.name for cell in board.plan.cells)
    workers, worker = Workers(board.grid, torch.device("cuda"), 1, 1), Busy([first, second], alone=True)
    workers._all = [worker]
    for name, how in ((first, "trained"), (second, last)):
        assert not worker.ended
        workers._heard.put((worker, News(name=name, how=how)))
        assert [news.name for news in workers.hear(1.0)] == [name]
    assert worker.ended
    assert workers.cells == []
    workers._heard.put((worker, None))  # its end is heard, and is no loss
    assert workers.hear(1.0) == []
