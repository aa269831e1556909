"""A configuration becomes a run directory that can be loaded, and that knows what it was made from."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import nnrs
from nnrs.errors import DataError, RunError
from nnrs.experiments.config import RunConfig
from nnrs.experiments.run import resume, start
from nnrs.experiments.scoring import evaluate_run
from nnrs.experiments.subject import Request
from nnrs.neighbors.table import NeighborTable
from nnrs.run_directory import RunDirectory

CPU = torch.device("cpu")


@pytest.fixture
def text(tmp_path):
    """A text of 30 words in which every word is frequent enough for a vector."""
    path = tmp_path / "text.txt"
    words = [f"w{index}" for index in range(30)]
    lines = [" ".join(words[(start * 7 + step * step) % 30] for step in range(12)) for start in range(200)]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_vectors(path, scale):
    rows = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [1.0, 1.0, 1.0, scale]
    )
    lines = (" ".join([f"w{index}", *map(str, row)]) for index, row in enumerate(rows.tolist()))
    path.write_text("30 4\n" + "\n".join(lines) + "\n")


def config(text, method, vectors="corpus", **model):
    return RunConfig.from_dict(
        {
            "data": {"source": str(text)},
            "vectors": {"source": str(vectors)},
            "policy": {"method": method},
            "model": {"preset": "tiny", "units": 16, **model},
            "optimizer": {"name": "adamw", "learning_rate": 0.05},
            "training": {"epochs": 2, "batch_size": 8, "bptt": 10},
        }
    )


def test_what_gsns_learned_is_kept_with_the_best_model_and_loaded(text, tmp_path):
    settings = config(text, "gsns").as_dict()
    settings["policy"] |= {"k": 4, "neighbor_rate": {"shape": "static", "end": 0.5}}
    run = start(RunConfig.from_dict(settings), tmp_path / "run", CPU)
    run.finish()
    assert run.directory.best()[1]["best_epoch"] == 1  # the last, so the live logits are the best ones
    learned = run.parts.policy.learned["neighbor_logits"].detach()
    first = NeighborTable.load(RunDirectory(tmp_path / "run").table_path)
    loaded = nnrs.load(tmp_path / "run").table
    assert not torch.allclose(loaded.similarities, first.similarities / 0.5)
    for word in first.replaceable.nonzero()[:, 0].tolist():
        ours = {neighbor: probability for neighbor, _, probability in loaded.row(word, 1.0)}
        shares = torch.softmax(learned[word], -1).tolist()
        expected = dict(zip(first.ids[word].tolist(), shares, strict=True))
        assert ours == pytest.approx(expected, abs=1e-5)


def test_a_loaded_run_says_in_one_line_what_it_is(text, tmp_path):
    start(config(text, "nnrs"), tmp_path / "run", CPU).finish()
    loaded = nnrs.load(tmp_path / "run")
    epochs = [record["valid_perplexity"] for record in RunDirectory(tmp_path / "run").records("metrics")]
    assert min(epochs) == epochs[loaded.best_epoch] == loaded.valid_perplexity
    assert repr(loaded) == (
        f"<LoadedRun {tmp_path / 'run'}: nnrs lstm-2x16, best epoch {loaded.best_epoch}, "
        f"validation perplexity {min(epochs):.2f}>"
    )


@pytest.mark.parametrize("method", ["unigram", "nnrs"])
def test_a_run_does_not_continue_on_other_vectors(text, tmp_path, method):
    vectors = tmp_path / "vectors.vec"
    write_vectors(vectors, 1.0)
    start(config(text, method, vectors), tmp_path / "run", CPU)
    resume(tmp_path / "run", CPU)  # unchanged: no objection
    write_vectors(vectors, 1.0001)  # the same words, and the same neighbors
    with pytest.raises(RunError, match=r"vectors\.vec has changed"):
        resume(tmp_path / "run", CPU)


def test_a_run_is_not_evaluated_on_a_text_that_has_changed_unless_it_is_named(text, tmp_path):
    start(config(text, "mle"), tmp_path / "run", CPU).finish()
    evaluate_run(tmp_path / "run", CPU)
    text.write_text(text.read_text().replace("w3 ", "w4 "))
    with pytest.raises(DataError, match="has changed since"):
        evaluate_run(tmp_path / "run", CPU)
    [score] = evaluate_run(tmp_path / "run", CPU, Request(data=str(text)))
    assert "on:text|" in score.signature


@pytest.mark.parametrize("metric", ["perplexity", "bleu"])
def test_a_text_that_is_not_there_any_more_is_told_to_be_the_runs(metric, text, tmp_path):
    start(config(text, "mle"), tmp_path / "run", CPU).finish()
    renamed = text.rename(tmp_path / "renamed.txt")
    gone = rf"the text of {tmp_path / 'run'} is not there any more: {text}\. Put it back, or name another with --data"
    with pytest.raises(DataError, match=gone):
        evaluate_run(tmp_path / "run", CPU, Request(metrics=(metric,), length=5))
    assert evaluate_run(tmp_path / "run", CPU, Request(metrics=(metric,), length=5, data=str(renamed)))


def test_the_config_holds_what_was_resolved(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start(config("text.txt", "nnrs"), tmp_path / "run", CPU)
    used = json.loads((tmp_path / "run" / "config.json").read_text())
    assert used["data"]["source"] == str(text)
    assert used["policy"]["k"] == 5  # round(log2 32)
    assert used["training"]["precision"] == "fp32"


def test_a_resumed_run_says_what_keeps_it_from_being_bitwise_the_same(text, tmp_path, monkeypatch):
    assert start(config(text, "mle"), tmp_path / "run", CPU).differences() == []
    assert resume(tmp_path / "run", CPU).differences() == []
    began = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: began + 1)
    [difference] = resume(tmp_path / "run", CPU).differences()
    assert f"threads {began} and goes on with {began + 1}" in difference


def test_a_transformer_is_trained_by_adamw_unless_told_otherwise():
    named = {"model": {"kind": "transformer", "preset": "tiny"}}
    assert RunConfig.from_dict(named).optimizer.name == "adamw"
    assert RunConfig.from_dict(named | {"optimizer": {"name": "sgd"}}).optimizer.learning_rate == 20.0
    assert RunConfig.from_dict({}).optimizer.name == "sgd"


def test_signatures_tell_settings_apart_and_seeds_share_a_config():
    plain, other = RunConfig(), RunConfig.from_dict({"training": {"bptt": 70}})
    assert plain.fingerprint() != other.fingerprint()
    assert RunConfig(seed=2).fingerprint() == plain.fingerprint()
    assert "seed:2" in RunConfig(seed=2).signature("ptb", None)


@pytest.mark.slow
def test_the_built_wheel_works_outside_the_checkout(tmp_path):
    root = Path(__file__).parents[2]
    pip = [sys.executable, "-m", "pip", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(tmp_path), str(root)], check=True)
    [wheel] = tmp_path.glob("nnrs-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "nnrs/py.typed" in archive.namelist()
    target = tmp_path / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(wheel)], check=True)
    program = (
        "import nnrs, torch; table = nnrs.NeighborTable.from_vectors(torch.randn(50, 8), k=3); "
        "nnrs.replace_with_neighbors(torch.arange(50), table, rate=0.5); print(nnrs.__file__)"
    )
    environment = {"PYTHONPATH": str(target)}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.startswith(str(target))
    command = [sys.executable, "-m", "nnrs", "schedule", "--json"]
    subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=True)
