"""Stored results as tables, from the command line."""

import csv
import io
import json
import lzma
import shutil

import torch
from tests.report.factory import make_results, sentences_of, write_results

from nnrs.experiments.findings import NOTHING_YET
from nnrs.experiments.missing import missing_runs
from nnrs.experiments.plan import Plan, expand
from nnrs.experiments.subject import Request
from nnrs.grid_directory import GridDirectory
from nnrs.run_directory import RunDirectory


def test_results_of_a_run_as_csv_json_and_lines(nnrs_each, finished, tmp_path):
    lines = tmp_path / "results.jsonl"
    done = nnrs_each(
        {
            "csv": ["results", finished],
            "json": ["results", finished, "--format", "json"],
            "jsonl": ["results", finished, "--format", "jsonl", "--out", lines],
            "md": ["results", finished, "--format", "md"],
        }
    )
    assert {item.returncode for item in done.values()} == {0}, done
    [row] = csv.DictReader(io.StringIO(done["csv"].stdout))
    [record] = json.loads(done["json"].stdout)
    assert json.loads(lines.read_text()) == record
    summary = json.loads((finished.parent / "stdout.json").read_text())
    assert float(row["test_perplexity"]) == record["test_perplexity"] == summary["test_perplexity"]
    assert f"| perplexity, test | lower | {record['test_perplexity']:.2f} |" in done["md"].stdout
    assert row["method"] == record["labels"]["method"] == "ss-nnrs"
    assert row["command"] == record["command"]


def test_what_cannot_be_given_is_said_in_one_line(nnrs_each, finished, tmp_path):
    there = tmp_path / "there.csv"
    there.write_text("mine")
    refused = {
        "existing": (["results", finished, "--out", there], "exists already and is not overwritten"),
        "format": (["results", finished, "--format", "cvs"], "unknown format 'cvs'. Did you mean 'csv'"),
        "table": (["results", finished, "--format", "table1"], "none of these results stands in table1"),
        "nothing": (["results", tmp_path], "is not a run directory"),
        "kind": (
            ["results", there],
            "there.csv is a file of another kind: results come from a .jsonl or .jsonl.xz",
        ),
    }
    done = nnrs_each({name: words for name, (words, _) in refused.items()})
    for name, (_, told) in refused.items():
        assert done[name].returncode == 2
        assert told in done[name].stderr
        assert done[name].stderr.count("\n") == 1
    assert there.read_text() == "mine"


def test_a_run_that_is_named_twice_stands_in_the_table_once(nnrs, finished, tmp_path):
    lines = tmp_path / "results.jsonl"
    assert nnrs("results", finished, "--format", "jsonl", "--out", lines).returncode == 0
    done = nnrs("results", finished, lines)
    assert len(list(csv.DictReader(io.StringIO(done.stdout)))) == 1


def test_lines_are_compressed_where_the_name_says_so_and_serve_as_the_plain_ones_do(
    nnrs_each, finished, tmp_path
):
    files = {name: tmp_path / name for name in ("plain.jsonl", "small.jsonl.xz")}
    made = nnrs_each(
        {name: ["results", finished, "--format", "jsonl", "--out", path] for name, path in files.items()}
    )
    assert {item.returncode for item in made.values()} == {0}, made
    plain, small = (path.read_bytes() for path in files.values())
    assert lzma.decompress(small) == plain
    assert len(small) < len(plain) / 2
    told = nnrs_each({name: ["results", path] for name, path in files.items()})
    assert told["plain.jsonl"].stdout == told["small.jsonl.xz"].stdout
    files["small.jsonl.xz"].write_bytes(small[:-9])
    page = tmp_path / "page.html"
    torn = nnrs_each(
        {
            "results": ["results", files["small.jsonl.xz"]],
            "report": ["report", files["small.jsonl.xz"], "--out", page],
        }
    )
    for item in torn.values():
        assert item.returncode == 2
        assert f"error: {files['small.jsonl.xz']} is damaged: " in item.stderr
        assert item.stderr.count("\n") == 1
    assert not page.exists()


def test_a_name_of_another_compression_is_refused_and_nothing_is_written(nnrs, tmp_path):
    records = tmp_path / "records.jsonl"
    records.write_text("".join(json.dumps(record) + "\n" for record in make_results(groups=1, seeds=1)))
    done = nnrs("results", records, "--format", "jsonl", "--out", tmp_path / "x.jsonl.gz")
    said = "files of nnrs are compressed as .xz. Choose a name that ends in that, or plain."
    assert (done.returncode, done.stderr) == (2, f"error: {tmp_path / 'x.jsonl.gz'}: {said}\n")
    assert list(tmp_path.iterdir()) == [records]


def test_where_no_run_is_finished_it_says_so_and_writes_nothing(nnrs_each, tmp_path):
    plan = Plan(
        kind="grid", title="t", command="c", cells=tuple(expand({"method": ["ss"]})), request=Request()
    )
    (tmp_path / "grid").mkdir()
    GridDirectory(tmp_path / "grid").write_plan(plan.as_dict())
    empty, out = tmp_path / "empty.jsonl", tmp_path / "x.jsonl.xz"
    empty.touch()
    done = nnrs_each(
        {
            "grid": ["results", tmp_path / "grid", "--format", "jsonl", "--out", out],
            "empty.jsonl": ["results", empty],
        }
    )
    for name, item in done.items():
        assert (item.returncode, item.stdout) == (2, "")
        assert item.stderr == f"error: {tmp_path / name}: no finished run to tell of. Finish one first.\n"
    assert not out.exists()


def folder_of(path, *names):
    """A grid's folder of two methods and two seeds, of which some have results, and ss_seed-2 has diverged."""
    cells = tuple(expand({"method": ["mle", "ss"], "seeds": "1-2"}))
    path.mkdir()
    grid = GridDirectory(path)
    grid.write_plan(Plan(kind="grid", title="t", command="c", cells=cells, request=Request()).as_dict())
    for record in make_results(groups=2, seeds=2, epochs=2):
        if record["name"] in names:
            grid.run_path(record["name"]).mkdir(parents=True)
            RunDirectory(grid.run_path(record["name"])).write_result(record)
    for kind in ("lost", "diverged"):
        grid.add_failure({"name": "ss_seed-2", "kind": kind, "error": "nan", "try": 1})
    return path


def test_runs_of_a_plan_that_are_missing_are_told_beside_the_results_and_on_the_page(nnrs_each, tmp_path):
    one_seed = folder_of(tmp_path / "seed", "mle_seed-1", "ss_seed-1")
    one_method = folder_of(tmp_path / "method", "mle_seed-1", "mle_seed-2")
    (one_method / "runs" / "ss_seed-1").mkdir()
    GridDirectory(one_method).add_failure({"name": "ss_seed-1", "kind": "lost", "error": "killed", "try": 1})
    GridDirectory(one_seed).add_failure({"name": "mle_seed-2", "kind": "error", "error": "no", "try": 1})
    done = nnrs_each(
        {
            "results": ["results", one_seed],
            "report": ["report", one_seed],
            "method": ["report", one_method],
            "both": ["results", one_method, one_seed],
        }
    )
    assert {item.returncode for item in done.values()} == {0}, done
    of_seed = "2 of 4 runs of the plan 't' are missing: mle_seed-2 (failed), ss_seed-2 (diverged).\n"
    of_method = "2 of 4 runs of the plan 't' are missing: ss_seed-1 (not finished), ss_seed-2 (diverged).\n"
    assert done["results"].stderr == done["report"].stderr == of_seed
    assert len(done["results"].stdout.splitlines()) == 3  # and the line of names
    assert done["method"].stderr == of_method
    assert done["both"].stderr == of_method + of_seed  # each lacks its own, whatever the other has
    pages = [(folder / "report.html").read_text() for folder in (one_seed, one_method)]
    lead = [sentences_of(page) for page in pages]
    assert lead[0][0] == of_seed.strip()
    assert lead[0][1].startswith("One seed decides nothing: ")
    assert "--seeds" not in " ".join(lead[0])
    assert lead[1] == [of_method.strip(), NOTHING_YET]


def test_runs_of_a_folder_that_are_not_finished_are_told_beside_the_results_and_on_the_page(
    nnrs_each, finished, tmp_path
):
    folder = tmp_path / "runs"  # as a grid's own, without a grid around it
    for name in ("seed-1", "seed-2", "seed-3"):
        shutil.copytree(finished, folder / name)
    assert missing_runs([folder]) == []
    (folder / "seed-2" / "summary.json").unlink()
    done = nnrs_each(
        {
            "csv": ["results", folder],
            "md": ["results", folder, "--format", "md"],
            "report": ["report", folder],
        }
    )
    said = (
        "1 of 3 runs in runs is not finished and left out: seed-2. "
        "`nnrs train --resume` with that folder as its --out goes on; what diverged would again.\n"
    )
    assert {name: (item.returncode, item.stderr) for name, item in done.items()} == dict.fromkeys(
        done, (0, said)
    )
    page = (folder / "report.html").read_text()
    assert said.strip() in sentences_of(page)
    assert "<code>nnrs train --resume</code>" in page


def test_the_runs_of_a_grid_are_told_of_by_its_plan_where_their_own_folder_is_named(tmp_path):
    folder = folder_of(tmp_path / "grid", "mle_seed-1", "mle_seed-2")
    begun = RunDirectory.create(GridDirectory(folder).run_path("ss_seed-1"), {})
    (told,) = missing_runs([begun.path.parent])
    assert [told] == missing_runs([folder])
    assert told.startswith("2 of 4 runs of the plan 't' are missing: ss_seed-1 (not finished)")


def test_a_run_that_was_begun_is_not_finished_nor_one_whose_process_died_before_its_folder_was_made(tmp_path):
    begun, lost = (folder_of(tmp_path / name, "mle_seed-1", "mle_seed-2") for name in ("begun", "lost"))
    (begun / "runs" / "ss_seed-1").mkdir()
    GridDirectory(lost).add_failure({"name": "ss_seed-1", "kind": "lost", "error": "killed", "try": 1})
    for folder in (begun, lost):
        assert "missing: ss_seed-1 (not finished), ss_seed-2 (diverged)." in missing_runs([folder])[0]


def test_a_run_that_failed_and_was_stopped_when_it_was_tried_again_is_not_finished(tmp_path):
    folder = folder_of(tmp_path / "grid", "mle_seed-1", "mle_seed-2")
    grid = GridDirectory(folder)
    run = RunDirectory.create(grid.run_path("ss_seed-1"), {})
    failure = {"name": "ss_seed-1", "kind": "error", "error": "no", "try": 1}
    for step in (3, 7):
        grid.add_failure(failure)
        assert "ss_seed-1 (failed), ss_seed-2 (diverged)." in missing_runs([folder])[0]
        run.write_checkpoint({"model.weight": torch.zeros(1)}, {"step": step})
        assert "ss_seed-1 (not finished), ss_seed-2 (diverged)." in missing_runs([folder])[0]
    grid.add_failure({**failure, "kind": "diverged"})
    run.write_checkpoint({"model.weight": torch.zeros(1)}, {"step": 9})
    assert "ss_seed-1 (diverged), ss_seed-2 (diverged)." in missing_runs([folder])[0]  # and would again
    with (folder / "failures.jsonl").open("a") as file:  # as an earlier version wrote it
        file.write(json.dumps(failure) + "\n")
    assert "ss_seed-1 (failed), ss_seed-2 (diverged)." in missing_runs([folder])[0]


def test_a_damaged_record_is_named_by_its_line_for_a_table_and_a_page(nnrs_each, tmp_path):
    sound, damaged = make_results(groups=2, seeds=1, epochs=2)
    path = write_results(tmp_path / "oops.jsonl", [sound, {**damaged, "test_perplexity": "oops"}])
    page = tmp_path / "page.html"
    done = nnrs_each({"results": ["results", path], "report": ["report", path, "--out", page]})
    told = f'line 2 of {path} is a damaged result: test_perplexity must be a number, got "oops".'
    for item in done.values():
        assert item.returncode == 2
        assert item.stderr == f"error: {told} Copy or make it again.\n"
        assert item.stdout == ""
    assert not page.exists()
