"""The commands do what they say: results on standard output, the same as JSON, progress on standard error."""

import json
import math
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from tests.cli.grids import break_run

import nnrs as library
from nnrs.cli.demo import demo_plan, free_folder
from nnrs.evaluation.generate import Decoding, generate
from nnrs.experiments.config import DataConfig
from nnrs.experiments.prepare import SPECIAL
from nnrs.experiments.text import Text
from nnrs.grid_directory import GridDirectory
from nnrs.neighbors.table import NeighborTable
from nnrs.run_directory import RunDirectory
from nnrs.schedules import Schedule, progress

CONFIG = """
seed = 5
[data]
source = "{text}"
max_vocabulary = 100
[vectors]
source = "{vectors}"
protect = ["{word}"]
initialise = true
[policy]
method = "nnrs"
k = 4
neighbor_rate = {{shape = "static", end = 0.5}}
[model]
kind = "gru"
preset = "tiny"
units = 12
[training]
epochs = 7
batch_size = 8
bptt = 10
"""


@pytest.fixture(scope="module")
def other_text(text, tmp_path_factory):
    """The same sentences in another order, some with words of their own."""
    lines = sorted(text.read_text().splitlines())
    lines[::5] = [f"{line} surprise" for line in lines[::5]]
    path = tmp_path_factory.mktemp("other") / "other.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def most_frequent(text):
    return Counter(text.read_text().split()).most_common(1)[0][0]


@pytest.fixture(scope="module")
def config_file(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("config")
    rows = [f"w{n:03d} {math.cos(n):.4f} {math.sin(n):.4f} {math.cos(2 * n):.4f}" for n in range(140)]
    (folder / "made.vec").write_text("\n".join(rows) + "\n")
    values = {"text": text, "vectors": folder / "made.vec", "word": most_frequent(text)}
    (folder / "config.toml").write_text(CONFIG.format(**values))
    return folder / "config.toml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def done(nnrs_each, finished, text, other_text, config_file, folder):
    """What each command printed; all of them succeed."""
    evaluated = shutil.copytree(finished, folder / "evaluated")  # for its scores are kept there
    speak = ["generate", finished, "--count", 3, "--length", 12, "--prompt", "w001 Zebra w002"]
    near = ["neighbors", "--data", text, "--k", 5, "--temperature", 0.25, "w010", "w020", "<eos>"]
    demonstrate = ["demo", "--epochs", 1, "--data", folder / "short.txt", "--out", folder / "short"]
    commands = {
        "evaluate": ["evaluate", evaluated, "--json"],
        "evaluate as text": ["evaluate", evaluated, "--split", "valid"],
        "evaluate other": ["evaluate", evaluated, "--data", other_text, "--json"],
        "generate": [*speak, "--seed", 1, "--json"],
        "generate as text": [*speak, "--seed", 1],
        "generate greedily": [*speak, "--count", 1, "--temperature", 0, "--json"],
        "generate by beam": [*speak, "--count", 1, "--beam", 3, "--json"],
        "neighbors": [*near, "--json"],
        "neighbors as text": near,
        "neighbors of some": [*near, "w0110", "Zebra", "--json"],
        "configured": ["train", "--config", config_file, "--epochs", 2, "--out", folder / "configured"],
        "again": ["train", "--config", finished / "config.json", "--out", folder / "again", "--json"],
        "demo as text": demonstrate,
    }
    (folder / "short.txt").write_text("".join(text.read_text().splitlines(keepends=True)[:200]))
    outcomes = nnrs_each(commands) | nnrs_each(
        {"demo": [*demonstrate, "--json"]}
    )  # which trains nothing anew
    for name, outcome in outcomes.items():
        assert outcome.returncode == 0, f"{name}: {outcome.stderr}"
        assert "Warning" not in outcome.stderr, f"{name}: {outcome.stderr}"
    return outcomes


@pytest.fixture(scope="module")
def loaded(finished):
    return library.load(finished)


def test_train_prints_one_json_document_and_tells_of_its_progress_elsewhere(finished):
    printed = (finished.parent / "stdout.json").read_text()
    summary = json.loads(printed)  # fails where anything else was printed
    assert summary == json.loads((finished / "summary.json").read_text())
    assert set(summary) == {"valid_perplexity", "test_perplexity", "best_epoch", "signature"}
    told = (finished.parent / "stderr.txt").read_text().splitlines()
    assert told[0] == "text: small, train 3,240, valid 180, test 180 tokens, vocabulary 152"
    assert sum(line.startswith("epoch ") for line in told) == 3


def test_every_epoch_is_a_line_of_the_records(finished):
    metrics = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in metrics] == [0, 1, 2]
    schedule = Schedule("exponential", 0.0, 0.2)
    assert [line["neighbor_rate"] for line in metrics] == [schedule(z) for z in (0.0, 0.5, 1.0)]
    assert metrics[0]["effective_rate"] == 0.0  # nothing is replaced at rate 0
    wanted = {"train_perplexity", "valid_perplexity", "prediction_rate", "effective_rate", "temperature"}
    assert wanted | {"effective_neighbors"} <= set(metrics[0])
    timings = [json.loads(line) for line in (finished / "timing.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in timings] == [0, 1, 2]


def test_evaluate_repeats_the_figure_of_the_summary(done, finished):
    summary = json.loads((finished / "summary.json").read_text())
    score = json.loads(done["evaluate"].stdout)
    low, high = score.pop("interval")
    assert low < score["value"] < high
    named = {"metric": "ppl", "value": summary["test_perplexity"], "signature": summary["signature"]}
    assert score == {**named, "better": "lower"}
    plain = done["evaluate as text"].stdout
    signature = summary["signature"].replace("split:test", "split:valid")
    assert plain.splitlines()[-1] == f"{signature} = {summary['valid_perplexity']:.2f}"
    assert done["evaluate as text"].stderr == ""


def test_evaluate_reads_another_text_with_the_runs_vocabulary(done, loaded, other_text):
    score = json.loads(done["evaluate other"].stdout)
    assert score["signature"].startswith("ppl|on:other|split:test|")
    # By hand: `<eos>` first, words of its own read as `<unk>`, the mean over all tokens that follow.
    lines = other_text.read_text().splitlines()[380:]
    ids = [loaded.vocabulary.eos_id]
    for line in lines:
        ids += [*loaded.vocabulary.encode(line.split()), loaded.vocabulary.eos_id]
    assert loaded.vocabulary.unk_id in ids
    with torch.no_grad():
        logits, _ = loaded.model(torch.tensor([ids[:-1]]))
    table = torch.log_softmax(logits[0].double(), -1).tolist()
    nats = [-row[target] for row, target in zip(table, ids[1:], strict=True)]
    assert math.exp(sum(nats) / len(nats)) == pytest.approx(score["value"], rel=1e-5)


def test_generate_repeats_itself_for_a_seed_and_only_for_it(done, loaded):
    first = json.loads(done["generate"].stdout)
    assert first["prompt"] == "w001 zebra w002"
    assert [len(line.split()) for line in first["continuations"]] == [12, 12, 12]
    assert len(set(first["continuations"])) == 3
    assert done["generate as text"].stdout.splitlines() == [
        f"w001 zebra w002 {line}" for line in first["continuations"]
    ]
    words = loaded.vocabulary
    prompt = torch.tensor([words.eos_id, *words.encode(["w001", "zebra", "w002"])])
    for seed, same in ((1, True), (2, False)):
        prompts = prompt.expand(3, -1)
        texts = generate(loaded.model, prompts, length=12, decoding=Decoding(), seed=seed).tolist()
        assert ([" ".join(words.decode(row)) for row in texts] == first["continuations"]) == same
    for name in ("generate", "generate as text"):
        assert done[name].stderr == "not in the vocabulary, read as <unk>: zebra\n"


def test_greedy_generation_takes_the_likeliest_token_each_time_and_a_beam_looks_ahead(done, loaded):
    words = loaded.vocabulary
    ids = [words.eos_id, words.ids["w001"], words.unk_id, words.ids["w002"]]
    for _ in range(12):
        with torch.no_grad():
            logits, _ = loaded.model(torch.tensor([ids]))
        ids.append(int(logits[0, -1].argmax()))
    expected = " ".join(words.decode(ids[4:]))
    assert json.loads(done["generate greedily"].stdout)["continuations"] == [expected]
    beam = generate(loaded.model, torch.tensor([ids[:4]]), length=12, decoding=Decoding(width=3))
    expected = " ".join(words.decode(beam[0].tolist()))
    assert json.loads(done["generate by beam"].stdout)["continuations"] == [expected]


def test_a_run_loads_in_python(loaded, finished):
    assert len(loaded.vocabulary) == 152
    assert loaded.model.vocab_size == 152
    assert (loaded.table.vocab_size, loaded.table.k) == (152, 7)  # round(log2 152)
    assert (loaded.best_epoch, loaded.config.training.epochs) == (2, 3)
    assert not loaded.table.replaceable[loaded.vocabulary.eos_id]


def test_neighbors_are_those_of_the_table(done, text):
    found = json.loads(done["neighbors"].stdout)
    read = Text.read(DataConfig(source=str(text)))
    words = read.vocabulary
    vectors = library.vectors_from_text(read.ids["train"], len(words)).vectors
    protected = [words.ids[word] for word in SPECIAL if word in words.ids]
    table = NeighborTable.from_vectors(vectors, k=5, protected=protected)
    for word in ("w010", "w020"):
        entries = found["neighbors"][word]
        row = table.row(words.ids[word], 0.25)
        assert [entry["word"] for entry in entries] == [words.words[index] for index, _, _ in row]
        weights = [math.exp(entry["similarity"] / 0.25) for entry in entries]
        for entry, (_, similarity, _), weight in zip(entries, row, weights, strict=True):
            assert entry["similarity"] == pytest.approx(similarity, abs=1e-6)
            assert entry["probability"] == pytest.approx(weight / sum(weights), abs=1e-6)
        assert sum(entry["probability"] for entry in entries) == pytest.approx(1.0, abs=1e-6)
    assert found["neighbors"]["<eos>"] == []
    assert (found["k"], found["recall"]) == (5, 1.0)
    assert (found["coverage"]["types"], found["coverage"]["tokens"]) == (152, 3240)
    hub = found["hubs"][0]
    assert hub["rows"] == int((table.ids == words.ids[hub["word"]]).sum())


def test_neighbors_as_text_says_the_same(done):
    found, plain = json.loads(done["neighbors"].stdout), done["neighbors as text"].stdout
    for entry in found["neighbors"]["w010"]:
        assert f"{entry['similarity']:.4f}" in plain
        assert f"{entry['probability']:.4f}" in plain
    assert "<eos>: never replaced" in plain
    assert "vectors cover" in plain
    assert f"everyone's neighbor: {found['hubs'][0]['word']} ({found['hubs'][0]['rows']})" in plain


def test_words_that_the_text_lacks_are_told_of_and_the_others_shown(done, text):
    some = done["neighbors of some"]
    assert some.stdout == done["neighbors"].stdout
    told = f"not in the vocabulary of {text} (152 words): 'w0110' (did you mean 'w110'?), 'Zebra'\n"
    assert some.stderr == told
    assert done["neighbors"].stderr == ""


def test_a_schedule_is_drawn_with_its_dose(nnrs):
    rates = ["--neighbor-rate", "0.1:0.3", "--prediction-rate", "0:0.5"]
    words = ["schedule", "--schedule", "s-curve", *rates, "--epochs", 5]
    printed = nnrs(*words, "--json")
    records = json.loads(printed.stdout)
    for record, (start, end) in zip(records, ((0.1, 0.3), (0.0, 0.5)), strict=True):
        schedule = Schedule("s-curve", start, end)
        assert record["dose"] == schedule.dose(5)
        assert record["rates"] == [schedule(progress(epoch, 5)) for epoch in range(5)]
    lines = nnrs(*words).stdout.splitlines()
    assert lines[0] == "neighbor rate γ: s-curve 0.1 -> 0.3 over 5 epochs"
    assert lines[5].split() == ["4", "0.3000", "█" * 50]  # the last epoch has the end rate
    assert lines[6] == "dose (mean rate): 0.2000"  # the curve is symmetric about its middle


@pytest.mark.parametrize(
    ("shape", "rate", "course"),
    [("static", "0:0.2", "0.2"), ("linear", "0.3", "0.3"), ("pulse", "0:0.2", "0 -> 0.2 -> 0")],
)
def test_a_schedule_is_headed_by_the_rates_that_it_has(nnrs, shape, rate, course):
    printed = nnrs("schedule", "--schedule", shape, "--neighbor-rate", rate, "--epochs", 6).stdout
    assert printed.startswith(f"neighbor rate γ: {shape} {course} over 6 epochs\n")


def test_of_one_epoch_a_schedule_speaks_in_the_singular(nnrs):
    assert nnrs("schedule", "--epochs", 1).stdout.startswith(
        "neighbor rate γ: exponential 0.2 over 1 epoch\n"
    )


def test_a_config_file_is_followed_and_options_override_it(done, folder, text):
    config = json.loads((folder / "configured" / "config.json").read_text())
    assert config["training"]["epochs"] == 2  # the option's, not the file's 7
    assert (config["seed"], config["policy"]["k"], config["model"]["units"]) == (5, 4, 12)
    word = most_frequent(text)
    assert config["vectors"]["protect"] == [word]
    run = library.load(folder / "configured")
    assert len(run.vocabulary) == 100
    assert not run.table.replaceable[run.vocabulary.ids[word]]
    assert run.table.replaceable.sum() > 90
    metrics = [
        json.loads(line) for line in (folder / "configured" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["neighbor_rate"] for line in metrics] == [0.5, 0.5]


def test_train_as_text_ends_with_the_score_and_its_signature(done, folder):
    summary = json.loads((folder / "configured" / "summary.json").read_text())
    last = done["configured"].stdout.splitlines()[-1]
    assert last == f"{summary['signature']} = {summary['test_perplexity']:.2f}"
    for part in ("data:small", "gru-2x12", "policy:nnrs", "k:4", "vectors:made", "epochs:2", "seed:5"):
        assert part in last
    assert f"run directory: {folder / 'configured'}" in done["configured"].stderr
    assert "vectors cover" in done["configured"].stderr


def test_the_config_of_a_run_repeats_it_bitwise(done, finished, folder):
    assert json.loads(done["again"].stdout) == json.loads((finished / "summary.json").read_text())
    for path in finished.glob("[bcmv]*"):  # best, checkpoint, config, metrics, vocabulary
        assert (folder / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_tensorboard_has_the_numbers_of_the_records(finished):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (file,) = (finished / "tensorboard").iterdir()
    points = {}
    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            points.setdefault(value.tag, {})[event.step] = value.tensor.float_val[0]
    for line in (finished / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        for name, value in record.items():
            if name != "epoch":
                assert points[name][record["epoch"]] == pytest.approx(value, rel=1e-6), name
    assert len(points["tokens_per_second"]) == 3


def test_the_demo_trains_four_methods(done):
    results = json.loads(done["demo"].stdout)
    assert list(results) == ["mle", "ss", "nnrs", "ss-nnrs"]
    for method, result in results.items():
        assert result["test_perplexity"] > 1.0
        assert [line["epoch"] for line in result["metrics"]] == [0]
        replaced = result["metrics"][0]["effective_rate"]
        assert (replaced > 0.0) == (method != "mle")


def test_the_demo_shows_what_was_replaced_even_of_a_short_text(done, folder):
    plain = done["demo as text"].stdout
    sentences = plain.partition("The curriculum")[0]
    mle, others = sentences.partition("\nss ")[::2]
    assert re.search(r"mle +w\d{3} w\d{3} ", mle)
    assert not re.search(r"w\d{3}→w\d{3}", mle)
    assert len(re.findall(r"w\d{3}→(w\d{3}|<eos>)", others)) >= 3
    assert "Validation perplexity (lower is better)" in " ".join(plain.split())
    assert "name no winner" in plain
    assert "Test perplexity" in (folder / "short" / "report.txt").read_text()
    assert plain.splitlines()[-1] == f"report to open: {folder / 'short' / 'report.html'}"
    assert "<h1>The mechanism on real text</h1>" in (folder / "short" / "report.html").read_text()


def test_where_a_run_of_the_demo_fails_the_others_are_shown_and_it_is_named(nnrs, done, folder, tmp_path):
    out = shutil.copytree(folder / "short", tmp_path / "out")
    assert done["demo"].returncode == 0
    damaged = break_run(out, "ss-nnrs_seed-1")
    command = ["demo", "--epochs", 1, "--data", folder / "short.txt", "--out", out]
    plain = nnrs(*command)
    assert plain.returncode == 2
    assert "The curriculum of" not in plain.stdout
    assert re.search(r"│ test │ [\d.]+ │ [\d.]+ │ [\d.]+ │", plain.stdout)
    missing = "is missing: ss-nnrs_seed-1 (failed)."
    for told in (plain.stdout, (out / "report.txt").read_text(), (out / "report.html").read_text()):
        assert missing in told
    assert damaged in plain.stderr
    break_run(out, "mle_seed-1")
    assert list(json.loads(nnrs(*command, "--json").stdout)) == ["ss", "nnrs"]
    for name in ("ss_seed-1", "nnrs_seed-1"):
        break_run(out, name)
    nothing = nnrs(*command)
    assert (nothing.returncode, nothing.stdout) == (2, "")


def test_the_demo_takes_the_first_free_folder(nnrs, tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo-2").mkdir()
    done = nnrs("demo", "--data", "absent.txt", cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1][:6]) == (2, "error:")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "demo",
        "demo-2",
    ]  # and makes none for nothing


def test_a_demo_that_was_interrupted_goes_on_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plans = {epochs: demo_plan("synthetic", epochs) for epochs in (1, 2)}
    assert free_folder(plans[1]) == Path("demo")
    for name, epochs in (("demo", 2), ("demo-2", 1)):
        with GridDirectory(name).opened():
            GridDirectory(name).write_plan(plans[epochs].as_dict())
    assert free_folder(plans[2]) == Path("demo")
    assert free_folder(plans[1]) == Path("demo-2")  # the other holds another demo
    demo = GridDirectory("demo")
    demo.report_path.write_text("")
    assert free_folder(plans[2]) == Path("demo")  # the page may be of those of its runs that did not fail
    for cell in plans[2].cells:
        RunDirectory.create(demo.run_path(cell.name), {}).write_result({})
    assert free_folder(plans[2]) == Path("demo-3")  # the first has ended
    demo.report_path.unlink()
    assert free_folder(plans[2]) == Path("demo")  # but for its page
    demo.report_path.write_text("")
    (tmp_path / "demo-3").mkdir()
    assert free_folder(plans[2]) == Path("demo-4")  # whosever that is


@pytest.mark.parametrize("with_page", [True, False])
@pytest.mark.parametrize("name", ["plan.json", "runs/ss_seed-1/result.json"])
def test_a_demo_with_a_damaged_file_is_told_and_left_alone(name, with_page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    plan, demo = demo_plan("synthetic", 1), GridDirectory("demo")
    with demo.opened():
        demo.write_plan(plan.as_dict())
    if with_page:
        demo.report_path.write_text("")
    for cell in plan.cells:
        RunDirectory.create(demo.run_path(cell.name), {}).write_result({})
    (tmp_path / "demo" / name).write_text("{")
    assert free_folder(plan) == Path("demo-2")
    told = capsys.readouterr().err
    assert told.startswith("demo is left as it is, and another folder taken: ")
    assert f"demo/{name} is damaged: " in told
    assert told.endswith(" Copy it back.\n")
    assert (tmp_path / "demo" / name).read_text() == "{"
