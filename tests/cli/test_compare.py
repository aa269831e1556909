"""`nnrs compare` as a user runs it: from a text file to words, a table and a page."""

import json
import shutil
import subprocess
from html import escape
from pathlib import Path

import pytest
from tests.cli.grids import break_run

from nnrs.cli.many import repeating

OPTIONS = "--epochs 2 --learning-rate 5 --methods mle,nnrs,ss --seeds 1-2 --neighbor-rate 0:0.3 --jobs 2"
SMALL = OPTIONS.split()


@pytest.fixture(scope="module")
def compared(nnrs, text, tiny, tmp_path_factory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    out = tmp_path_factory.mktemp("compare") / "out"
    done = nnrs("compare", "--data", text, *tiny, *SMALL, "--out", out)
    assert done.returncode == 0, done.stderr
    return out, done


def test_it_ends_with_words_a_table_and_a_page(compared):
    out, done = compared
    words = [line for line in done.stdout.splitlines() if line.startswith("- ")]
    assert any(line.startswith("- Two seeds cannot tell nnrs from mle: ") for line in words)
    assert any("With 2 seeds the exact test cannot give a p below 0.5" in line for line in words)
    assert "nnrs − mle" in done.stdout
    assert "ss − mle" in done.stdout
    assert (out / "report.html").is_file()
    assert str(out / "report.html") in done.stderr
    assert (out / "runs" / "nnrs_seed-2" / "result.json").is_file()


def test_what_so_few_seeds_can_show_is_said_before_the_work_begins(compared):
    _, done = compared
    said = done.stderr.index("from 7 seeds on one can")
    assert said < done.stderr.index("runs done")


@pytest.mark.parametrize("more", [[], ["--dry-run"]], ids=["run", "dry run"])
def test_what_is_refused_is_refused_in_one_line_without_remarks(
    nnrs_each, text, tiny, compared, more, tmp_path
):
    out, _ = compared
    records = tmp_path / "records.jsonl"
    assert nnrs_each({"": ["results", out, "--format", "jsonl", "--out", records]})[""].returncode == 0
    command = ["compare", "--data", text, *tiny, *SMALL, *more]
    done = nnrs_each(
        {
            "another plan": [*command, "--epochs", 3, "--out", out],
            "records": [*command, "--units", 17, "--records", records, "--out", tmp_path / "out"],
        }
    )
    for item in done.values():
        assert (item.returncode, item.stdout, item.stderr.count("\n")) == (2, "", 1), item.stderr
    assert done["another plan"].stderr.startswith(
        f"error: {out} holds another plan, whose mle_seed-1 differs"
    )
    assert done["records"].stderr.startswith(f"error: {records}: no record is a run of this plan.")


def test_the_same_command_again_trains_nothing_and_says_the_same_as_json(nnrs, text, tiny, compared):
    out, _ = compared
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*.json")}
    done = nnrs("compare", "--data", text, *tiny, *SMALL, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*.json")} == before
    record = json.loads(done.stdout)
    assert record["failed"] == []
    assert [(item["ours"], item["theirs"]) for item in record["contrasts"]] == [
        ("nnrs", "mle"),
        ("ss", "mle"),
    ]
    by_seed = {
        method: [
            json.loads((out / "runs" / f"{method}_seed-{seed}" / "result.json").read_text())["test_nats"]
            for seed in (1, 2)
        ]
        for method in ("mle", "nnrs")
    }
    mean = sum(by_seed["nnrs"]) / 2 - sum(by_seed["mle"]) / 2
    assert record["contrasts"][0]["mean"] == pytest.approx(mean, abs=1e-12)
    assert {item["metric"].split("|")[0] for item in record["others"]} >= {"bleu4", "self-bleu4"}


def test_where_runs_fail_the_others_are_compared_and_those_are_named(nnrs, text, tiny, compared, tmp_path):
    out = shutil.copytree(compared[0], tmp_path / "out")
    break_run(out, "nnrs_seed-1")
    command = ["compare", "--data", text, *tiny, *SMALL, "--out", out]
    plain = nnrs(*command)
    assert plain.returncode == 2
    missing = "1 of 6 runs of the plan 'mle, nnrs and ss on small' is missing: nnrs_seed-1 (failed)."
    assert f"- {missing}\n" in plain.stdout
    assert "- One seed cannot tell nnrs from mle: " in plain.stdout
    assert "- Two seeds cannot tell ss from mle: " in plain.stdout
    assert "│ ss − mle" in plain.stdout
    assert escape(missing) in (out / "report.html").read_text()
    told = [line for line in plain.stderr.splitlines() if line.startswith("error: ")]
    assert [line.split(": ")[1] for line in told] == ["nnrs_seed-1"]
    for path in out.glob("runs/*_seed-*"):
        if path.name not in ("mle_seed-2", "nnrs_seed-1"):
            break_run(out, path.name)
    alone = nnrs(*command)
    assert alone.returncode == 2
    assert "- There is nothing to compare yet among the runs that are finished.\n" in alone.stdout
    assert "contrast" not in alone.stdout  # no table without a line
    break_run(out, "mle_seed-2")
    nothing, as_json = nnrs(*command), nnrs(*command, "--json")
    assert (nothing.returncode, nothing.stdout, as_json.returncode) == (2, "", 2)
    failed = json.loads(as_json.stdout)["failed"]
    assert sorted(item["name"] for item in failed) == sorted(path.name for path in out.glob("runs/*"))
    assert told == [
        f"error: {item['name']}: {item['error']}" for item in failed if "nnrs_seed-1" in item["name"]
    ]


def test_records_of_all_its_runs_are_enough_for_the_same_words(nnrs, text, tiny, compared, tmp_path):
    out, first = compared
    records = tmp_path / "records.jsonl"
    assert nnrs("results", out, "--format", "jsonl", "--out", records).returncode == 0
    command = ["compare", "--data", text, *tiny, *SMALL, "--out", tmp_path / "out", "--records", records]
    done = nnrs(*command)
    assert done.returncode == 0, done.stderr
    assert "taken from records.jsonl: 6 of 6 runs\n" in done.stderr
    assert done.stdout == first.stdout
    assert not list((tmp_path / "out").glob("runs/*/config.json"))
    assert (tmp_path / "out" / "report.html").is_file()


def test_distances_are_measured_with_the_same_vectors_also_for_methods_without(compared):
    out, _ = compared
    vectors = {}
    for method in ("mle", "nnrs"):
        record = json.loads((out / "runs" / f"{method}_seed-1" / "result.json").read_text())
        signatures = [score["signature"] for score in record["scores"] if score["metric"] == "wmd-h1"]
        vectors[method] = [part for line in signatures for part in line.split("|") if "wmd-vectors" in part]
    assert vectors["mle"] == vectors["nnrs"]
    assert len(vectors["mle"]) == 1


def test_a_rate_reaches_the_methods_that_have_it(compared):
    out, _ = compared
    policies = {
        method: json.loads((out / "runs" / f"{method}_seed-1" / "config.json").read_text())["policy"]
        for method in ("mle", "nnrs", "ss")
    }
    assert policies["nnrs"]["neighbor_rate"]["end"] == 0.3
    assert policies["mle"]["neighbor_rate"] is policies["ss"]["neighbor_rate"] is None
    assert policies["ss"]["prediction_rate"]["end"] == 0.2


def test_the_stored_command_names_no_folder_of_this_machine(compared):
    out, _ = compared
    command = json.loads((out / "plan.json").read_text())["command"]
    assert command.startswith("nnrs compare --data small.txt ")
    assert str(out.parent) not in command


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--data", "/data/texts/my.txt"], ["--data", "my.txt"]),
        (["--data=/data/texts/my.txt"], ["--data=my.txt"]),
        (["--data", "../me/texts/my.txt"], ["--data", "my.txt"]),
        (["--vectors=me/glove.txt", "--epochs=3"], ["--vectors=glove.txt", "--epochs=3"]),
        (["--out", "me/results/"], ["--out", "results"]),
        (["--ray", "ray://head:10001", "--neighbor-rate", "0:0.2"],) * 2,
    ],
)
def test_a_command_is_kept_without_folders_however_they_were_written(words, kept):
    assert repeating(words) == kept


def test_what_cannot_be_compared_is_refused_before_anything_is_made(nnrs_each, text, tmp_path):
    commands = {
        "one": ["--methods", "mle"],
        "k": ["--methods", "mle,ss", "--k", "5"],
        "rule": ["--methods", "mle,ss", "--rule", "prose"],
        "another rule": ["--methods", "mle,tprs", "--rule", "prose"],
        "no rule": ["--methods", "nnrs,tprs", "--rule", "pros"],
        "transition-row": ["--methods", "mle,ss,nnrs", "--transition-row", "own"],
        "metric": ["--metrics", "bleus"],
        "oracle": ["--oracle", tmp_path / "nowhere"],
        "jobs": ["--ray", "auto", "--jobs", 2],
        "fleet": ["--ray", "auto", "--fleet", 2],
    }
    done = nnrs_each(
        {
            name: ["compare", "--data", text, "--out", tmp_path / name, *words]
            for name, words in commands.items()
        }
    )
    assert {item.returncode for item in done.values()} == {2}
    said = {name: item.stderr.strip() for name, item in done.items()}
    assert (
        said["one"]
        == "error: a comparison needs two different methods or more, with commas between them: --methods mle,nnrs."
    )
    using = "leave it out, or add one of nnrs, tprs, ss-nnrs, gsns, shuffled to --methods."
    assert said["k"] == f"error: mle, ss have no use for --k: {using}"
    using = "leave it out, or add one of nnrs, ss-nnrs, shuffled to --methods."
    assert said["rule"] == f"error: mle, ss have no use for --rule prose: {using}"
    assert said["another rule"] == f"error: mle, tprs have no use for --rule prose: {using}"
    assert said["no rule"].startswith("error: unknown temperature rule 'pros'. Did you mean 'prose'?")
    assert said["transition-row"].startswith(
        "error: mle, ss, nnrs have no use for --transition-row: leave it out"
    )
    assert said["metric"].startswith("error: unknown metric 'bleus'. Did you mean 'bleu'?")
    assert "nowhere is not a run directory" in said["oracle"]
    for name in ("jobs", "fleet"):
        assert said[name].endswith(f"error: --{name} is about this machine: leave it out with --ray.")
    assert not any((tmp_path / name).exists() for name in commands)


def test_the_runs_of_its_folder_can_be_measured_by_its_name(nnrs_each, compared):
    out, _ = compared
    words = {"grid": [out], "runs": [out / "runs"], "nothing": [out, "--metrics", ""]}
    told = nnrs_each({name: ["evaluate", *these, "--json"] for name, these in words.items()})
    assert told["grid"].returncode == 0, told["grid"].stderr
    assert json.loads(told["grid"].stdout)[0]["run"] == str(out / "runs" / "mle_seed-1")
    assert told["grid"].stdout == told["runs"].stdout
    assert (told["nothing"].returncode, told["nothing"].stdout) == (2, "")
    assert told["nothing"].stderr.startswith("error: --metrics names nothing: give at least one name")


def test_a_text_too_short_to_continue_is_compared_by_perplexity_alone(nnrs, tiny, tmp_path):
    text = tmp_path / "short.txt"
    text.write_text("a b c d e f\n" * 60)  # a test split of 3 lines: 21 tokens, less than a window of 45
    out = tmp_path / "out"
    options = ["--methods", "mle,ss", "--seeds", 1, "--epochs", 1, "--learning-rate", 1, "--jobs", 1]
    done = nnrs("compare", "--data", text, *tiny, *options, "--out", out)
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "runs" / "ss_seed-1" / "result.json").read_text())
    assert {score["metric"] for score in result["scores"]} == {"ppl"}
    assert "One seed decides nothing" in done.stdout
