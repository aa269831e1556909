"""`--dry-run`: what would be run, from a folder that is left as it is."""

import csv
import json
import shutil

import pytest

from nnrs.experiments.missing import missing_runs
from nnrs.grid_directory import GridDirectory

OPTIONS = "--epochs 2 --learning-rate 5 --methods mle,ss --metrics perplexity --jobs 2 --device cpu"


@pytest.fixture(scope="module")
def words(text, tiny):
    """The command without its seeds and its folder."""
    return ["compare", "--data", text, *tiny, *OPTIONS.split()]


@pytest.fixture(scope="module")
def out(nnrs, words, tmp_path_factory):
    """Two methods, one seed: of mle all is done, of ss all but the measuring."""
    folder = tmp_path_factory.mktemp("dry") / "out"
    done = nnrs(*words, "--seeds", "1", "--out", folder)
    assert done.returncode == 0, done.stderr
    (folder / "runs" / "ss_seed-1" / "result.json").unlink()
    return folder


def everything(folder):
    return {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}


def test_what_is_done_not_finished_and_new_is_told_and_nothing_is_changed(nnrs, words, out):
    before = everything(out)
    command = [*words, "--seeds", "1-2", "--out", out, "--dry-run"]
    told, as_json = nnrs(*command), nnrs(*command, "--json")
    assert (told.returncode, as_json.returncode) == (0, 0)
    assert [
        (line["run"], line["state"], line["trained"], line["epochs"]) for line in json.loads(as_json.stdout)
    ] == [
        ("mle_seed-1", "done", 2, 2),
        ("ss_seed-1", "not finished", 2, 2),
        ("mle_seed-2", "new", 0, 2),
        ("ss_seed-2", "new", 0, 2),
    ]
    assert told.stderr.endswith("\n4 runs, 3 of them to be run, 4 epochs. Nothing was changed.\n")
    assert "│ mle_seed-2 │          new │ 0 of 2 │" in told.stdout
    assert everything(out) == before


@pytest.mark.parametrize(
    ("kind", "called"),
    [("diverged", "diverged"), ("error", "failed"), ("lost", "not finished"), ("unheard of", "not finished")],
)
def test_a_run_that_did_not_come_to_its_end_is_called_as_on_the_page_and_is_to_be_run(
    nnrs, words, out, tmp_path, kind, called
):
    folder = tmp_path / "copy"
    shutil.copytree(out, folder)
    # The first is done since, the last came to no folder.
    for name in ("mle_seed-1", "ss_seed-1", "ss_seed-2"):
        GridDirectory(folder).add_failure({"name": name, "kind": kind, "error": "no", "try": 3})
    done = nnrs(*words, "--seeds", "1-2", "--out", folder, "--dry-run", "--json")
    states = {line["run"]: line["state"] for line in json.loads(done.stdout)}
    assert states == {"mle_seed-1": "done", "ss_seed-1": called, "mle_seed-2": "new", "ss_seed-2": called}
    assert "4 runs, 3 of them to be run" in done.stderr
    assert f"missing: ss_seed-1 ({called})." in missing_runs([folder])[0]
    shutil.rmtree(folder / "runs" / "ss_seed-1")
    (folder / "failures.jsonl").unlink()
    assert "missing: ss_seed-1." in missing_runs([folder])[0]  # as if it had not been begun


def test_runs_whose_records_fit_are_not_to_be_run(nnrs, words, out, tmp_path):
    records = tmp_path / "records.jsonl"
    assert nnrs("results", out, "--format", "jsonl", "--out", records).returncode == 0
    command = [*words, "--seeds", "1", "--out", tmp_path / "other", "--dry-run", "--json"]
    found = json.loads(nnrs(*command, "--records", records).stdout)
    assert {line["run"]: (line["state"], line["trained"]) for line in found} == {
        "mle_seed-1": ("in the records", 2),
        "ss_seed-1": ("new", 0),
    }
    assert not (tmp_path / "other").exists()


def test_a_folder_of_something_else_or_of_another_plan_is_refused_as_it_would_be(nnrs, words, out, tmp_path):
    (tmp_path / "thesis.txt").write_text("all of it")
    for folder, said in ((tmp_path, "holds thesis.txt and no plan.json"), (out, "holds another plan")):
        done = nnrs(*words, "--seeds", "2", "--out", folder, "--dry-run")
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr


def test_what_the_command_itself_would_refuse_is_refused(nnrs_each, words, tmp_path):
    mistakes = {
        "vectors": ("--vectors none.vec", "no such file or folder: "),
        "ray": ("--ray auto", "--jobs is about this machine"),
        "jobs": ("--jobs 0", "--jobs must be at least 1, got 0.\n"),
        "fleet": ("--fleet -1", "--fleet must be at least 1, got -1.\n"),
        "device": ("--device cuda:77", "device 'cuda:77' is not there"),
    }
    done = nnrs_each(
        {
            name: [*words, *options.split(), "--seeds", "1", "--out", tmp_path / name, "--dry-run"]
            for name, (options, _) in mistakes.items()
        }
    )
    for name, (_, said) in mistakes.items():
        assert (done[name].returncode, done[name].stdout) == (2, ""), name
        assert f"error: {said}" in done[name].stderr, done[name].stderr
        assert not (tmp_path / name).exists()


def test_vectors_that_are_not_there_are_told_before_anything_is_trained(nnrs, words, out, tmp_path):
    done = nnrs(*words, "--seeds", "1", "--vectors", "none.vec", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.endswith("none.vec. Check the path; files are looked for from here.\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("asked", ["vectors", "data", "oracle"])
def test_files_that_runs_are_measured_with_are_looked_for_before_anything_is_trained(nnrs, asked, tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text(f'data = "synthetic:50"\npreset = "tiny"\n[evaluate]\n{asked} = "none.vec"\n')
    done = nnrs("grid", file, "--out", tmp_path / "out", "--device", "cpu")
    assert done.returncode == 2
    assert "no such file or folder: " in done.stderr
    assert "none.vec" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("more", [[], ["--dry-run"]], ids=["run", "dry run"])
def test_a_text_too_short_for_its_windows_is_refused_before_anything_is_trained(
    nnrs_each, more, text, tmp_path
):
    file, short = tmp_path / "grid.toml", tmp_path / "short.txt"
    asked = 'metrics = ["perplexity", "bleu"]\nsplits = ["test"]\nlength = 500\n'
    file.write_text(f'data = "{text}"\npreset = "tiny"\n[evaluate]\n{asked}')
    short.write_text("a b c d e f\n" * 60)  # a test split of 3 lines
    done = nnrs_each(
        {
            "grid": ["grid", file, "--out", tmp_path / "grid", *more],
            "compare": [
                "compare",
                "--data",
                short,
                "--metrics",
                "exposure",
                "--out",
                tmp_path / "compare",
                *more,
            ],
        }
    )
    lacks = {
        "grid": f"{text}, test: a text of 180 tokens holds no window of 10 + 500",  # 20 lines of 9
        "compare": f"{short}, test: a text of 21 tokens holds no window of 10 + 35",
    }
    for name, lack in lacks.items():
        assert (done[name].returncode, done[name].stdout) == (2, "")
        assert f"error: {lack} (prefix + length). Use a longer text, fewer metrics, or" in done[name].stderr
        assert not (tmp_path / name).exists()


def test_runs_that_came_as_records_count_as_whole(nnrs, words, out, tmp_path):
    records, other = tmp_path / "records.jsonl", tmp_path / "other"
    assert nnrs("results", out / "runs" / "mle_seed-1", "--format", "jsonl", "--out", records).returncode == 0
    command = [*words, "--seeds", "1", "--out", other]
    assert nnrs(*command, "--records", records).returncode == 0
    line, _ = json.loads(nnrs(*command, "--dry-run", "--json").stdout)
    assert line == {"run": "mle_seed-1", "state": "done", "trained": 2, "epochs": 2}


def test_a_table_of_the_paper_is_listed_in_the_format_asked_for(nnrs, tmp_path):
    done = nnrs("paper", "table2", "--pilot", "--out", tmp_path / "out", "--dry-run", "--format", "csv")
    assert done.returncode == 0, done.stderr
    lines = list(csv.DictReader(done.stdout.splitlines()))
    assert len(lines) == 15  # three models, five methods
    assert {line["state"] for line in lines} == {"new"}
    assert "15 runs, 15 of them to be run, 60 epochs" in done.stderr
    assert not (tmp_path / "out").exists()
