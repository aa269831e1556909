"""`nnrs train --seeds`: a run directory for each seed, one table for all of them."""

import json
import re
import shutil
import statistics

import pytest
from tests.saved_runs import reconfigure

from nnrs.cli.progress import ProgressBar
from nnrs.training.events import Beat, EpochMetrics, EpochStart, EpochTiming


@pytest.fixture(scope="module")
def options(text, tiny):
    return ["train", *tiny, "--data", text, "--epochs", 2, "--learning-rate", 5]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("seeds")


@pytest.fixture(scope="module")
def done(nnrs_each, options, folder):
    """Three seeds, then what each command makes of them; all of them succeed."""
    made = nnrs_each({"train": [*options, "--seeds", "1-2,10", "--out", folder / "runs", "--tensorboard"]})
    made |= nnrs_each(
        {
            "again": ["train", "--out", folder / "runs", "--resume", "--json"],
            "evaluate": ["evaluate", folder / "runs" / "seed-10", "--json"],
            "one": [*options, "--seeds", "5", "--out", folder / "one", "--json"],
        }
    )
    for name, outcome in made.items():
        assert outcome.returncode == 0, f"{name}: {outcome.stderr}"
        assert "Warning" not in outcome.stderr, f"{name}: {outcome.stderr}"
    return made


@pytest.fixture(scope="module")
def summaries(done, folder):
    runs = [folder / "runs" / f"seed-{seed}" for seed in (1, 2, 10)]
    return [json.loads((run / "summary.json").read_text()) for run in runs]


def test_seeds_end_in_one_table(done, folder, summaries):
    table = [re.findall(r"[\w.-]+", line) for line in done["train"].stdout.splitlines()]
    rows = {row[0]: row[1:] for row in table if row}
    for name, summary in zip(("seed-1", "seed-2", "seed-10"), summaries, strict=True):
        assert rows[name] == [
            f"{summary['valid_perplexity']:.2f}",
            f"{summary['test_perplexity']:.2f}",
            str(summary["best_epoch"]),
        ]
    scores = [[summary[name] for summary in summaries] for name in ("valid_perplexity", "test_perplexity")]
    assert rows["mean"] == [f"{sum(values) / 3:.2f}" for values in scores]
    deviations = [(sum((value - sum(values) / 3) ** 2 for value in values) / 2) ** 0.5 for values in scores]
    assert rows["sd"] == [f"{deviation:.2f}" for deviation in deviations]
    assert f"run directories in {folder / 'runs'}" in done["train"].stderr


def test_the_same_comes_as_json_and_from_finished_runs(done, summaries):
    printed = json.loads(done["again"].stdout)
    assert printed["runs"] == summaries
    values = [summary["test_perplexity"] for summary in summaries]
    assert printed["mean"]["test_perplexity"] == statistics.mean(values)
    assert printed["sd"]["test_perplexity"] == statistics.stdev(values)
    assert set(printed["sd"]) == {"valid_perplexity", "test_perplexity"}
    assert "these runs are finished; their scores:" in done["again"].stderr


def test_each_seed_tells_of_its_epochs_by_name(done):
    told = done["train"].stderr.splitlines()
    assert [line.split()[0] for line in told if re.match(r"seed-\d+  epoch ", line)] == [
        *["seed-1"] * 2,
        *["seed-2"] * 2,
        *["seed-10"] * 2,
    ]
    assert sum(line.startswith("text: ") for line in told) == 1
    assert any("3 runs one after the other, about " in line for line in told)


def test_each_seed_is_a_run_of_its_own(done, folder, summaries):
    assert json.loads(done["evaluate"].stdout)["value"] == summaries[2]["test_perplexity"]
    for seed in (1, 2, 10):
        run = folder / "runs" / f"seed-{seed}"
        assert json.loads((run / "config.json").read_text())["seed"] == seed
        assert f"|seed:{seed}|" in json.loads((run / "summary.json").read_text())["signature"]
        assert len(list((run / "tensorboard").iterdir())) == 1
    assert not (folder / "runs" / "tensorboard").exists()
    assert len({summary["test_perplexity"] for summary in summaries}) == 3


def test_a_single_seed_has_its_folder_and_no_mean(done, folder):
    printed = json.loads(done["one"].stdout)
    assert printed["runs"] == [json.loads((folder / "one" / "seed-5" / "summary.json").read_text())]
    assert printed["mean"] is printed["sd"] is None
    assert [path.name for path in (folder / "one").iterdir()] == ["seed-5"]


def test_a_mean_is_of_one_configuration_and_counts_a_copy_once(done, nnrs, options, folder, summaries):
    runs = shutil.copytree(folder / "runs", folder / "more")
    shutil.copytree(runs / "seed-1", runs / "seed-1-copy")
    again = nnrs("train", "--out", runs, "--resume", "--json")
    printed, values = json.loads(again.stdout), [summary["test_perplexity"] for summary in summaries]
    assert len(printed["runs"]) == 4
    assert printed["mean"]["test_perplexity"] == pytest.approx(statistics.mean(values))
    assert printed["sd"]["test_perplexity"] == pytest.approx(statistics.stdev(values))
    assert (
        "seed-1-copy has the configuration and the seed of seed-1, which alone a mean counts" in again.stderr
    )
    summary = json.loads((runs / "seed-2" / "summary.json").read_text())
    later = {**summary, "signature": summary["signature"].replace("|v:", "|v:9.")}
    (runs / "seed-2" / "summary.json").write_text(json.dumps(later))  # as if another version had finished it
    again = nnrs("train", "--out", runs, "--resume")
    assert "no mean: the runs have 2 configurations (their first runs: seed-1, seed-2)." in again.stderr
    (runs / "seed-2" / "summary.json").write_text(json.dumps(summary))
    longer = nnrs(*options, "--epochs", 3, "--seed", 3, "--out", runs / "seed-3")
    assert longer.returncode == 0, longer.stderr
    again = nnrs("train", "--out", runs, "--resume")
    assert "seed-3" in again.stdout
    assert "mean" not in again.stdout
    assert (
        "no mean: the runs have 2 configurations (their first runs: seed-1, seed-3). "
        f"A mean of each: nnrs results {runs} --format md\n" in again.stderr
    )


def test_the_command_that_is_told_for_a_seed_more_makes_it_one_of_them(done, nnrs, folder):
    runs = shutil.copytree(folder / "runs", folder / "grown")
    refused = nnrs("train", "--out", runs, "--resume", "--seeds", "1-3,10")
    assert refused.returncode == 2
    command = refused.stderr.strip().removesuffix(".").partition(": nnrs ")[2]
    made = nnrs(*command.replace("seed-N", "seed-3").replace("--seed N", "--seed 3").split())
    assert made.returncode == 0, made.stderr
    again = nnrs("train", "--out", runs, "--resume", "--json")
    printed = json.loads(again.stdout)
    assert re.findall(r"\|seed:(\d+)\|", json.dumps(printed["runs"])) == ["1", "2", "3", "10"]
    assert printed["mean"]  # they are of one configuration


def test_seeds_that_diverge_are_named_after_the_table_of_the_others(nnrs, options, tmp_path):
    # All seeds diverge at this rate, so one of them is given another before they go on.
    out = tmp_path / "runs"
    done = nnrs(
        *options, "--method", "mle", "--bptt", 1000, "--learning-rate", 1e30, "--seeds", "1-3", "--out", out
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(
        "error: seed-1, seed-2, seed-3: the validation perplexity is no longer finite in epoch 0"
    )
    assert "Traceback" not in done.stderr
    reconfigure(out / "seed-2", lambda config: config["optimizer"].update(learning_rate=5.0))
    done = nnrs("train", "--out", out, "--resume")
    assert done.returncode == 2
    assert "seed-2" in done.stdout
    assert "seed-1" not in done.stdout
    assert "mean" not in done.stdout  # of one run
    assert done.stderr.splitlines()[-1].startswith("error: seed-1, seed-3: the validation perplexity")


# What a fleet shows. Its members open, beat and end their epochs in step.


def opened(epoch):
    return EpochStart(
        epoch=epoch,
        num_epochs=3,
        num_windows=40,
        window=0,
        prediction_rate=0.1,
        neighbor_rate=0.2,
        temperature=0.5,
    )


def ended(epoch, valid):
    metrics = EpochMetrics(
        epoch=epoch,
        train_perplexity=valid + 10.0,
        valid_perplexity=valid,
        prediction_rate=0.1,
        neighbor_rate=0.2,
        effective_rate=0.25,
        effective_prediction_rate=0.1,
        effective_neighbor_rate=0.15,
        temperature=0.5,
        effective_neighbors=None,
        learning_rate=1.0,
        passes=1.0,
    )
    timing = EpochTiming(epoch=epoch, train_seconds=1.0, valid_seconds=0.1, tokens_per_second=1000.0)
    return metrics, timing


def beat(epoch, perplexity):
    return Beat(epoch=epoch, window=20, perplexity=perplexity, tokens_per_second=1000.0)


def test_a_fleet_has_one_line_an_epoch_with_means_and_the_range(capsys):
    with ProgressBar() as bar:
        members = [bar.of(name) for name in ("seed-1", "seed-2", "seed-3")]
        for epoch, values in enumerate([(100.0, 90.0, 110.0), (80.0, 85.0)]):  # the third diverges
            for member in members:
                member.epoch_start(opened(epoch))
            for member in members:
                member.batch_end(beat(epoch, 120.0))
            for member, valid in zip(members, values, strict=False):
                member.epoch_end(*ended(epoch, valid))
        for member in members[:2]:
            member.fit_end(2)
    assert capsys.readouterr().err.splitlines() == [
        "epoch   0  3 runs  train   110.00  valid   100.00 (90.00-110.00)  ε 0.100  γ 0.200  replaced 0.250  "
        "τ 0.500  3,000 tokens/s",
        "epoch   1  2 runs  train    92.50  valid    82.50 (80.00-85.00)  ε 0.100  γ 0.200  replaced 0.250  "
        "τ 0.500  2,000 tokens/s",
    ]


def test_runs_one_after_the_other_have_a_line_each(capsys):
    with ProgressBar() as bar:
        for name in ("seed-1", "seed-2"):
            member = bar.of(name)
            for epoch in range(2):
                member.epoch_start(opened(epoch))
                member.batch_end(beat(epoch, 120.0))
                member.epoch_end(*ended(epoch, 100.0))
            member.fit_end(2)
        alone = ProgressBar()
        alone.epoch_start(opened(0))
        alone.epoch_end(*ended(0, 50.0))
        alone.fit_end(1)
    told = capsys.readouterr().err.splitlines()
    assert [line.partition("train")[0].split() for line in told] == [
        ["seed-1", "epoch", "0"],
        ["seed-1", "epoch", "1"],
        ["seed-2", "epoch", "0"],
        ["seed-2", "epoch", "1"],
        ["epoch", "0"],
    ]


def test_the_bar_follows_the_first_run_that_beats():
    with ProgressBar() as bar:
        first, second = bar.of("seed-1"), bar.of("seed-2")

        def shown():
            [task] = bar._shown.progress.tasks
            return task.description, task.completed, task.total, task.fields["perplexity"]

        for member in (first, second):
            member.epoch_start(opened(1))
        assert shown() == ("seed-1 epoch 1/2", 40, 120, "-")
        first.batch_end(beat(1, 120.0))
        second.batch_end(beat(1, 99.0))
        assert shown() == ("seed-1 epoch 1/2", 60, 120, "120.0")
        second.epoch_start(opened(0))  # the first diverged, and another one begins
        assert shown() == ("seed-2 epoch 0/2", 0, 120, "-")
        second.batch_end(beat(0, 99.0))
        assert shown() == ("seed-2 epoch 0/2", 20, 120, "99.0")
