"""Grids as real processes: what is missing is run, and what is done is skipped."""

import json
import lzma
import re
import subprocess

import pytest
from tests.cli.grids import GRID, NAMES, failures_of, results_of, small_grid, write_grid, written


@pytest.fixture(scope="module")
def done(nnrs, text, tmp_path_factory):
    """A grid of two methods and two seeds, with what it printed. Not to be changed."""
    return small_grid(nnrs, text, tmp_path_factory.mktemp("grid"))


@pytest.fixture
def copied(done, tmp_path):
    """The same grid to be changed."""
    subprocess.run(["cp", "-a", str(done[1]), str(tmp_path / "out")], check=True)
    return done[0], tmp_path / "out"


def test_a_grid_ends_with_a_result_for_every_cell_and_a_row_for_every_configuration(done):
    _, out, ended = done
    assert sorted(results_of(out)) == sorted(NAMES)
    assert re.search(r"mle .* 2 .*±.*\n.*ss-nnrs .* 2 .*±", ended.stdout)
    assert "4 of 4 runs done" in ended.stderr
    assert not failures_of(out)
    assert (out / "explorer.json").is_file()


def test_a_result_says_all_that_a_page_needs(done):
    result = results_of(done[1])["ss-nnrs_seed-2"]
    assert result["labels"] == {"method": "ss-nnrs"}
    assert [line["epoch"] for line in result["epochs"]] == [0, 1]
    assert {score["metric"] for score in result["scores"]} >= {"ppl", "bleu4"}
    assert [len(sample["prefix"]) for sample in result["samples"]] == [5] * 5
    trajectory = result["trajectory"]
    for gold, used, source in zip(*(trajectory[key] for key in ("gold", "inputs", "sources")), strict=True):
        assert source in ("gold", "neighbor", "prediction")
        assert gold == used or source != "gold"
    assert {"neighbor", "prediction"} & {*trajectory["sources"]}
    assert str(done[1].parent) not in json.dumps(result)  # no path of this machine


def test_a_result_can_be_repeated_by_its_command(done, nnrs, text, tmp_path):
    result = results_of(done[1])["ss-nnrs_seed-2"]
    words = result["command"].split()
    ended = nnrs(*words[1:], "--json", cwd=text.parent)
    assert ended.returncode == 0, ended.stderr
    again = json.loads(ended.stdout)
    assert again["test_perplexity"] == result["test_perplexity"]
    assert again["signature"] == result["signature"]


def test_a_finished_grid_is_left_as_it_is(done, nnrs):
    file, out, first = done
    before = written(out)
    again = nnrs("grid", file, "--out", out)
    assert again.returncode == 0
    assert again.stdout == first.stdout
    assert written(out) == before


def test_more_seeds_add_runs_and_leave_the_others_alone(copied, nnrs, text, tmp_path):
    _, out = copied
    before = {path: when for path, when in written(out).items() if "runs" in path.parts}
    larger = write_grid(tmp_path / "larger.toml", text, seeds="1-3")
    ended = nnrs("grid", larger, "--out", out, "--jobs", 1, "--json")
    assert ended.returncode == 0, ended.stderr
    assert {path: when for path, when in written(out).items() if path in before} == before
    names = [cell["name"] for cell in json.loads((out / "plan.json").read_text())["cells"]]
    assert names == [*NAMES, "mle_seed-3", "ss-nnrs_seed-3"]
    assert [result["name"] for result in json.loads(ended.stdout)] == names


@pytest.fixture(scope="module")
def records(done, nnrs):
    """The results of the grid as a small file, without its models."""
    path = done[1].parent / "records.jsonl.xz"
    assert nnrs("results", done[1], "--format", "jsonl", "--out", path).returncode == 0
    return path


def test_a_plan_goes_on_elsewhere_from_its_records_alone(done, records, nnrs, text, tmp_path):
    out, larger = tmp_path / "out", write_grid(tmp_path / "larger.toml", text, seeds="1-3")
    command = ["grid", larger, "--out", out, "--jobs", 2, "--fleet", 2, "--records", records]
    ended = nnrs(*command)
    assert ended.returncode == 0, ended.stderr
    assert "taken from records.jsonl.xz: 4 of 6 runs\n" in ended.stderr
    assert {path.parent.name for path in out.glob("runs/*/config.json")} == {"mle_seed-3", "ss-nnrs_seed-3"}
    ours = results_of(out)
    assert {name: ours[name] for name in NAMES} == results_of(done[1])
    assert len(ours) == 6
    assert (out / "explorer.json").is_file()  # from the run whose model is here
    before = written(out)
    again = nnrs(*command)
    assert "taken from records.jsonl.xz: 0 of 6 runs; here already: 4\n" in again.stderr
    assert again.stdout == ended.stdout
    assert written(out) == before


def test_a_grid_names_the_runs_whose_training_came_apart(records, nnrs, text, tmp_path):
    lines = [json.loads(line) for line in lzma.decompress(records.read_bytes()).splitlines()]
    spoilt = next(line for line in lines if line["name"] == "mle_seed-2")
    spoilt["best_epoch"] = 1
    spoilt["epochs"].append({**spoilt["epochs"][1], "epoch": 2, "valid_perplexity": 1e6})
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    command = ["grid", write_grid(tmp_path / "grid.toml", text), "--out"]
    told = nnrs(*command, tmp_path / "spoilt", "--records", changed)
    assert told.returncode == 0, told.stderr
    assert "\nmle (seed 2) came apart in training: after the best epoch," in told.stderr
    assert "came apart" not in nnrs(*command, tmp_path / "whole", "--records", records).stderr


def test_a_dry_run_counts_the_runs_of_its_records_as_there(records, nnrs, text, tmp_path):
    larger = write_grid(tmp_path / "larger.toml", text, seeds="1-3")
    command = ["grid", larger, "--out", tmp_path / "out", "--dry-run", "--json"]
    told = nnrs(*command, "--records", records)
    assert told.returncode == 0, told.stderr
    states = {line["run"]: line["state"] for line in json.loads(told.stdout)}
    new = dict.fromkeys(["mle_seed-3", "ss-nnrs_seed-3"], "new")
    assert states == {**dict.fromkeys(NAMES, "in the records"), **new}
    assert "6 runs, 2 of them to be run, 4 epochs." in told.stderr
    assert not (tmp_path / "out").exists()


def test_records_of_other_runs_are_refused_with_the_difference_before_anything_is_made(
    done, records, nnrs, text, tmp_path
):
    other = write_grid(tmp_path / "other.toml", text, epochs=3)
    ended = nnrs("grid", other, "--out", tmp_path / "out", "--records", records)
    assert ended.returncode == 2
    assert "no record is a run of this plan" in ended.stderr
    assert "in training.epochs (2 there, 3 here). Leave --records out" in ended.stderr
    assert ended.stderr.startswith(f"error: {records}: no record is a run of this plan.")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epochs": 3}, "holds another plan, whose mle_seed-1 differs in training.epochs (2 there, 3 here)."),
        ({"seeds": "1"}, "runs that this one lacks: mle_seed-2, ss-nnrs_seed-2. Choose another --out"),
    ],
)
def test_another_plan_is_refused_and_nothing_changes(change, told, copied, nnrs, text, tmp_path):
    _, out = copied
    before = written(out)
    other = write_grid(tmp_path / "other.toml", text, **change)
    ended = nnrs("grid", other, "--out", out)
    assert ended.returncode == 2
    assert told in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert written(out) == before


def test_a_folder_that_is_no_grid_is_refused(done, nnrs, tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    ended = nnrs("grid", done[0], "--out", tmp_path)
    assert ended.returncode == 2
    assert "letters.txt and no plan.json" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_result_whose_model_was_trained_further_is_made_again(copied, nnrs):
    """As after `nnrs train --resume --previous` in a cell: the stored result speaks of another model."""
    file, out = copied
    path = out / "runs" / NAMES[0] / "result.json"
    stale = json.loads(path.read_text())
    path.write_text(json.dumps({**stale, "model": "of another time", "test_perplexity": 1.0}))
    assert nnrs("grid", file, "--out", out).returncode == 0
    assert json.loads(path.read_text())["test_perplexity"] == stale["test_perplexity"]


def test_a_run_whose_model_is_lost_is_told_by_its_result_and_counts_as_done(nnrs, nnrs_each, copied):
    file, out = copied
    older, newest = sorted((out / "runs" / "ss-nnrs_seed-1").glob("best-*.json"))
    newest.unlink()
    (out / "explorer.json").unlink()  # it is made anew, of another run
    before = results_of(out)
    done = nnrs_each({"results": ["results", out], "grid": ["grid", file, "--out", out]})
    assert {item.returncode for item in done.values()} == {0}, done
    assert len(done["results"].stdout.splitlines()) == 1 + len(NAMES)
    assert results_of(out) == before
    assert (out / "explorer.json").is_file()
    refused = nnrs("evaluate", out / "runs" / "ss-nnrs_seed-1", "--split", "train")
    assert refused.returncode == 2
    assert (
        f"the newest there, {older.stem}, is of epoch 0. Copy the later best-* files back" in refused.stderr
    )
    assert refused.stderr.endswith("ss-nnrs_seed-1/config.json --out NEW.\n")


def test_a_grid_that_is_done_stays_so_where_every_model_is_damaged(nnrs, copied):
    file, out = copied
    first, second = (
        max((out / "runs" / f"ss-nnrs_seed-{seed}").glob("best-*.safetensors")) for seed in (1, 2)
    )
    whole = bytearray(first.read_bytes())
    whole[-1] ^= 1
    first.write_bytes(whole)
    second.write_bytes(second.read_bytes()[:9])
    (out / "explorer.json").unlink()
    done = nnrs("grid", file, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "ss-nnrs" in done.stdout
    assert not (out / "explorer.json").exists()
    (out / "runs" / NAMES[0] / "summary.json").write_text("{")
    told = nnrs("grid", file, "--out", out)
    assert told.returncode == 2
    assert "summary.json" in told.stderr


def test_what_to_do_about_damaged_data_of_the_explorers_is_told_and_helps(nnrs, copied):
    file, out = copied
    path = out / "explorer.json"
    before = path.read_text()
    path.write_text("{")
    told = nnrs("grid", file, "--out", out)
    assert told.returncode == 2
    assert "explorer.json is damaged: " in told.stderr
    assert told.stderr.endswith(
        " Delete it and continue the grid to make it anew, where one of its models is there.\n"
    )
    path.unlink()
    assert nnrs("grid", file, "--out", out).returncode == 0
    assert path.read_text() == before


def test_a_run_that_fails_is_named_and_tried_again_next_time_while_the_others_go_on(nnrs, text, tmp_path):
    more = '[[runs]]\nlearning_rate = 5\n[[runs]]\nmethod = "mle"\nlearning_rate = 1e30\nclip = 1e30\n'
    (tmp_path / "narrow.vec").write_text("w001 1 2\nw002 1\n")
    bad = f'[[runs]]\nmethod = "nnrs"\nvectors = "{tmp_path / "narrow.vec"}"\n'
    file = tmp_path / "grid.toml"
    body = GRID.format(text=text, epochs=1, methods='"mle"', seeds="1", more="")
    file.write_text(body + more + bad)
    command = ["grid", file, "--out", tmp_path / "out", "--jobs", 1]
    ended = nnrs(*command)
    assert ended.returncode == 2
    assert len(results_of(tmp_path / "out")) == 1
    told = [line for line in ended.stderr.splitlines() if line.startswith("error:")]
    assert len(told) == 2
    [apart] = [line for line in told if "perplexity is no longer finite" in line]
    assert apart.endswith(" Lower learning_rate and start again with another --out.")
    assert any("narrow.vec, line 2" in line for line in told)
    kinds = sorted((record["kind"], record["try"]) for record in failures_of(tmp_path / "out"))
    assert kinds == [("diverged", 1), ("error", 1)]
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(
        "1 run done, 2 failed. 1 of them diverged, and would again. Run it again to retry 1: "
    )
    again = nnrs(*command, "--json")
    assert again.returncode == 2
    assert len(failures_of(tmp_path / "out")) == 4
    sound, *failed = json.loads(again.stdout)
    assert sound == json.loads((tmp_path / "out" / "runs" / sound["name"] / "result.json").read_text())
    assert sound["command"].endswith(" --out mle_learning_rate-5_seed-1")
    assert [f"error: {item['name']}: {item['error']}" for item in failed] == told
    file.write_text(body.replace('"mle"', '"nnrs"') + bad.replace('method = "nnrs"\n', ""))
    none = nnrs("grid", file, "--out", tmp_path / "none", "--jobs", 1)
    assert (none.returncode, none.stdout) == (2, "")
    file.write_text(body + more)
    apart = nnrs("grid", file, "--out", tmp_path / "apart", "--jobs", 1)
    assert apart.stderr.splitlines()[-1] == "1 run done, 1 failed. 1 of them diverged, and would again."
