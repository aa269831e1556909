"""`nnrs evaluate`: all metrics of several runs, text without a model, text of other programs, and refusals."""

import contextlib
import json
import os
import pty
import shutil
import statistics
import subprocess
import sys

import pytest

from nnrs.cli.evaluate import _note_differences, _print
from nnrs.experiments.subject import Request
from nnrs.metrics.score import Score

SHORT = ("--prefix", 2, "--length", 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("evaluated")


@pytest.fixture(scope="module")
def runs(nnrs, finished, text, tiny, folder):
    """A folder of two runs: a finished one, and one without neighbors and of another length."""
    shutil.copytree(finished, folder / "runs" / "both")
    out = folder / "runs" / "plain"
    options = f"--method mle --data {text} --epochs 1 --learning-rate 5 --out {out}".split()
    done = nnrs("train", *tiny, *options)
    assert done.returncode == 0, done.stderr
    return folder / "runs"


@pytest.fixture(scope="module")
def written(folder):
    """Text of some other program, and its references."""
    (folder / "made.txt").write_text("a b c d e\nthe end\n")
    (folder / "gold.txt").write_text("a b c d e\nan end\n")
    (folder / "short.txt").write_text("a b c d e\n")
    return folder


def records_of(path, name):
    return [json.loads(line) for line in (path / f"{name}.jsonl").read_text().splitlines()]


def test_all_metrics_of_several_runs_are_printed_kept_and_not_put_side_by_side_in_silence(nnrs, runs):
    done = nnrs("evaluate", runs, "--metrics", "all", "--split", "valid,test", *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)
    both, plain = (
        [score for score in scores if score["run"] == str(runs / name)] for name in ("both", "plain")
    )
    assert len(both) + len(plain) == len(scores)
    assert {score["signature"].split("|split:")[1].split("|")[0] for score in plain} == {"valid", "test"}
    names = {score["metric"] for score in both}
    assert {"ppl", "ppl-decile10", "ppl-own-noise50", "bleu4", "self-wmd", "excess-nats-h3", "rep-4"} <= names
    apart = {"wmd", "wmd-similarity", "wmd-scaled", "self-wmd"}
    apart |= {f"ppl-neighbor-noise{rate}" for rate in (10, 20, 30, 40, 50)} | {f"wmd-h{h}" for h in (1, 5, 8)}
    assert names - {score["metric"] for score in plain} == apart  # it has neither vectors nor a table
    for name, told in (("both", both), ("plain", plain)):
        kept = [{**score, "run": str(runs / name)} for score in records_of(runs / name, "scores")]
        assert [{key: value for key, value in score.items() if key != "model"} for score in kept] == told
    said = done.stderr.splitlines()
    assert f"{runs / 'plain'}: wmd left out, for the run has no word vectors (--vectors)" in said
    # A row for each split; those that one of the runs lacks have nothing beside them.
    rows, alone = 2 * len(names), 2 * len(apart)
    [line] = [line for line in said if "comparable" in line]
    assert line == (
        f"{rows - alone} of {rows} metrics are not comparable as they stand, the runs differ in epochs: 3, 1"
    )


def test_nothing_is_measured_where_one_of_the_runs_cannot_be(nnrs, runs, tmp_path):
    copied = shutil.copytree(runs, tmp_path / "runs")
    (copied / "both" / "scores.jsonl").unlink(missing_ok=True)
    done = nnrs("evaluate", copied / "both", copied / "plain", "--metrics", "wmd")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"error: {copied / 'plain'} is trained without word vectors, which wmd needs."
    )
    assert not (copied / "both" / "scores.jsonl").exists()


def scores_of(counts_by_metric):
    """For each metric the scores of two runs, which differ in their epochs and in how many sentences took part."""
    return [
        Score(metric, 1.0, f"n:{count}|split:test|epochs:{epochs}|seed:1")
        for metric, counts in counts_by_metric.items()
        for count, epochs in zip(counts, (3, 1), strict=True)
    ]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"ppl": (5, 5)}, "ppl (test) is not comparable as it stands, the runs differ in epochs: 3, 1"),
        (
            {"ppl": (5, 5), "wmd": (5, 4)},
            "ppl (test), wmd (test) are not comparable as they stand, the runs differ in epochs: 3, 1; "
            "n: 5, 4 (wmd (test))",
        ),
        (
            {"ppl": (5, 5), "bleu4": (5, 5), "wmd": (5, 4), "self-wmd": (5, 4), "rep-4": (5, 5)},
            "5 of 5 metrics are not comparable as they stand, the runs differ in epochs: 3, 1; "
            "n: 5, 4 (wmd (test), self-wmd (test))",
        ),
    ],
)
def test_all_that_is_not_comparable_is_said_in_one_line_with_its_reasons(counts, said, capsys):
    _note_differences(scores_of(counts))
    assert capsys.readouterr().err == f"{said}\n"


def test_nothing_is_said_of_scores_that_were_made_alike(capsys):
    _note_differences([score for score in scores_of({"ppl": (5, 5)}) if "|epochs:3|" in score.signature])
    assert capsys.readouterr().err == ""


def test_text_is_scored_where_the_model_is_not(nnrs_each, finished, folder):
    here, there = folder / "here", folder / "there"
    shutil.copytree(finished, here)
    ways = ["--decode", "sample", "--decode", "teacher-forced"]
    ask = ["--metrics", "bleu,self-bleu,wmd,self-wmd", *ways, *SHORT, "--sentences", 5]
    first = nnrs_each({"here": ["evaluate", here, *ask, "--json"]})["here"]
    assert first.returncode == 0, first.stderr
    shutil.copytree(here, there, ignore=shutil.ignore_patterns("best-*", "checkpoint-*", "scores.jsonl"))
    done = nnrs_each(
        {
            "there": ["evaluate", there, *ask, "--json"],
            "as text": ["evaluate", there, *ask],
            "ppl": ["evaluate", there, "--json"],  # from the losses that the run left
            "noise": ["evaluate", there, "--metrics", "noise"],
        }
    )
    assert done["there"].stdout == first.stdout
    scores = json.loads(first.stdout)
    assert [score["metric"] for score in scores if "decode:sample" in score["signature"]] == [
        *("bleu4", "corpus-bleu4", "self-bleu4", "wmd", "wmd-similarity", "wmd-scaled", "self-wmd")
    ]
    assert all(sum(f"|decode:{way}|" in score["signature"] for way in ways[1::2]) == 1 for score in scores)
    printed = done["as text"].stdout.splitlines()
    assert sum(line.startswith("│") for line in printed) == len(scores) > 3
    shared = printed[-1].removeprefix("signatures have in common: ")
    assert shared.startswith("n:5|len:8|prefix:2|split:test|data:")
    assert all(set(shared.split("|")) < set(score["signature"].split("|")) for score in scores)
    told = done["as text"].stderr.splitlines()
    assert told[-1] == "whole signatures: in scores.jsonl of each run, or with --json"
    row = next(line for line in printed if "bleu4 (test, teacher-forced)" in line)
    assert row.split()[-2] == "higher"
    summary = json.loads((there / "summary.json").read_text())
    assert json.loads(done["ppl"].stdout)["value"] == summary["test_perplexity"]
    assert done["noise"].returncode == 2
    assert "its model (best-*) is gone" in done["noise"].stderr


def test_text_of_another_program_is_scored_against_its_references(nnrs_each, written):
    files = ["--text", written / "made.txt", "--references", written / "gold.txt"]
    alone = ["evaluate", "--text", written / "made.txt", "--metrics", "self-bleu"]
    done = nnrs_each({"both": ["evaluate", *files, "--json"], "alone": alone})
    scores = {score["metric"]: score for score in json.loads(done["both"].stdout)}
    assert list(scores) == ["bleu4", "corpus-bleu4", "self-bleu4"]
    # "the end" for "an end": 1 of 2 words, none of the rest: (1/2 · 1/10 · 1/10 · 1/10)^¼ of 100.
    assert scores["bleu4"]["value"] == pytest.approx((100 + 100 * 0.0005**0.25) / 2)
    assert scores["self-bleu4"]["value"] == 0.0  # not a word in common
    assert done["both"].stderr == ""
    row = next(line for line in done["alone"].stdout.splitlines() if "self-bleu4" in line)
    assert row.split()[-2] == "lower"
    assert (
        done["alone"]
        .stdout.splitlines()[-1]
        .startswith("self-bleu4|n:2|smooth:1|within:batch2|text:made.txt|")
    )


def test_runs_that_differ_in_their_seed_alone_have_a_mean_and_a_spread(
    nnrs, nnrs_each, text, tiny, runs, folder
):
    options = f"--method mle --data {text} --epochs 1 --learning-rate 5 --seeds 1-3 --out {folder / 'seeds'}"
    done = nnrs("train", *tiny, *options.split())
    assert done.returncode == 0, done.stderr
    ask = ["evaluate", folder / "seeds", runs / "both", "--metrics", "perplexity,bleu", *SHORT]
    told = nnrs_each({"json": [*ask, "--json"], "table": ask})
    records = json.loads(told["json"].stdout)
    alone, means = records[:12], records[12:]
    assert [record["run"] for record in alone[::3]] == [
        *(str(folder / "seeds" / f"seed-{seed}") for seed in (1, 2, 3)),
        str(runs / "both"),
    ]
    assert [mean["metric"] for mean in means] == [
        "ppl",
        "bleu4",
        "corpus-bleu4",
    ]  # of the three, not of all four
    values = [record["value"] for record in alone[:9:3]]
    assert means[0]["value"] == pytest.approx(statistics.fmean(values))
    assert means[0]["sd"] == pytest.approx(statistics.stdev(values))
    assert means[0]["seeds"] == [1, 2, 3]
    assert "|seed:1,2,3|" in means[0]["signature"]
    [line] = [line for line in told["json"].stderr.splitlines() if "comparable" in line]
    assert line.startswith("ppl (test), bleu4 (test, sample), corpus-bleu4 (test, sample) are not comparable")
    assert line.endswith(", the runs differ in epochs: 1, 3")
    printed = told["table"].stdout.splitlines()
    row = next(line for line in printed if "mle mean of 3 seeds" in line and "ppl (test)" in line)
    shown = f"{means[0]['value']:.2f}", f"± {means[0]['sd']:.2f} (sd)"
    assert all(part in row for part in shown)
    assert "|policy:" not in printed[-1]  # in which they differ
    shutil.copytree(folder / "seeds" / "seed-1", folder / "seeds" / "seed-1-copy")
    *alone, mean = json.loads(nnrs("evaluate", folder / "seeds", "--json").stdout)
    assert len(alone) == 4
    assert mean == means[0]  # a copy counts once


def test_a_mean_that_is_not_there_because_runs_of_one_seed_differ_is_missed_aloud(capsys):
    signatures = [f"split:test|seed:{seed}" for seed in (1, 2, 1)]
    scores = [Score("ppl", 9.0 + place, signature) for place, signature in enumerate(signatures)]
    runs = [(f"run-{place}", score) for place, score in enumerate([*scores, Score("wmd", 1.0, "seed:1")])]
    _print(runs, json=True)
    assert capsys.readouterr().err == (
        "no mean over seeds of ppl (test): runs of one seed and one setting have several values\n"
    )
    _print([runs[0], runs[1], ("copy", scores[0])], json=True)
    assert capsys.readouterr().err == ""


def on_a_terminal(environment, stream, *words, columns=300):
    """What a terminal sees of one of a command's two streams, and what came on the other."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "nnrs", *map(str, words)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: theirs}
    wide = {**environment, "COLUMNS": str(columns), "TERM": "xterm"}
    process = subprocess.Popen(command, env=wide, text=True, **streams)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # which is how a terminal says that nobody writes to it any longer
        while part := os.read(ours, 4096):
            seen += part
    os.close(ours)
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    return seen.decode(), told if stream == "stdout" else printed


def test_a_terminal_sees_which_metric_of_which_run_is_under_way(environment, finished, folder):
    run = folder / "watched"
    shutil.copytree(finished, run)
    ask = ("evaluate", run, "--metrics", "perplexity,bleu", *SHORT)
    seen, _ = on_a_terminal(environment, "stderr", *ask)
    for step in ("perplexity (test)", "bleu (test)"):
        assert f"{run}: {step}" in seen


def test_few_scores_have_their_signatures_below_the_table_in_a_terminal_as_in_a_pipe(environment, runs, nnrs):
    seen, told = on_a_terminal(environment, "stdout", "evaluate", runs, columns=80)
    rows = [line for line in seen.splitlines() if "ppl (test)" in line]
    assert [row.split()[1] for row in rows] == ["both", "plain"]  # in one line each
    assert str(runs) in "".join(seen.split())  # the folder of both, said once
    assert "signatures" not in told
    piped = nnrs("evaluate", runs).stdout.splitlines()[-2:]
    assert all(line.startswith("ppl|split:test|") for line in piped)
    assert [line.rpartition(" = ")[2] for line in piped] == [row.split()[6] for row in rows]
    assert seen.splitlines()[-2:] == piped


def test_a_row_of_a_table_that_is_piped_stays_on_one_line(nnrs, finished, folder):
    far = folder / "-".join(["long"] * 20)
    for run in (far / "run", folder / "near" / "run"):
        shutil.copytree(finished, run)
    done = nnrs("evaluate", far, folder / "near")
    assert done.returncode == 0, done.stderr
    assert f"│ {far.name}/run │" in done.stdout


def test_no_terminal_sees_nothing_but_the_scores(nnrs, finished, folder):
    shutil.copytree(finished, folder / "unwatched")
    done = nnrs("evaluate", folder / "unwatched", "--metrics", "perplexity,bleu", *SHORT)
    assert (done.returncode, done.stderr) == (0, "")


def test_of_a_run_that_is_not_finished_it_is_said_that_it_is_not(nnrs, finished, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    for name in ("summary.json", "losses.safetensors"):  # what a run writes at its end
        (run / name).unlink()
    done = nnrs("evaluate", run)
    assert done.returncode == 0
    assert done.stderr == f"{run} is not finished: its best model so far is measured\n"
    last = done.stdout.splitlines()[-1]
    assert last.startswith("ppl|split:test|streams:1|unfinished:3|data:")  # after three epochs
    at_its_end = json.loads((finished / "summary.json").read_text())
    signature = at_its_end["signature"].replace("|data:", "|unfinished:3|data:")
    assert last == f"{signature} = {at_its_end['test_perplexity']:.2f}"  # it is the same model
    both = nnrs("evaluate", run, shutil.copytree(finished, tmp_path / "whole"))
    assert "the runs differ in unfinished: 3, none\n" in both.stderr
    for best in run.glob("best-*"):
        best.unlink()
    bare = nnrs("evaluate", run)  # as of a run that diverged in its first epoch
    assert bare.returncode == 2
    assert bare.stderr.endswith("or, if it diverged, begin another with a lower learning rate.\n")
    assert "is measured" not in bare.stderr


def test_errors_against_an_oracle_are_in_the_table_and_their_curve_in_the_file(nnrs_each, runs, folder):
    run, oracle = folder / "judged", runs / "both"
    shutil.copytree(runs / "plain", run)
    ask = ["evaluate", run, "--metrics", "exposure", *SHORT]
    done = nnrs_each({"with": [*ask, "--oracle", oracle], "without": [*ask, "--length", 9]})
    assert done["with"].returncode == 0, done["with"].stderr
    row = next(line for line in done["with"].stdout.splitlines() if "ex-acc-err-h8 (test, sample)" in line)
    assert row.split()[-2] == "lower"
    [stored] = [record for record in records_of(run, "scores") if record["metric"] == "ex-acc-err-h8"]
    assert "|oracle:both@" in stored["signature"]
    assert {len(values) for values in stored["curve"].values()} == {8}
    [line] = [line for line in done["without"].stderr.splitlines() if "accumulated errors" in line]
    assert line.endswith("(--oracle RUN)")
    assert "ex-acc-err" not in done["without"].stdout


REFUSED = {
    "metric": ("{run} --metrics blue", "unknown metric 'blue'", "Did you mean 'bleu'?"),
    "decoding": ("{run} --metrics bleu --decode bean", "unknown decoding 'bean'", "Did you mean 'beam'?"),
    "split": ("{run} --split test,vaild", "unknown split 'vaild'", "Did you mean 'valid'?"),
    "missing run": ("{run} {folder}/absent", "absent is not a run directory", "nnrs train"),
    "nothing": ("", "name run directories to evaluate, or a file with --text"),
    "both": ("{run} --text {folder}/made.txt", "one of the two"),
    "references alone": ("{run} --references {folder}/gold.txt", "--references belong to --text"),
    "oracle": ("{run} --metrics exposure --oracle {folder}/absent", "absent is not a run directory"),
    "oracle of text": ("--text {folder}/made.txt --oracle {run}", "--oracle is about runs"),
    "split of text": ("--text {folder}/made.txt --split valid", "--split is about runs"),
    "sentences of text": ("--text {folder}/made.txt --sentences 9", "--sentences is about runs"),
    "prefix of text": ("--text {folder}/made.txt --prefix 9", "--prefix is about runs"),
    "length of text": ("--text {folder}/made.txt --length 9", "--length is about runs"),
    "device of text": ("--text {folder}/made.txt --device cpu", "--device is about runs: leave it out"),
    "usual device of text": ("--text {folder}/made.txt --device auto", "--device is about runs"),
    "unknown device": ("{run} --device gpu", "unknown device 'gpu'"),
    "seed of text": ("--text {folder}/made.txt --seed 0", "--seed is about runs"),
    "vectors of text": (
        "--text {folder}/made.txt --vectors corpus",
        "cannot read vectors from corpus: No such file or directory. Name a file of vectors.",
    ),
    "no references": (
        "--text {folder}/made.txt --metrics bleu",
        "bleu compares with gold text",
        "add --references",
    ),
    "unequal": ("--text {folder}/made.txt --references {folder}/short.txt", "has 2 lines", "short.txt has 1"),
    "metric of text": (
        "--text {folder}/made.txt --metrics perplexity",
        "unknown metric of text 'perplexity'",
    ),
    "no window": (
        "{run} --metrics bleu --length 500",
        "holds no window of 10 + 500",
        "smaller prefix or length",
    ),
    "vectors": ("{run} --metrics wmd --vectors {folder}/absent.vec", "absent.vec"),
    "vectors of perplexity": (
        "{run} --metrics perplexity,bleu --vectors {folder}/absent.vec",
        "--vectors is about noise, wmd, self-wmd, exposure: leave it out, or ask for one of them with --metrics.",
    ),
    "decoding of perplexity": ("{run} --decode greedy", "--decode is about bleu, ", ": leave it out"),
    "length of perplexity": ("{run} --metrics deciles,noise --length 9", "--length is about bleu, "),
    "sentences of perplexity": ("{run} --metrics deciles --sentences 9", "--sentences is about bleu, "),
    "prefix of perplexity": ("{run} --metrics noise --prefix 9", "--prefix is about bleu, "),
    "seed of perplexity": ("{run} --seed 0", "--seed is about noise, bleu, "),
    "oracle of bleu": ("{run} --metrics bleu --oracle {run}", "--oracle is about exposure: leave it out"),
    "vectors of bleu": (
        "--text {folder}/made.txt --references {folder}/gold.txt --metrics bleu --vectors {folder}/absent.vec",
        "--vectors is about wmd, self-wmd: leave it out, or ask for one of them with --metrics.",
    ),
    "references of self-bleu": (
        "--text {folder}/made.txt --references {folder}/gold.txt --metrics self-bleu",
        "--references is about bleu, wmd: leave it out",
    ),
}


def test_of_text_all_is_scored_that_there_are_the_means_for(nnrs_each, written):
    (written / "a.vec").write_text("a 1 0\nend 0 1\n")
    made, short = ["evaluate", "--text", written / "made.txt"], ["evaluate", "--text", written / "short.txt"]
    done = nnrs_each(
        {
            "alone": [*made, "--json"],
            "with vectors": [*made, "--vectors", written / "a.vec", "--json"],
            "one line": [*short, "--references", written / "short.txt", "--metrics", "all", "--json"],
            "one line alone": [*short, "--json"],
            "as text": [*made, "--vectors", written / "a.vec", "--references", written / "gold.txt"],
        }
    )
    assert done["as text"].stderr == "whole signatures: with --json\n"
    assert json.loads(done["alone"].stdout)["metric"] == "self-bleu4"
    assert [one["metric"] for one in json.loads(done["with vectors"].stdout)] == ["self-bleu4", "self-wmd"]
    assert [one["metric"] for one in json.loads(done["one line"].stdout)] == ["bleu4", "corpus-bleu4"]
    why = "self-bleu compares sentences with each other and needs at least 2, got 1."
    assert done["one line"].stderr.splitlines() == [
        "left out: wmd, self-wmd (bleu and wmd need --references, wmd and self-wmd --vectors and the package POT)",
        f"{written / 'short.txt'}: self-bleu left out, for {why}",
    ]
    assert done["one line alone"].returncode == 2
    assert done["one line alone"].stderr.splitlines()[-1].startswith("error: ")
    assert "none of the metrics can be computed: self-bleu" in done["one line alone"].stderr


def test_its_help_names_what_is_taken_where_nothing_is_given(nnrs):
    told = " ".join(nnrs("evaluate", "--help").stdout.split())
    options = {words.split()[0]: words for words in told.split(" --")[1:]}
    usual = Request()
    for name in ("sentences", "prefix", "length", "seed"):
        assert options[name].endswith(f"[default: {getattr(usual, name)}]"), options[name]
    for name, values in (("metrics", usual.metrics), ("split", usual.splits), ("decode", usual.decodings)):
        assert f"{values[0]} (default)" in options[name], options[name]
    assert options["device"].endswith("[default: auto]")


def test_a_comma_too_many_names_nothing(nnrs, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    done = nnrs("evaluate", tmp_path / "run", "--metrics", "perplexity,", "--json")
    assert json.loads(done.stdout)["metric"] == "ppl", done.stderr


@pytest.fixture(scope="module")
def refusals(nnrs_each, finished, written):
    shutil.copytree(finished, written / "refused")
    run = written / "refused"
    commands = {case: words.format(run=run, folder=written).split() for case, (words, *_) in REFUSED.items()}
    return nnrs_each({case: ["evaluate", *words] for case, words in commands.items()})


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_evaluated_is_refused_in_one_line(case, refusals):
    done = refusals[case]
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert [part for part in REFUSED[case][1:] if part not in line] == []
