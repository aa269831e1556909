"""Cells from start to result in one process: claimed once, done once, in fleets where they can be, failing alone."""

import json

import pytest
import torch
from tests.experiments.short_cells import REQUEST, cells_on

from nnrs.experiments import together, work
from nnrs.experiments.grid import Board
from nnrs.experiments.plan import Plan
from nnrs.experiments.prepare import Shelf
from nnrs.experiments.run import Run
from nnrs.experiments.subject import Request
from nnrs.experiments.work import Place, is_done, work_on
from nnrs.grid_directory import GridDirectory
from nnrs.run_directory import RunDirectory
from nnrs.training import fleet


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


def test_a_cell_that_another_process_has_is_left_to_it(short_text, place):
    cells = cells_on(short_text)
    claim = place.grid.claim(cells[0].name)
    assert ends(work_on(cells, REQUEST, place)) == [(cells[0].name, "busy"), (cells[1].name, "done")]
    claim.release()
    assert not place.grid.run_path(cells[0].name).exists()
    assert not any(place.grid.is_claimed(cell.name) for cell in cells)


def test_a_cell_that_is_done_is_not_touched(short_text, place):
    cells = cells_on(short_text)[:1]
    list(work_on(cells, REQUEST, place))
    path = place.grid.run_path(cells[0].name)
    before = {file: file.stat().st_mtime_ns for file in path.iterdir()}
    assert ends(work_on(cells, REQUEST, place)) == [(cells[0].name, "done")]
    assert {file: file.stat().st_mtime_ns for file in path.iterdir()} == before


def test_a_cell_is_done_when_its_result_is_of_its_model_and_of_the_request(short_text, place):
    [cell, _] = cells_on(short_text)
    path = place.grid.run_path(cell.name)
    assert not is_done(path, REQUEST)
    list(work_on([cell], REQUEST, place))
    assert is_done(path, REQUEST)
    assert not is_done(path, Request(metrics=("perplexity", "bleu")))
    record = RunDirectory(path).result()
    RunDirectory(path).write_result({**record, "model": "another"})
    assert not is_done(path, REQUEST)


def test_work_cut_off_before_its_result_is_finished_without_training_again(short_text, place):
    """The trajectory's predictions are the best model's, also where the last epoch made a worse one."""
    run = {"method": "ss", "prediction_rate": 1.0, "annealing": "constant"}
    [cell] = cells_on(short_text, runs=[run])
    list(work_on([cell], REQUEST, place))
    unbroken, path = result_of(place, cell.name), place.grid.run_path(cell.name)
    assert unbroken["best_epoch"] == 0
    assert "prediction" in unbroken["trajectory"]["sources"]
    (path / "result.json").unlink()
    timing = (path / "timing.jsonl").read_text()
    assert ends(work_on([cell], REQUEST, place)) == [(cell.name, "done")]
    assert result_of(place, cell.name) == unbroken
    assert (path / "timing.jsonl").read_text() == timing


def test_what_a_kill_left_of_a_directory_is_cleared_away(short_text, place):
    [cell, _] = cells_on(short_text)
    half = place.grid.runs_path / f".{cell.name}.abc.tmp"
    half.mkdir(parents=True)
    (half / "config.json").write_text("{")
    assert ends(work_on([cell], REQUEST, place)) == [(cell.name, "done")]
    assert not half.exists()


def test_a_cell_that_fails_is_named_with_its_reason_and_the_others_go_on(short_text, place):
    runs = ({"method": "nnrs", "protect": ["nowhere"]}, {"method": "mle"})
    bad, good = cells_on(short_text, runs=runs)
    news = list(work_on([bad, good], REQUEST, place))
    assert (news[0].name, news[0].how) == (bad.name, "error")
    assert "cannot protect 'nowhere'" in news[0].error
    assert ends(news[1:]) == [(good.name, "trained")]


def test_a_damaged_checkpoint_fails_its_own_cell_only(short_text, place):
    cells = cells_on(short_text)
    list(work_on(cells, REQUEST, place))
    for path in place.grid.run_path(cells[0].name).glob("checkpoint-*.safetensors"):
        path.write_bytes(b"torn")
    news = [item for item in work_on(cells, REQUEST, place) if item.how != "measuring"]
    assert [item.how for item in news] == ["error", "trained"]
    assert "is damaged" in news[0].error


def test_a_run_that_is_too_large_to_be_measured_beside_others_says_what_to_do(short_text, place, monkeypatch):
    def full(*arguments, **more):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(work, "evaluate_run", full)
    [cell] = cells_on(short_text)[:1]
    *_, last = work_on([cell], REQUEST, place)
    assert (last.how, last.error) == (
        "error",
        f"measuring {cell.name} does not fit the GPU's memory. Measure fewer at a time: --jobs 1.",
    )


@pytest.mark.parametrize(("owner", "step"), [(work, "prepare"), (Run, "go_back")], ids=["new", "begun"])
def test_a_run_that_finds_no_room_beside_others_fails_alone(short_text, place, monkeypatch, owner, step):
    """At its start, and where it is taken back to its checkpoint."""
    cells, taken = cells_on(short_text), getattr(owner, step)
    if owner is Run:
        list(work_on(cells, REQUEST, place))

    def full_once(*arguments):
        monkeypatch.setattr(owner, step, taken)
        raise torch.OutOfMemoryError

    monkeypatch.setattr(owner, step, full_once)
    first, *others = work_on(cells, REQUEST, place)
    assert (first.name, first.how) == (cells[0].name, "error")
    assert first.error.startswith(f"{cells[0].name} does not fit the GPU's memory. Use a smaller --preset")
    assert ends(others) == [(cells[1].name, "trained")]


def test_a_run_goes_on_with_as_many_threads_as_it_began_with(short_text, place, monkeypatch):
    cells, asked = cells_on(short_text)[:1], []
    list(work_on(cells, REQUEST, place))
    (place.grid.run_path(cells[0].name) / "result.json").unlink()
    monkeypatch.setattr(work.torch, "set_num_threads", asked.append)
    elsewhere = Place(grid=place.grid, device=place.device, threads=7, shelf=Shelf())
    list(work_on(cells, REQUEST, elsewhere))
    assert asked == [1]


def test_a_stop_leaves_cells_saved_and_not_done(short_text, place):
    asked = iter([False, False, True, *[True] * 20])
    stopping = Place(
        grid=place.grid, device=place.device, threads=1, shelf=Shelf(), should_stop=lambda: next(asked)
    )
    cells = cells_on(short_text)
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


def test_cells_of_a_kind_train_as_one_fleet_also_after_a_stop_in_between(
    short_text, place, batched, monkeypatch
):
    sizes, real = [], fleet.Fleet

    def counted(trainers, valid):
        sizes.append(len(trainers))
        return real(trainers, valid=valid)

    monkeypatch.setattr(fleet, "Fleet", counted)
    cells = short_cells_on(short_text)
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


@pytest.mark.parametrize(
    ("name", "content", "epochs"),
    [("metrics.jsonl", "{\n{}\n", 1), ("summary.json", "{", 2)],  # of both cells or of the other alone
)
def test_a_damaged_file_fails_its_own_cell_only(name, content, epochs, short_text, place, batched):
    cells = short_cells_on(short_text)
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
