"""Two processes with gloo: ranks draw differently, a run repeats, nothing hangs, and a killed worker is made good."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
WAYS = ["ddp again", "fsdp", "fsdp2"]


def torchrun(script, *arguments, restarts=0):
    """Two processes on this machine, on a port that is free; one that hangs fails here."""
    # Sharing torchrun's own store, a restarted worker would look for its peers where they were before they died.
    settings = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run(
        [*command, "--max-restarts", str(restarts), str(HERE / script), *map(str, arguments)],
        env={**os.environ, **settings, "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each of two ranks saw, under every way to train together."""
    folder = tmp_path_factory.mktemp("ranks")
    torchrun("worker.py", folder)
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


def test_ranks_that_read_the_same_rows_replace_other_inputs(ranks):
    ours, theirs = (torch.tensor(rank["ddp alike"]["ids"]) for rank in ranks)
    assert ours.shape == theirs.shape == (8, 4, 12)
    first = [ids[0] != torch.tensor(rank["rows"][0]) for ids, rank in zip((ours, theirs), ranks, strict=True)]
    assert all(replaced.any() for replaced in first)
    assert not torch.equal(*first)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_repeats_bit_for_bit_whatever_shards_the_weights(ranks, way):
    for rank in ranks:
        assert rank[way]["ids"] == rank["ddp"]["ids"]
        assert len(rank[way]["ids"]) == 8  # a second pass in each of four steps
        assert rank[way]["losses"] == pytest.approx(rank["ddp"]["losses"], abs=1e-6)
    assert ranks[0]["ddp again"] == ranks[0]["ddp"]


def test_an_output_layer_that_is_gathered_from_all_ranks_is_used_equally_often_by_all(ranks):
    for rank in ranks:
        assert rank["llama fsdp2"]["ids"] == rank["llama ddp"]["ids"]
        assert rank["llama fsdp2"]["losses"] == pytest.approx(rank["llama ddp"]["losses"], abs=1e-6)


def test_lightnings_processes_have_one_temperature_whatever_each_of_them_validates_on(tmp_path):
    torchrun("lightning_worker.py", tmp_path)
    ours, theirs = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    for monitor in ("val_loss", "rare"):  # which one process alone has logged
        (heard, losses), (others, other_losses) = (
            zip(*rank[monitor], strict=True) for rank in (ours, theirs)
        )
        assert heard == others
        assert len(set(heard)) > 2
        assert losses != other_losses


@pytest.mark.slow
def test_a_run_whose_worker_was_killed_ends_where_an_unbroken_one_does(tmp_path):
    ends = {}
    for name, fatal, restarts in (("whole", -1, 0), ("killed", 3, 1)):
        (tmp_path / name).mkdir()
        torchrun("trainer_worker.py", tmp_path / name, fatal, restarts=restarts)
        ends[name] = torch.load(tmp_path / name / "end.pt", weights_only=True)
    assert ends["whole"]["from"] is None
    assert ends["killed"]["from"].endswith("checkpoint-2")
    expected = ends["whole"]["weights"]
    assert all(torch.equal(value, expected[name]) for name, value in ends["killed"]["weights"].items())
