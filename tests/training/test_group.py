"""Two processes with gloo train what one process trains, window by window, and go on where the other left off."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.training.group_cases import CASES, HALF, RESUMED, trainer_of

from nnrs.training.group import ALONE

HERE = Path(__file__).parent
CLOSE = 1e-5  # relative: sums over rows are made in another order, and two epochs of steps build on them
ROUNDED = ("train_perplexity", "valid_perplexity", "effective_neighbors")  # the last: gsns learns its table


@pytest.fixture(scope="module")
def alone():
    """The metrics of every case in one process."""
    found = {}
    for name in CASES:
        trainer, heard = trainer_of(name, ALONE)
        trainer.fit()
        found[name] = [metrics.as_dict() for metrics in heard.metrics]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What two processes left behind."""
    folder = tmp_path_factory.mktemp("group")
    trainer, _ = trainer_of(RESUMED, ALONE)
    trainer.should_stop = lambda: trainer.live.position.step >= HALF
    trainer.save = lambda live: torch.save(live.snapshot(), folder / "begun-alone.pt")
    assert not trainer.fit()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run(
        [*command, str(HERE / "group_worker.py"), str(folder)],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path]),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def ranks(folder):
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


def assert_alike(found, expected):
    """Perplexities agree closely; rates, what was really replaced, temperatures and passes exactly."""
    assert [record["epoch"] for record in found] == [record["epoch"] for record in expected]
    for record, other in zip(found, expected, strict=True):
        for name, value in other.items():
            if name in ROUNDED and value is not None:
                assert math.isclose(record[name], value, rel_tol=CLOSE), (name, record, other)
            else:
                assert record[name] == value, (name, record, other)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_train_what_one_does(ranks, alone, name):
    assert_alike(ranks[0][name], alone[name])


@pytest.mark.parametrize("name", CASES)
def test_all_processes_hold_the_same_run_to_the_last_digit(ranks, name):
    assert ranks[0][name] == ranks[1][name]


def test_a_run_that_one_process_began_goes_on_in_two(ranks, alone):
    assert_alike(ranks[0]["resumed"], alone[RESUMED][1:])


def test_a_run_that_two_began_is_stopped_by_either_saved_by_the_first_and_goes_on_in_one(folder, alone):
    assert not (folder / "saved-by-1.pt").exists()
    trainer, heard = trainer_of(RESUMED, ALONE)
    tensors, values = torch.load(folder / "saved-by-0.pt", weights_only=True)
    assert len(tensors["carry.hidden"]) == trainer.config.batch_size
    assert values["step"] == HALF
    trainer.restore(tensors, values)
    trainer.fit()
    assert_alike([metrics.as_dict() for metrics in heard.metrics], alone[RESUMED][1:])


def test_processes_that_hold_different_runs_are_told_so(ranks):
    expected = "process 1 of this run has another checkpoint than process 0."
    assert all(rank["agreement"].startswith(expected) for rank in ranks)


def test_every_process_must_have_rows_of_every_batch(ranks):
    expected = "a batch of 5 rows cannot be shared equally by 2 processes. Change --batch-size"
    assert all(rank["indivisible"].startswith(expected) for rank in ranks)
    expected = "the last batch has 1 of 6 rows, too few for 2 processes."  # 19 pairs in batches of 6
    assert all(rank["too few"].startswith(expected) for rank in ranks)


def test_a_process_whose_peer_is_gone_says_so(ranks):
    assert ranks[0]["deserted"].startswith("another process of this run has ended")
