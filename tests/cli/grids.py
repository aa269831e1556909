"""Small grids for tests: their files, and what they leave."""

import json

GRID = """
title = "Two methods"
data = "{text}"
preset = "tiny"
units = 16
max_vocabulary = 200
batch_size = 8
bptt = 10
learning_rate = 5
epochs = {epochs}
method = {methods}
seeds = "{seeds}"
{more}

[evaluate]
metrics = ["perplexity", "bleu"]
sentences = 20
prefix = 5
length = 10
"""
NAMES = [f"{method}_seed-{seed}" for method in ("mle", "ss-nnrs") for seed in (1, 2)]


def write_grid(path, text, *, epochs=2, methods='["mle", "ss-nnrs"]', seeds="1-2", more=""):
    """A grid's file."""
    path.write_text(GRID.format(text=text, epochs=epochs, methods=methods, seeds=seeds, more=more))
    return path


def results_of(out):
    """The stored results by cell, without the one part that depends on the clock."""
    found = {path.parent.name: json.loads(path.read_text()) for path in out.glob("runs/*/result.json")}
    return {
        name: {key: part for key, part in found[name].items() if key != "timing"} for name in sorted(found)
    }


def failures_of(out):
    """Every try that failed."""
    path = out / "failures.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def break_run(out, name):
    """Have a run that was done fail whenever it is tried again; gives what is then said of it."""
    run = out / "runs" / name
    (run / "result.json").unlink()
    (run / "metrics.jsonl").write_text("{\n")
    return f"error: {name}: {run / 'metrics.jsonl'}, line 1 is damaged"


def written(out):
    """Every file with the moment it was written."""
    return {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}


def small_grid(nnrs, text, folder):
    """A grid of two methods and two seeds that is done: its file, its folder, and what it printed."""
    file = write_grid(folder / "grid.toml", text)
    ended = nnrs("grid", file, "--out", folder / "out", "--jobs", 2)
    assert ended.returncode == 0, ended.stderr
    return file, folder / "out", ended
