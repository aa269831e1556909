"""The files of a run: whole or not there, records in their order, and errors that name the file."""

import json
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from tests.saved_runs import edit_config, names, save

from nnrs.checkpoints import FORMAT
from nnrs.errors import RunError
from nnrs.run_directory import RunDirectory, folder_at_once


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "run", {"seed": 3})


def test_a_run_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"/file is a file, and a folder is expected"):
        RunDirectory.create(tmp_path / "file" / "run", {})


def test_a_folder_appears_with_all_that_it_holds(tmp_path):
    place = tmp_path / "above" / "runs"
    with folder_at_once(place) as hidden:
        for name in ("one", "two"):
            (hidden / name).mkdir()
            assert not place.exists()
    assert sorted(path.name for path in place.iterdir()) == ["one", "two"]
    assert list(place.parent.iterdir()) == [place]
    (tmp_path / "plain").mkdir()
    assert place.stat().st_mode == (tmp_path / "plain").stat().st_mode  # as readable as any other


def test_an_empty_folder_is_filled_at_once_also_through_a_link(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    with folder_at_once(tmp_path / "link") as hidden:
        (hidden / "one").mkdir()
    assert (tmp_path / "empty" / "one").is_dir()
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("error", [RunError("no"), KeyboardInterrupt()])
def test_a_folder_whose_filling_fails_never_appears(error, tmp_path):
    def fail():
        with folder_at_once(tmp_path / "runs") as hidden:
            (hidden / "one").mkdir()
            raise error

    with pytest.raises(type(error)):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_came_to_stand_at_a_folders_place_meanwhile_is_not_replaced(tmp_path):
    place = tmp_path / "runs"

    def be_overtaken():
        with folder_at_once(place):
            (place / "mine").mkdir(parents=True)

    with pytest.raises(RunError, match=r"cannot write .*/runs: Directory not empty"):
        be_overtaken()
    assert list(tmp_path.rglob("*")) == [place, place / "mine"]


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="is the current folder"), folder_at_once(Path()):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_runs_in_a_folder_come_in_the_order_of_their_numbers(tmp_path):
    for name in ("seed-10", "seed-9", "mle"):
        RunDirectory.create(tmp_path / name, {"seed": 3})
    (tmp_path / "notes").mkdir()
    assert [run.path.name for run in RunDirectory.within(tmp_path)] == ["mle", "seed-9", "seed-10"]
    RunDirectory.create(tmp_path / "mle" / "seed-1", {"seed": 3})
    assert RunDirectory.within(tmp_path / "mle") == []  # it is a run itself
    assert RunDirectory.within(tmp_path / "absent") == []


def test_a_new_run_holds_its_config_and_the_format(run):
    written = json.loads((run.path / "config.json").read_text())
    assert (written["format"], written["seed"]) == (FORMAT, 3)
    assert RunDirectory.open(run.path).config() == {"format": FORMAT, "seed": 3}


CONFIG = {
    "data": {"source": "/a.txt", "min_count": 2},
    "vectors": {"source": "corpus", "protect": ("é",)},
    "optimizer": {"learning_rate": 20.0, "clip": 0.25},
    "seed": 3,
}


@pytest.mark.parametrize(
    ("section", "edit"),
    [
        (None, {"seed": 4}),
        (None, {"more": 1}),
        ("data", {"min_count": 1}),
        ("data", {"source": "synthetic"}),
        ("vectors", {"source": "/glove.txt"}),
        ("vectors", {"protect": []}),
        ("optimizer", {"learning_rate": 20.5}),
        ("optimizer", {"clip": 0}),
        (None, {"data": 3}),
    ],
)
def test_a_config_that_was_edited_since_the_run_began_is_refused(section, edit, tmp_path):
    run = RunDirectory.create(tmp_path / "run", CONFIG)
    edit_config(run.path, section, **edit)
    for read in (run.config, lambda: RunDirectory.open(run.path)):
        with pytest.raises(RunError, match=r"run/config\.json was edited since .* --out NEW$"):
            read()


def test_where_a_file_is_may_be_edited_for_it_may_be_moved(tmp_path):
    vectors = {"source": "/glove.txt", "protect": []}
    run = RunDirectory.create(tmp_path / "run", {**CONFIG, "vectors": vectors})
    edit_config(run.path, "data", source="/b.txt")
    edit_config(run.path, "vectors", source="/there/glove.txt")
    assert RunDirectory.open(run.path).config()["data"] == {"source": "/b.txt", "min_count": 2}


def test_a_config_that_another_program_has_written_again_is_the_same(tmp_path):
    run = RunDirectory.create(tmp_path / "run", CONFIG)
    values = json.loads((run.path / "config.json").read_text())
    values["optimizer"]["learning_rate"] = 20  # as JavaScript writes 20.0
    again = dict(sorted(values.items(), reverse=True))
    (run.path / "config.json").write_text(json.dumps(again, ensure_ascii=False), encoding="utf-8")
    assert run.config()["vectors"] == {"source": "corpus", "protect": ["é"]}


def test_a_config_without_its_seal_is_refused(tmp_path):
    run = RunDirectory.create(tmp_path / "run", CONFIG)
    (run.path / "config.json").write_text(json.dumps({"format": FORMAT, **CONFIG}))
    with pytest.raises(RunError, match="it was edited, or is of an earlier nnrs"):
        run.config()


def test_an_existing_run_or_file_is_never_overwritten(run, tmp_path):
    before = (run.path / "config.json").read_bytes()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    there, other = "exists already and is not overwritten. Choose another --out", r"\.$"
    taken = {
        run.path: rf"{there}, or go on there with --out {run.path} --resume alone\.$",
        run.path.parent: rf"{there}, or go on there with --out {run.path.parent} --resume alone\.$",
        tmp_path / "mine": rf"{there}{other}",
        tmp_path / "file": "is a file, and a folder",
    }
    for path, said in taken.items():
        with pytest.raises(RunError, match=said):
            RunDirectory.create(path, {"seed": 4})
    assert (run.path / "config.json").read_bytes() == before
    assert (tmp_path / "file").read_text() == "mine"


def test_an_empty_folder_may_become_a_run(tmp_path):
    (tmp_path / "run").mkdir()
    assert RunDirectory.create(tmp_path / "run", {"seed": 4}).config()["seed"] == 4


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (99, r"99; this version of nnrs reads up to 1\. Update nnrs\."),
        ("1", r"'1', which is no whole number\. Was it edited\? This version of nnrs writes 1\."),
        (True, "True, which is no whole number"),
        (None, "None, which is no whole number"),
    ],
)
def test_a_format_that_is_not_known_is_refused(run, found, told):
    (run.path / "config.json").write_text(json.dumps({"format": found}))
    with pytest.raises(RunError, match=f"has run format {told}"):
        RunDirectory.open(run.path)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    for path, why in ((tmp_path, r"it has no config\.json"), (tmp_path / "absent", "it does not exist")):
        with pytest.raises(RunError, match=f"is not a run directory: {why}"):
            RunDirectory.open(path)


@pytest.mark.parametrize("below", ["", "runs"], ids=["seeds", "a grid"])
def test_a_folder_of_runs_is_refused_with_the_name_of_one(tmp_path, below):
    for seed in (10, 2):
        RunDirectory.create(tmp_path / below / f"seed-{seed}", {"seed": seed})
    first = tmp_path / below / "seed-2"
    with pytest.raises(RunError) as refused:
        RunDirectory.open(tmp_path)
    assert str(refused.value) == f"{tmp_path} is not a run directory, but holds 2. Name one: {first}"


def test_a_run_among_others_that_has_lost_its_config_is_refused(tmp_path):
    for seed in (1, 2):
        run = RunDirectory.create(tmp_path / f"seed-{seed}", {"seed": seed})
        run.append("metrics", {"epoch": 0})
        run.write_vocabulary({"words": []})
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "metrics.jsonl").touch()  # of another program
    assert [run.path.name for run in RunDirectory.within(tmp_path)] == ["seed-1", "seed-2"]
    assert RunDirectory.within(tmp_path / "seed-1") == []
    (tmp_path / "seed-1" / "config.json").unlink()
    with pytest.raises(RunError, match=r"seed-1 is a run without its config\.json\. Copy that back"):
        RunDirectory.within(tmp_path)


def test_records_come_back_in_order_without_a_torn_last_line(run):
    assert run.records("metrics") == []
    for epoch in range(2):
        run.append("metrics", {"epoch": epoch, "word": "ñ"})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "wo')
    assert run.records("metrics") == [{"epoch": 0, "word": "ñ"}, {"epoch": 1, "word": "ñ"}]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (b"{oops}\n", ", line 2 is damaged: it is no JSON"),
        (b"\xff\n", " is damaged: after line 0 it is not UTF-8"),
    ],
    ids=["not JSON", "not UTF-8"],
)
def test_a_damaged_record_is_an_error_that_names_the_file_and_the_place(run, damage, told):
    run.append("metrics", {"epoch": 0})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(damage)
    with pytest.raises(RunError, match=rf"metrics\.jsonl{told}\. Copy it back\.$"):
        run.records("metrics")


def test_going_back_takes_the_result_along_unless_the_run_is_at_its_end(run):
    for epoch, step in enumerate((10, 20)):
        run.append("metrics", {"epoch": epoch})
        save(run, step)  # no best model that could tell whose losses they are
    run.write_losses({"test": torch.zeros(3)})
    run.write_summary({"test_perplexity": 80.0})
    run.write_result({"name": "mle"})
    run.forget_after(step=20, epochs=2)
    assert torch.equal(run.losses("test"), torch.zeros(3))
    assert (run.summary(), run.result()) == ({"test_perplexity": 80.0}, {"name": "mle"})
    run.forget_after(step=10, epochs=1)
    assert (run.losses("test"), run.summary(), run.result()) == (None, None, None)


def test_a_checkpoint_whose_epochs_are_not_told_is_refused(run):
    for epoch, step in enumerate((10, 20, 30)):
        run.append("metrics", {"epoch": epoch})
        save(run, step)
    path = run.path / "metrics.jsonl"
    run.check_told(3)
    for kept, lost in ((-1, 2), (-20, 1)):  # the last line is torn; then the one before it, too
        path.write_text(path.read_text()[:kept])
        with pytest.raises(
            RunError, match=rf"metrics\.jsonl has no line of epoch {lost}, which is behind the"
        ):
            run.check_told(3)
        run.check_told(lost)


def test_a_summary_is_there_when_the_run_is_finished(run):
    assert run.summary() is None
    run.write_summary({"test_perplexity": 81.2})
    assert run.summary() == {"test_perplexity": 81.2}


def test_lines_are_replaced_by_those_with_the_same_field_and_no_others(run):
    first = [{"key": "a", "words": ["ö"]}, {"key": "b", "words": ["one"]}, {"key": "b", "words": ["two"]}]
    run.replace("generations", "key", {"a", "b"}, first)
    assert run.records("generations") == first
    assert run.records("generations", key="b") == first[1:]
    assert run.records("generations", key="b", words=["two"]) == first[2:]
    assert run.records("generations", key="c") == run.records("generations", other=None) == []
    run.replace("generations", "key", {"b"}, [{"key": "b", "words": ["three"]}])
    assert run.records("generations") == [first[0], {"key": "b", "words": ["three"]}]
    run.replace("generations", "key", {"a"}, [])
    assert run.records("generations") == [{"key": "b", "words": ["three"]}]
    assert names(run) == [".lock", "config.json", "generations.jsonl"]


def test_lines_are_written_and_read_one_by_one_and_a_failure_leaves_those_there_were(run):
    class Line(dict):
        """A dictionary that can be watched."""

    alive = weakref.WeakValueDictionary()
    most = []

    def lines(count):
        for number in range(count):
            line = Line(key="a", number=number)
            alive[number] = line
            most.append(len(alive))
            yield line

    run.replace("generations", "key", {"a"}, lines(50))
    assert max(most) <= 2  # the one that is written, and the one that is made
    assert [record["number"] for record in run.each("generations")] == list(range(50))
    assert next(run.each("generations", number=3)) == {"key": "a", "number": 3}

    def broken():
        yield {"key": "a", "number": 0}
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match=r"cannot write .*generations\.jsonl: No space left on device"):
        run.replace("generations", "key", {"a"}, broken())
    assert len(run.records("generations")) == 50
    assert names(run) == [".lock", "config.json", "generations.jsonl"]


def test_scores_are_those_of_the_model_as_it_is_now(run):
    def put(signature, model):
        run.replace("scores", "signature", {signature}, [{"signature": signature, "model": model}])

    save(run, 1, best=True)
    put("ppl", run.best_fingerprint())
    put("bleu4", run.best_fingerprint())
    assert [score["signature"] for score in run.scores()] == ["ppl", "bleu4"]
    save(run, 2, best=True)  # trained further
    assert run.scores() == []
    put("ppl", run.best_fingerprint())
    assert [score["signature"] for score in run.scores()] == ["ppl"]
    assert len(run.records("scores")) == 2  # nothing is lost
    for path in run.path.glob("best-*"):
        path.unlink()
    assert len(run.scores()) == 2  # nothing says which is the present one


def test_lines_that_are_replaced_at_the_same_time_are_all_kept(run):
    def put(number):
        RunDirectory(run.path).replace(
            "scores", "signature", {f"ppl|seed:{number}"}, [{"signature": f"ppl|seed:{number}"}]
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(40)))
    assert {record["signature"] for record in run.records("scores")} == {f"ppl|seed:{n}" for n in range(40)}
