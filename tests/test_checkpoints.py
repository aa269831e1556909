"""The checkpoints of a run: two and their best, whole or refused by name, and what going back forgets."""

import json

import pytest
import torch
from tests.saved_runs import names, save

from nnrs.errors import RunError
from nnrs.files import write_atomically
from nnrs.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "run", {"seed": 3})


def steps(run, kind):
    """The steps of the checkpoints (or bests) that are whole."""
    return [int(path.stem.rpartition("-")[2]) for path in sorted(run.path.glob(f"{kind}-*.json"))]


def test_the_newest_two_checkpoints_are_kept(run):
    assert run.checkpoint() is None
    for step in (10, 20, 30):
        save(run, step)
    assert steps(run, "checkpoint") == [20, 30]
    tensors, state = run.checkpoint()
    assert state == {"step": 30, "note": "ö"}
    assert torch.equal(tensors["weight"], torch.full((3,), 30.0))
    assert run.steps() == [20, 30]
    tensors, state = run.checkpoint(20)
    assert (state["step"], tensors["weight"].tolist()) == (20, [20.0] * 3)


def test_the_best_of_every_kept_checkpoint_is_kept(run):
    for step, best in ((10, True), (20, True), (30, False), (40, True), (50, True)):
        save(run, step, best)
        assert run.best()[1]["step"] == max(at for at in (10, 20, 40, 50) if at <= step)
    assert steps(run, "checkpoint") == [40, 50]
    assert steps(run, "best") == [40, 50]
    save(run, 60)
    assert steps(run, "best") == [50]  # the best of 50 and of 60


def leave_half_done(path):
    """What is left of a file where the process that writes it is killed."""
    hidden = []
    write_atomically(path, hidden.append)
    path.unlink()
    hidden[0].touch()


def test_going_back_forgets_what_came_later_and_what_a_kill_left(run):
    for epoch, step in enumerate((10, 20, 30)):
        run.append("metrics", {"epoch": epoch})
        run.append("timing", {"epoch": epoch})
        save(run, step, best=True)
    for name in ("best-000000040.json", "scores.jsonl", "neighbors.safetensors"):
        leave_half_done(run.path / name)
    (run.path / "best-000000040.safetensors").touch()  # its JSON was never written
    run.write_vocabulary({"words": []})
    run.table_path.touch()
    run.forget_after(step=20, epochs=2)
    assert names(run) == [
        "best-000000020.json",
        "best-000000020.safetensors",
        "checkpoint-000000020.json",
        "checkpoint-000000020.safetensors",
        "config.json",
        "metrics.jsonl",
        "neighbors.safetensors",
        "timing.jsonl",
        "vocabulary.json",
    ]
    assert run.records("metrics") == run.records("timing") == [{"epoch": 0}, {"epoch": 1}]


def test_a_finished_run_has_the_model_that_it_ended_with_or_none(run):
    for epoch, step in enumerate((10, 20)):
        run.write_best({"weight": torch.full((3,), float(step))}, {"step": step, "best_epoch": epoch})
    run.write_summary({"best_epoch": 1})
    assert run.best()[1]["step"] == 20
    run.write_summary({"best_epoch": 0})  # of a run that has found a better one since
    assert run.best()[1]["step"] == 20
    run.write_summary({"best_epoch": 1})
    newest = run.path / "best-000000020.json"
    newest.write_text(json.dumps({**json.loads(newest.read_text()), "state": None}))
    with pytest.raises(
        RunError, match=r"best-000000020\.json is damaged: its checksum does not match\. Copy it"
    ):
        run.best_fingerprint()
    newest.unlink()
    said = r"run ended with the model of epoch 1, but the newest there, best-000000010, is of epoch 0"
    for read in (run.best, run.best_fingerprint, run.parameters, run.scores):
        with pytest.raises(RunError, match=said):
            read()


def test_a_torn_model_is_called_damaged_where_its_size_is_asked_for(run):
    save(run, 10, best=True)
    path = run.path / "best-000000010.safetensors"
    path.write_bytes(path.read_bytes()[:5])
    with pytest.raises(RunError, match=rf"^{path} is damaged: .* Copy it back\.$"):
        run.parameters()


def test_going_back_leaves_a_users_files_alone(run):
    run.append("metrics", {"epoch": 0})
    save(run, 10, best=True)
    theirs = {
        *(
            ".notes.tmp",
            ".tmp",
            ".tmp-draft",
            ".draft.json.tmp",
            ".chapter.tex.a1b2c3d4.tmp",
            ".scores.jsonl.backup-1.tmp",
        ),
        *("my-vectors.safetensors", "best-of-all.safetensors", "checkpoint-9.safetensors"),
    }
    for name in theirs:
        (run.path / name).touch()
    (run.path / ".scratch.tmp").mkdir()
    run.forget_after(step=10, epochs=1)
    assert theirs | {".scratch.tmp"} <= set(names(run))


@pytest.mark.parametrize(
    "name", [".best-7.safetensors.k3x_9abz.tmp", ".tmpownefG"], ids=["ours", "safetensors'"]
)
def test_going_back_removes_what_a_killed_write_left(run, name):
    run.append("metrics", {"epoch": 0})
    save(run, 10, best=True)
    (run.path / name).write_bytes(b"half")
    run.forget_after(step=10, epochs=1)
    assert name not in names(run)


def damage_tensors(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def truncate_tensors(path):
    path.write_bytes(path.read_bytes()[:-1])


def remove_tensors(path):
    path.unlink()


def alter_state(path):
    proof = path.with_suffix(".json")
    proof.write_text(proof.read_text().replace('"step": 30', '"step": 29'))


def tear_state(path):
    proof = path.with_suffix(".json")
    proof.write_text(proof.read_text()[:-10])


def empty_state(path):
    path.with_suffix(".json").write_text("[]")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_tensors, r"000030\.safetensors is damaged"),
        (truncate_tensors, r"000030\.safetensors is damaged"),
        (remove_tensors, r"000030\.safetensors is missing"),
        (alter_state, r"000030\.json is damaged"),
        (tear_state, r"000030\.json is damaged"),
        (empty_state, r"000030\.json is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name_and_the_previous_offered(run, damage, message):
    for step in (20, 30):
        save(run, step, best=True)
    damage(run.path / "checkpoint-000000030.safetensors")
    with pytest.raises(RunError, match=message) as caught:
        run.checkpoint()
    told = " Copy it back. Or continue from checkpoint-000000020, which is there as well, with --resume --previous."
    assert str(caught.value).endswith(told)
    assert run.checkpoint(20)[1]["step"] == 20


def test_an_only_checkpoint_that_is_damaged_offers_none(run):
    save(run, 10)
    damage_tensors(run.path / "checkpoint-000000010.safetensors")
    with pytest.raises(RunError, match="is damaged") as caught:
        run.checkpoint()
    assert "--previous" not in str(caught.value)


def test_a_run_without_a_best_says_how_to_get_one(run):
    told = "no trained model yet: wait, if it is being trained, else continue it with `nnrs train --out .*run --res"
    with pytest.raises(RunError, match=told):
        run.best()
    run.write_summary({"test_perplexity": 80.0})
    anew = rf"Copy it back\. Or train it anew: nnrs train --config {run.path}/config\.json --out NEW\.$"
    with pytest.raises(RunError, match=rf"run is finished, but its model \(best-\*\) is gone\. {anew}"):
        run.best()
    save(run, 10, best=True)
    damage_tensors(run.path / "best-000000010.safetensors")
    with pytest.raises(RunError, match=rf"000010\.safetensors is damaged: .* {anew}"):
        run.best()


def test_the_best_model_has_a_fingerprint_that_outlives_its_tensors(run):
    assert run.best_fingerprint() is None
    save(run, 1, best=True)
    first = run.best_fingerprint()
    save(run, 2, best=True)
    second = run.best_fingerprint()
    assert len({first, second, None}) == 3
    for path in run.path.glob("best-*.safetensors"):
        path.unlink()
    assert run.best_fingerprint() == second
