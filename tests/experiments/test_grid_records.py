"""Records of another machine: a run of the plan that one is of is done, and no other."""

import json
import re
from dataclasses import replace

import pytest
import torch

from nnrs.errors import ConfigError
from nnrs.experiments.grid import Board, ensure_explorer, open_grid
from nnrs.experiments.plan import Plan, expand
from nnrs.experiments.prepare import Shelf
from nnrs.experiments.records import Takeover, matching_records, take_over
from nnrs.experiments.store import collect
from nnrs.experiments.subject import Request
from nnrs.experiments.work import Place, is_done, work_on
from nnrs.files import write_text
from nnrs.report.page import write_report
from nnrs.run_directory import RunDirectory

REQUEST = Request(metrics=("perplexity",))
ROWS = [" ".join(f"w{(row * 3 + step * step) % 9}" for step in range(5)) for row in range(40)]
VECTORS = [f"w{row} {row % 3} {row % 2} 1" for row in range(9)]
SETTINGS = {"units": 6, "layers": 1, "learning_rate": 2.0, "batch_size": 3, "bptt": 12, "epochs": 2}
RUNS = [{"method": "mle"}, {"method": "ss-nnrs"}, {"method": "nnrs"}]


def material(folder, rows=ROWS, vectors=VECTORS):
    """A text and vectors for it, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text("\n".join(rows) + "\n")
    (folder / "vectors.txt").write_text("\n".join(vectors) + "\n")
    return folder


def plan_on(folder, request=REQUEST, runs=RUNS, **more):
    """Three runs; the default number of neighbors, vectors of a file."""
    values = {"data": str(folder / "text.txt"), "vectors": str(folder / "vectors.txt"), **SETTINGS, **more}
    cells = tuple(expand({**values, "runs": list(runs)}))
    return Plan(kind="grid", title="t", command="c", cells=cells, request=request)


def carry_out(plan, out, cells):
    grid, plan = open_grid(plan, out)
    place = Place(grid=grid, device=torch.device("cpu"), threads=1, shelf=Shelf())
    for cell in cells:
        assert [news.how for news in work_on([cell], plan.request, place)] == ["measuring", "done"]


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """The machine where the plan was begun: its folder, and its records as a file. Not to be changed."""
    folder = material(tmp_path_factory.mktemp("there"))
    plan = plan_on(folder)
    carry_out(plan, folder / "out", plan.cells)
    records = [result.record for result in collect(folder / "out")]
    write_text(folder / "records.jsonl.xz", "".join(json.dumps(record) + "\n" for record in records))
    return folder


@pytest.fixture
def here(tmp_path):
    """A machine that has the same text and vectors, elsewhere."""
    return material(tmp_path / "here")


def taken_from(there, plan, out):
    return taken([there / "records.jsonl.xz"], plan, out)


def taken(sources, plan, out):
    return take_over(plan, out, matching_records(plan, sources, "cpu", Shelf()))


def refusal(there, plan, out):
    with pytest.raises(ConfigError) as caught:
        taken_from(there, plan, out)
    assert not out.exists()
    return str(caught.value)


def changed(there, folder, **parts):
    """The file of records with a part of each replaced."""
    records = [{**result.record, **parts} for result in collect(there / "records.jsonl.xz")]
    write_text(folder / "records.jsonl.xz", "".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_a_run_with_a_record_is_done_and_the_others_are_left(there, here):
    plan = plan_on(here, seeds="1-2")
    assert taken_from(there, plan, here / "out") == Takeover(taken=3, here=0)
    board = Board(*open_grid(plan, here / "out"))
    assert board.done == {cell.name for cell in plan.cells if cell.config.seed == 1}
    assert len(board.left) == 3
    assert not list((here / "out" / "runs").glob(".*"))
    assert not any(board.grid.is_claimed(cell.name) for cell in plan.cells)


def test_what_is_taken_is_the_record_under_the_name_and_the_labels_of_the_plan(there, here):
    plan = plan_on(here, min_count=[1, 2])  # by which the runs are told apart
    taken_from(there, plan, here / "out")
    theirs = {result.labels["method"]: result.record for result in collect(there / "out")}
    ours = [result.record for result in collect(here / "out")]
    assert [record["labels"] for record in ours] == [
        {"method": run["method"], "min_count": "1"} for run in RUNS
    ]
    for record in ours:
        path = here / "out" / "runs" / record["name"]
        assert json.loads((path / "result.json").read_text()) == record
        assert [file.name for file in path.iterdir()] == ["result.json"]
        other = theirs[record["labels"]["method"]]
        assert record["name"] != other["name"]
        assert {**record, "name": "", "labels": {}} == {**other, "name": "", "labels": {}}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epochs": 3}, "training.epochs (2 there, 3 here)"),
        ({"seeds": "7"}, "seed (1 there, 7 here)"),
        ({"clip": 0.5}, "optimizer.clip (0.25 there, 0.5 here)"),
        ({"precision": "bf16"}, 'training.precision ("fp32" there, "bf16" here)'),
        ({"request": replace(REQUEST, sentences=9)}, "request.sentences (1000 there, 9 here)"),
        ({"request": replace(REQUEST, splits=("valid",))}, 'request.splits (["test"] there, ["valid"] here)'),
        ({"runs": [{"method": "nnrs", "k": 2}]}, "policy.k (3 there, 2 here)"),
    ],
    ids=["setting", "seed", "optimizer", "precision", "request", "split", "neighbors"],
)
def test_a_run_that_differs_in_anything_is_not_taken_and_the_difference_is_told(change, told, there, here):
    said = refusal(there, plan_on(here, **change), here / "out")
    assert said.startswith(f"{there / 'records.jsonl.xz'}: no record is a run of this plan. The nearest, ")
    assert told in said
    assert said.count(" there, ") == 1  # nothing else differs
    assert "\n" not in said


def test_another_text_of_the_same_name_is_another_run(there, here):
    material(here, rows=[*ROWS[:-1], ROWS[1]])  # its last line, in the test split
    said = refusal(there, plan_on(here), here / "out")
    assert re.search(r'differs from mle_seed-1 in text \("\w{8}" there, "\w{8}" here\)', said)


def test_the_same_text_in_a_file_of_another_name_is_the_same_run_where_the_corpus_is_called_the_same(
    there, here
):
    (here / "text.txt").rename(here / "Text.txt")  # a corpus goes by its stem in small letters
    assert taken_from(there, plan_on(here, data=str(here / "Text.txt")), here / "out").taken == 3
    (here / "Text.txt").rename(here / "prose.txt")
    said = refusal(there, plan_on(here, data=str(here / "prose.txt")), here / "other")
    assert 'in corpus ("text" there, "prose" here).' in said


def test_other_vectors_of_the_same_name_make_other_runs_of_those_that_use_them(there, here):
    material(here, vectors=["w0 2 2 2", *VECTORS[1:]])
    plan = plan_on(here)
    assert taken_from(there, plan, here / "out").taken == 1
    assert [result.name for result in collect(here / "out")] == ["mle_seed-1"]
    said = refusal(there, plan_on(here, runs=RUNS[1:]), here / "other")
    assert "differs from ss-nnrs_seed-1 in the content of its vectors." in said


def test_what_a_folder_has_is_left_alone(there, here):
    plan = plan_on(here)
    grid, plan = open_grid(plan, here / "out")
    first, second, third = plan.cells
    begun = RunDirectory.create(grid.run_path(first.name), {"begun": True})
    before = {path: path.read_bytes() for path in begun.path.iterdir()}
    claim = grid.claim(second.name)
    assert taken_from(there, plan, here / "out") == Takeover(taken=1, here=2)
    assert {path: path.read_bytes() for path in begun.path.iterdir()} == before
    assert not grid.run_path(second.name).exists()
    claim.release()
    assert taken_from(there, plan, here / "out") == Takeover(taken=1, here=2)
    stamp = (grid.run_path(third.name) / "result.json").stat().st_mtime_ns
    assert taken_from(there, plan, here / "out") == Takeover(taken=0, here=3)
    assert (grid.run_path(third.name) / "result.json").stat().st_mtime_ns == stamp


def test_what_a_kill_left_of_a_directory_is_cleared_away(there, here):
    plan = plan_on(here)
    grid, plan = open_grid(plan, here / "out")
    half = grid.runs_path / f".{plan.cells[0].name}.abc.tmp"
    half.mkdir(parents=True)
    taken_from(there, plan, here / "out")
    assert not half.exists()


def test_a_run_keeps_the_name_that_it_has_in_its_folder(there, here):
    """A plan that grew: what tells its runs apart now did not do so when the first of them got their names."""
    open_grid(plan_on(here), here / "out")
    larger = plan_on(here, min_count=[1, 2])
    assert taken_from(there, larger, here / "out").taken == 3
    assert [result.name for result in collect(here / "out")] == [f"{run['method']}_seed-1" for run in RUNS]


def test_a_record_that_was_not_measured_or_tells_no_text_fits_nothing(there, here):
    plan = plan_on(here)
    assert "in text (null there, " in refusal(changed(there, here, text=None), plan, here / "out")
    said = refusal(changed(there, here, request=None), plan, here / "out")
    assert said.count("request.") == 3
    assert " and 7 more. Leave --records out" in said


def test_a_file_without_results_is_named(here):
    (here / "records.jsonl.xz").write_bytes(b"")
    said = refusal(here, plan_on(here), here / "out")
    assert said.startswith(f"{here / 'records.jsonl.xz'}: it holds no results.")


def test_of_records_that_fit_the_same_run_the_first_is_taken(there, here):
    worse = changed(there, here, test_nats=9.0, model="another")
    sources = [worse / "records.jsonl.xz", there / "records.jsonl.xz"]
    for order in (1, -1):
        taken(sources[::order], plan_on(here), here / f"out{order}")
    first, second = ({result.record["test_nats"] for result in collect(here / f"out{n}")} for n in (1, -1))
    assert first == {9.0}
    assert 9.0 not in second


def test_a_run_that_another_file_holds_measured_otherwise_is_found_in_the_file_that_fits(there, here):
    first = next(iter(collect(there / "records.jsonl.xz"))).record
    request = {**first["request"], "metrics": [*first["request"]["metrics"], "deciles"]}
    otherwise = changed(there, here, request=request) / "records.jsonl.xz"
    sources = [otherwise, there / "records.jsonl.xz"]
    for order in (1, -1):
        took = taken(sources[::order], plan_on(here), here / f"out{order}")
        assert took == Takeover(taken=3, here=0)


def test_a_folder_of_records_alone_serves_for_tables_and_pages(there, here):
    plan = plan_on(here)
    taken_from(there, plan, here / "out")
    assert collect(here / "out") == collect(there / "out")
    assert all(is_done(here / "out" / "runs" / cell.name, REQUEST) for cell in plan.cells)
    ensure_explorer(*open_grid(plan, here / "out"))
    assert not (here / "out" / "explorer.json").exists()  # there is no model to ask
    write_report([here / "out"], here / "report.html")
    assert "3 runs" in (here / "report.html").read_text()
    assert [result.name for result in collect(here / "out" / "runs" / "mle_seed-1")] == ["mle_seed-1"]


def test_explorers_are_made_from_the_run_whose_model_is_here(there, here):
    plan = plan_on(here, seeds="1-2")
    taken_from(there, plan, here / "out")
    [cell] = [cell for cell in plan.cells if cell.name == "nnrs_seed-2"]
    carry_out(plan, here / "out", [cell])
    ensure_explorer(*open_grid(plan, here / "out"))
    assert json.loads((here / "out" / "explorer.json").read_text())["method"] == "nnrs"


def test_a_grid_s_folder_serves_as_its_file_does(there, here):
    assert taken([there / "out"], plan_on(here), here / "out").taken == 3
    assert collect(here / "out") == collect(there / "out")
