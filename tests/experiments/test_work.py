"""Cells from start to result: claimed once, done once, trained in fleets where they can be, and failing alone."""

import json
import threading
from dataclasses import replace

import pytest
import torch
import typer

from nnrs.cli.grid import carry_out
from nnrs.errors import RunError
from nnrs.experiments import together, work
from nnrs.experiments.grid import MOST_TOGETHER, Board, open_grid, share_out
from nnrs.experiments.plan import Plan, expand
from nnrs.experiments.prepare import Shelf
from nnrs.experiments.processes import Worker, Workers
from nnrs.experiments.subject import Request
from nnrs.experiments.work import News, Place, is_done, work_on
from nnrs.grid_directory import GridDirectory
from nnrs.run_directory import RunDirectory
from nnrs.training import fleet

REQUEST = Request(metrics=("perplexity",))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    rows = [" ".join(f"w{(row * 3 + step * step) % 9}" for step in range(5)) for row in range(12)]
    path.write_text("\n".join(rows) + "\n")
    return path


def cells_on(text, runs=({"method": "mle"}, {"method": "ss-nnrs", "k": 2}), **options):
    """Two runs that train in no time."""
    sizes = {"units": 6, "layers": 1, "learning_rate": 2.0}
    training = {"epochs": 2, "batch_size": 3, "bptt": 12, "valid_streams": 1}
    return expand({"data": str(text), **sizes, "training": training, "runs": list(runs), **options})


@pytest.fixture
def place(tmp_path):
    return Place(grid=GridDirectory(tmp_path / "grid"), device=torch.device("cpu"), threads=1, shelf=Shelf())


@pytest.fixture(autouse=True)
def made(tmp_path):
    (tmp_path / "grid").mkdir()


def ends(news):
    return [(item.name, item.how) for item in news if item.how != "measuring"]


def result_of(place, name):
    record = json.loads((place.grid.run_path(name) / "result.json").read_text())
    return {key: part for key, part in record.items() if key != "timing"}


def test_a_cell_that_another_process_has_is_left_to_it(text, place):
    cells = cells_on(text)
    claim = place.grid.claim(cells[0].name)
    assert ends(work_on(cells, REQUEST, place)) == [(cells[0].name, "busy"), (cells[1].name, "done")]
    claim.release()
    assert not place.grid.run_path(cells[0].name).exists()
    assert not any(place.grid.is_claimed(cell.name) for cell in cells)


def test_a_cell_that_is_done_is_not_touched(text, place):
    cells = cells_on(text)[:1]
    list(work_on(cells, REQUEST, place))
    path = place.grid.run_path(cells[0].name)
    before = {file: file.stat().st_mtime_ns for file in path.iterdir()}
    assert ends(work_on(cells, REQUEST, place)) == [(cells[0].name, "done")]
    assert {file: file.stat().st_mtime_ns for file in path.iterdir()} == before


def test_a_cell_is_done_when_its_result_is_of_its_model_and_of_the_request(text, place):
    [cell, _] = cells_on(text)
    path = place.grid.run_path(cell.name)
    assert not is_done(path, REQUEST)
    list(work_on([cell], REQUEST, place))
    assert is_done(path, REQUEST)
    assert not is_done(path, Request(metrics=("perplexity", "bleu")))
    record = RunDirectory(path).result()
    RunDirectory(path).write_result({**record, "model": "another"})
    assert not is_done(path, REQUEST)


def test_work_cut_off_before_its_result_is_finished_without_training_again(text, place):
    """The trajectory's predictions are the best model's, also where the last epoch made a worse one."""
    run = {"method": "ss", "prediction_rate": 1.0, "annealing": "constant"}
    [cell] = cells_on(text, runs=[run])
    list(work_on([cell], REQUEST, place))
    unbroken, path = result_of(place, cell.name), place.grid.run_path(cell.name)
    assert unbroken["best_epoch"] == 0
    assert "prediction" in unbroken["trajectory"]["sources"]
    (path / "result.json").unlink()
    timing = (path / "timing.jsonl").read_text()
    assert ends(work_on([cell], REQUEST, place)) == [(cell.name, "done")]
    assert result_of(place, cell.name) == unbroken
    assert (path / "timing.jsonl").read_text() == timing


def test_what_a_kill_left_of_a_directory_is_cleared_away(text, place):
    [cell, _] = cells_on(text)
    half = place.grid.runs_path / f".{cell.name}.abc.tmp"
    half.mkdir(parents=True)
    (half / "config.json").write_text("{")
    assert ends(work_on([cell], REQUEST, place)) == [(cell.name, "done")]
    assert not half.exists()


def test_a_cell_that_fails_is_named_with_its_reason_and_the_others_go_on(text, place):
    runs = ({"method": "nnrs", "protect": ["nowhere"]}, {"method": "mle"})
    bad, good = cells_on(text, runs=runs)
    news = list(work_on([bad, good], REQUEST, place))
    assert (news[0].name, news[0].how) == (bad.name, "error")
    assert "cannot protect 'nowhere'" in news[0].error
    assert ends(news[1:]) == [(good.name, "trained")]


def test_a_damaged_checkpoint_fails_its_own_cell_only(text, place):
    cells = cells_on(text)
    list(work_on(cells, REQUEST, place))
    for path in place.grid.run_path(cells[0].name).glob("checkpoint-*.safetensors"):
        path.write_bytes(b"torn")
    news = [item for item in work_on(cells, REQUEST, place) if item.how != "measuring"]
    assert [item.how for item in news] == ["error", "trained"]
    assert "is damaged" in news[0].error


def test_a_run_that_is_too_large_to_be_measured_beside_others_says_what_to_do(text, place, monkeypatch):
    def full(*arguments, **more):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(work, "evaluate_run", full)
    [cell] = cells_on(text)[:1]
    *_, last = work_on([cell], REQUEST, place)
    assert (last.how, last.error) == (
        "error",
        f"measuring {cell.name} does not fit the GPU's memory. Measure fewer at a time: --jobs 1.",
    )


def test_a_run_goes_on_with_as_many_threads_as_it_began_with(text, place, monkeypatch):
    cells, asked = cells_on(text)[:1], []
    list(work_on(cells, REQUEST, place))
    (place.grid.run_path(cells[0].name) / "result.json").unlink()
    monkeypatch.setattr(work.torch, "set_num_threads", asked.append)
    elsewhere = Place(grid=place.grid, device=place.device, threads=7, shelf=Shelf())
    list(work_on(cells, REQUEST, elsewhere))
    assert asked == [1]


def test_a_stop_leaves_cells_saved_and_not_done(text, place):
    asked = iter([False, False, True, *[True] * 20])
    stopping = Place(
        grid=place.grid, device=place.device, threads=1, shelf=Shelf(), should_stop=lambda: next(asked)
    )
    cells = cells_on(text)
    assert {how for _, how in ends(work_on(cells, REQUEST, stopping))} == {"stopped"}
    assert ends(work_on(cells, REQUEST, place)) == [(cell.name, "trained") for cell in cells]


@pytest.fixture
def batched(monkeypatch):
    """Fleets on the CPU, where nobody measures memory."""
    monkeypatch.setattr(together, "can_batch", lambda config, device: True)
    monkeypatch.setattr(fleet, "affordable", lambda trainers, valid: len(trainers))


def short_cells_on(text):
    """Two runs on still less text, for the interpreter takes its time: an epoch is a window of 6 and one of 4."""
    text.write_text("".join(f"w{row % 4} w{(row + 2) % 4}\n" for row in range(12)))
    return cells_on(text, training={"epochs": 2, "batch_size": 3, "bptt": 6, "valid_streams": 1})


def test_cells_of_a_kind_train_as_one_fleet_also_after_a_stop_in_between(text, place, batched, monkeypatch):
    sizes, real = [], fleet.Fleet

    def counted(trainers, valid):
        sizes.append(len(trainers))
        return real(trainers, valid=valid)

    monkeypatch.setattr(fleet, "Fleet", counted)
    cells = short_cells_on(text)
    asked = iter([False, False, True, *[True] * 20])
    stopping = Place(
        grid=place.grid, device=place.device, threads=1, shelf=Shelf(), should_stop=lambda: next(asked)
    )
    assert {how for _, how in ends(work_on(cells, REQUEST, stopping))} == {"stopped"}
    assert ends(work_on(cells, REQUEST, place)) == [(cell.name, "trained") for cell in cells]
    assert [place.grid.is_claimed(cell.name) for cell in cells] == [False, False]
    assert [ends(work_on([cell], REQUEST, place)) for cell in cells] == [
        [(cell.name, "done")] for cell in cells
    ]
    assert sizes == [2, 2]
    broken = [result_of(place, cell.name)["test_perplexity"] for cell in cells]
    alone = Place(
        grid=GridDirectory(place.grid.path.parent / "alone"), device=place.device, threads=1, shelf=Shelf()
    )
    alone.grid.path.mkdir()
    monkeypatch.setattr(together, "can_batch", lambda config, device: False)
    for cell in cells:
        list(work_on([cell], REQUEST, alone))
    expected = [result_of(alone, cell.name)["test_perplexity"] for cell in cells]
    assert broken == pytest.approx(expected, rel=1e-4)


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


@pytest.fixture
def board(text, tmp_path):
    """A plan of two methods with three seeds."""
    plan = Plan(
        kind="grid", title="t", command="c", cells=tuple(cells_on(text, seeds="1-3")), request=REQUEST
    )
    return Board(*open_grid(plan, tmp_path / "grid"))


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
    while board.left:  # in rounds: all that can be begun, then the end of all that was
        while workers.have_time and (cell := next(filter(workers.takes, board.free()), None)):
            board.taken.add(cell.name)
            workers.give([cell], board.plan.request)
        begun.append([names.index(name) for name in workers.cells])
        for worker in workers._all:
            for name in worker.cells:
                board.hear(News(name=name, how="done"))
            worker.cells = {}
    assert begun == expected


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


@pytest.mark.parametrize(
    ("name", "content", "epochs"),
    [("metrics.jsonl", "{\n{}\n", 1), ("summary.json", "{", 2)],  # of both cells or of the other alone
)
def test_a_damaged_file_fails_its_own_cell_only(name, content, epochs, text, place, batched):
    cells = short_cells_on(text)
    asked = iter([False, False, True, *[True] * 20])
    stopping = Place(
        grid=place.grid, device=place.device, threads=1, shelf=Shelf(), should_stop=lambda: next(asked)
    )
    list(work_on(cells, REQUEST, stopping))
    (place.grid.run_path(cells[0].name) / name).write_text(content)
    plan = Plan(kind="grid", title="t", command="c", cells=tuple(cells), request=REQUEST)
    assert Board(place.grid, plan).progress().epochs == epochs  # the complaint is left to the cell
    first, second = work_on(cells, REQUEST, place)
    assert (first.name, first.how) == (cells[0].name, "error")
    assert name in first.error
    assert (second.name, second.how) == (cells[1].name, "trained")


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
