"""`nnrs paper` as a user runs it: the tables by name, on a small text, and the whole pilot."""

import csv
import json
import shutil
from pathlib import Path
from statistics import fmean

import pytest
from tests.cli.grids import break_run

from nnrs.experiments.paper import COLUMNS, MODELS, SCHEDULES, configurations
from nnrs.schedules import Schedule, progress

OPTIONS = "--preset tiny --units 8 --layers 1 --batch-size 16 --bptt 10 --epochs 1 --learning-rate 2 --jobs 2"
SMALL = OPTIONS.split()


@pytest.fixture(scope="module")
def root(tmp_path_factory, text) -> Path:
    """A folder that holds one text in a folder of its own."""
    folder = tmp_path_factory.mktemp("root") / "mine"
    folder.mkdir()
    lines = text.read_text().splitlines(keepends=True)
    for split, part in (("train", lines[:120]), ("valid", lines[120:160]), ("test", lines[160:200])):
        (folder / f"{split}.txt").write_text("".join(part))
    return folder.parent


@pytest.fixture(scope="module")
def table2(nnrs, root, tmp_path_factory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("paper") / "out"
    done = nnrs("paper", "table2", "--data", root, "--corpus", "mine", *SMALL, "--out", out, seconds=300)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_table_2_has_every_model_method_and_way_of_predicting(table2):
    out, printed = table2
    assert len(list(out.glob("runs/*/result.json"))) == len(MODELS) * len(COLUMNS)
    assert "mine, sample." in printed
    assert "mine, teacher-forced." in printed
    for metric in ("│ self-bleu4 (lower", "│ self-wmd (higher"):
        assert printed.count(metric) == 2 * len(MODELS)
    assert "- One seed decides nothing" in printed
    assert "nan" not in printed
    scores = json.loads((out / "runs" / "SS-NNRS_gru_mine_seed-1" / "result.json").read_text())["scores"]
    curve = {score["metric"] for score in scores if score["metric"].startswith("excess-nats")}
    assert len(curve) > 1  # of exposure, for the same runs
    assert (out / "report.html").is_file()


def test_table_3_in_the_same_folder_trains_nothing(nnrs, root, table2):
    out, _ = table2
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*")}
    command = ["paper", "table3", "--data", root, "--corpus", "mine", *SMALL, "--out", out, "--format", "csv"]
    done = nnrs(*command)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*")} == before
    lines = list(csv.DictReader(done.stdout.splitlines()))
    assert len(lines) == len(MODELS) * len(COLUMNS) * 2 * 2  # metrics, ways of predicting
    assert {line["metric"] for line in lines} == {"bleu4", "wmd"}
    told = [line for line in lines if line["our_test"]]  # a text of nothing but <eos> has no distance
    assert {line["decode"] for line in told} == {"sample", "teacher-forced"}
    assert all(line["signature"].startswith(f"{line['our_metric']}|") for line in told)
    assert "nan" not in done.stdout


def test_where_runs_fail_the_rest_of_the_table_is_printed_and_those_are_named(nnrs, root, table2, tmp_path):
    out = shutil.copytree(table2[0], tmp_path / "out")
    damaged = break_run(out, "SS-NNRS_gru_mine_seed-1")
    command = ["paper", "table2", "--data", root, "--corpus", "mine", *SMALL, "--out", out]
    plain = nnrs(*command)
    assert plain.returncode == 2
    assert "mine, teacher-forced." in plain.stdout
    missing = "is missing: SS-NNRS_gru_mine_seed-1 (failed)."
    assert missing in " ".join(plain.stdout.split())
    assert missing in (out / "report.html").read_text()
    assert damaged in plain.stderr
    for path in out.glob("runs/*/result.json"):
        break_run(out, path.parent.name)
    nothing, as_json = nnrs(*command), nnrs(*command, "--format", "json")
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert (as_json.returncode, json.loads(as_json.stdout)) == (2, [])


def test_a_table_is_printed_again_from_its_records_alone(nnrs, root, table2, tmp_path):
    out, printed = table2
    records = tmp_path / "records.jsonl.xz"
    assert nnrs("results", out, "--format", "jsonl", "--out", records).returncode == 0
    command = ["paper", "table2", "--data", root, "--corpus", "mine", *SMALL, "--records", records]
    done = nnrs(*command, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    count = len(MODELS) * len(COLUMNS)
    assert f"taken from records.jsonl.xz: {count} of {count} runs\n" in done.stderr
    assert done.stdout == printed


def test_a_dry_run_counts_the_runs_of_its_records_as_there(nnrs, root, table2, tmp_path):
    out, _ = table2
    records = tmp_path / "records.jsonl"
    assert nnrs("results", out, "--format", "jsonl", "--out", records).returncode == 0
    kept = records.read_text().splitlines(keepends=True)[1:]  # one of them is missing
    records.write_text("".join(kept))
    command = ["paper", "table2", "--data", root, "--corpus", "mine", *SMALL, "--out", tmp_path / "out"]
    done = nnrs(*command, "--records", records, "--dry-run", "--format", "json")
    assert done.returncode == 0, done.stderr
    states = {line["run"]: line["state"] for line in json.loads(done.stdout)}
    there = {name for name, state in states.items() if state == "in the records"}
    assert there == {json.loads(line)["name"] for line in kept}
    assert f"{len(states)} runs, 1 of them to be run, 1 epoch." in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_part_of_table_1_is_printed_and_goes_on_with_more_of_it_in_the_same_folder(nnrs, root, tmp_path):
    command = ["paper", "table1", "--data", root, "--corpus", "mine", *SMALL, "--format", "csv"]
    command += ["--schedules", "exponential", "--out", tmp_path / "out", "--rows"]
    first = nnrs(*command, "NNRS-1")
    assert first.returncode == 0, first.stderr
    [line] = csv.DictReader(first.stdout.splitlines())
    assert (line["configuration"], line["schedule"]) == ("NNRS-1", "exponential")
    result = tmp_path / "out" / "runs" / "NNRS-1_exponential_mine_seed-1" / "result.json"
    before = result.stat().st_mtime_ns
    more = nnrs(*command, "No Sampling,NNRS-1")
    assert more.returncode == 0, more.stderr
    names = [line["configuration"] for line in csv.DictReader(more.stdout.splitlines())]
    assert names == ["No Sampling"] * len(SCHEDULES) + [
        "NNRS-1"
    ]  # teacher forcing stands under each, as printed
    assert result.stat().st_mtime_ns == before


def test_mistakes_are_refused_before_anything_is_made(nnrs_each, root, tmp_path):
    commands = {
        "table": ["tabel1", "--data", root],
        "missing": ["table1", "--data", root, "--corpus", "mine,yours"],
        "both": ["table1", "--pilot", "--data", root],
        "rows": ["table1", "--pilot", "--rows", ","],
    }
    done = nnrs_each({name: ["paper", *words, "--out", tmp_path / name] for name, words in commands.items()})
    assert {item.returncode for item in done.values()} == {2}
    said = {name: item.stderr.strip().removeprefix("error: ") for name, item in done.items()}
    assert said["table"].startswith("unknown table 'tabel1'. Did you mean 'table1'?")
    assert "has no yours" in said["missing"]
    assert said["rows"].startswith("--rows names nothing: give at least one name")
    assert said["both"].startswith("give one of the two: --data, the folder of the texts, or --pilot")
    assert not any((tmp_path / name).exists() for name in commands)


@pytest.mark.slow
def test_the_pilot_of_table_1_is_whole_and_its_effective_rates_are_those_of_each_rows_schedule(
    nnrs, tmp_path
):
    out = tmp_path / "pilot"
    done = nnrs("paper", "table1", "--pilot", "--out", out, "--format", "json", seconds=3600)
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)
    assert {(line["configuration"], line["schedule"]) for line in lines} == {
        (row, schedule) for row in configurations() for schedule in SCHEDULES
    }
    results = [json.loads(path.read_text()) for path in out.glob("runs/*/result.json")]
    assert len(results) == 69
    rates = {
        result["name"]: (
            result["labels"]["method"],
            *((epoch["prediction_rate"], epoch["neighbor_rate"]) for epoch in result["epochs"]),
        )
        for result in results
    }
    assert len(set(rates.values())) == 68  # SS-NNRS-4 and SS-NNRS-5 are the same under static
    by_rates = {rates[result["name"]]: result["test_perplexity"] for result in results}
    assert len(set(by_rates.values())) == 68  # rows differ where their settings do
    assert all(by_rates[rates[result["name"]]] == result["test_perplexity"] for result in results)
    share = replaceable_share(out)
    for line in lines:
        check_rates(line, share)
    assert (out / "report.html").is_file()


def replaceable_share(out: Path) -> float:
    """Of the training text: all but the ends of lines and the words outside the vocabulary."""
    from nnrs.experiments.config import DataConfig
    from nnrs.experiments.text import Text

    config = json.loads(next(out.glob("runs/NNRS-1_static*/config.json")).read_text())["data"]
    text = Text.read(DataConfig(**config))
    counts, words = text.vocabulary.counts, text.vocabulary
    return 1 - (counts[words.eos_id] + counts[words.unk_id]) / sum(counts)


def check_rates(line: dict, share: float) -> None:
    """Effective = dose x share, less what Eq. 6's coin gives the other source; 0.005 allowed, 5 standard errors of
    360,000 draws and the first inputs, which have no prediction to take."""
    shape, at = line["schedule"], [progress(epoch, 4) for epoch in range(4)]
    epsilon = [Schedule(shape, line["eps_start"], line["eps_end"])(z) for z in at]
    gamma = [Schedule(shape, line["gamma_start"], line["gamma_end"])(z) for z in at]
    assert line["dose_prediction"] == pytest.approx(sum(epsilon) / 4)
    assert line["dose_neighbor"] == pytest.approx(sum(gamma) / 4)
    scored = slice(int(line["best_epoch"]) + 1)
    both = fmean(e * g for e, g in zip(epsilon[scored], gamma[scored], strict=True))
    predictions, neighbors = fmean(epsilon[scored]), fmean(gamma[scored])
    assert line["effective_neighbor"] == pytest.approx(share * (neighbors - both / 2), abs=0.005)
    assert line["effective_prediction"] == pytest.approx(predictions - share * both / 2, abs=0.005)
