"""What `nnrs train` says of runs whose training came apart."""

import json
import shutil

import pytest


@pytest.mark.parametrize("several", [False, True], ids=["one run", "runs of seeds"])
def test_train_ends_with_the_runs_whose_training_came_apart(several, nnrs, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "out" / ("seed-1" if several else ""))
    whole = nnrs("train", "--out", tmp_path / "out", "--resume")
    assert whole.returncode == 0, whole.stderr
    assert "came apart" not in whole.stderr
    copy = shutil.copytree(tmp_path / "out", tmp_path / "out.jsonl")  # a name that files of results have
    (copy / run.relative_to(tmp_path / "out") / "metrics.jsonl").unlink()
    bare = nnrs("train", "--out", copy, "--resume")
    assert bare.returncode == 0, bare.stderr
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "best_epoch": 1}))
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    metrics[2]["valid_perplexity"] = metrics[0]["valid_perplexity"] + 1.0
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in metrics))
    told = nnrs("train", "--out", tmp_path / "out", "--resume", "--json")
    assert told.returncode == 0, told.stderr
    assert told.stderr.splitlines()[-1].startswith("ss-nnrs (seed 1) came apart in training: after the best")
    assert json.loads(told.stdout)  # and nothing else
