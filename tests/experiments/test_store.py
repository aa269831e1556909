"""What is known of a finished run, as one object, and many of them from wherever they are stored."""

import csv
import io
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.saved_runs import reconfigure

from nnrs.errors import RunError
from nnrs.experiments.config import RunConfig
from nnrs.experiments.options import configure
from nnrs.experiments.plan import Plan, expand
from nnrs.experiments.run import start
from nnrs.experiments.scoring import evaluate_run
from nnrs.experiments.store import Result, build_result, collect
from nnrs.experiments.subject import Request
from nnrs.experiments.table import results_csv
from nnrs.experiments.trajectory import trajectory_of
from nnrs.grid_directory import GridDirectory
from nnrs.run_directory import RunDirectory

CPU = torch.device("cpu")
REQUEST = Request(
    metrics=("perplexity", "bleu"), sentences=12, prefix=3, length=6, decodings=("sample", "greedy")
)


def given(text, **options):
    size = {"units": 8, "layers": 1, "batch_size": 4, "bptt": 8, "epochs": 3, "learning_rate": 5.0}
    return {"data": str(text), "method": "ss-nnrs", "schedule": "linear", **size, **options}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A measured run, while it still stands. Copy its directory before changing it."""
    folder = tmp_path_factory.mktemp("store")
    text = folder / "words.txt"
    text.write_text(
        "\n".join(" ".join(f"w{(row * 3 + n * n) % 11}" for n in range(9)) for row in range(240)) + "\n"
    )
    run = start(configure(given(text, neighbor_rate="0:0.4", prediction_rate="0.2:0.4")), folder / "run", CPU)
    run.finish()
    evaluate_run(run.directory.path, CPU, REQUEST)
    return run


@pytest.fixture
def copied(made, tmp_path):
    shutil.copytree(made.directory.path, tmp_path / "run")
    return RunDirectory(tmp_path / "run")


def result_of(name, **more):
    """An invented result."""
    labels = {"method": name.partition("_")[0]}
    names = {"corpus": "ptb", "vectors": None}
    numbers = dict.fromkeys(("valid_perplexity", "test_perplexity", "valid_nats", "test_nats"), 2.5)
    shares = {"dose": {"prediction": 0.1}, "effective": {"all": 0.2}}
    rest = {"seed": 1, "group": "0a", "best_epoch": 1, "parameters": 7, "config": RunConfig().as_dict()}
    empty = {"epochs": [], "scores": [], "samples": [], "trajectory": None}
    last = {"signature": "ppl|seed:1", "command": "nnrs train", "timing": {"train_seconds": 1.5}}
    return {
        "format": 2,
        "name": name,
        "labels": labels,
        "names": names,
        **numbers,
        **shares,
        **rest,
        **empty,
        **last,
        **more,
    }


def test_a_result_holds_the_run_in_numbers(made):
    record = build_result(made.directory).record
    summary, epochs = made.directory.summary(), made.directory.records("metrics")
    assert (record["name"], record["labels"], record["seed"]) == ("run", {"method": "ss-nnrs"}, 1)
    assert record["test_perplexity"] == summary["test_perplexity"]
    assert record["test_nats"] == pytest.approx(math.log(summary["test_perplexity"]), rel=1e-15)
    assert record["valid_nats"] == pytest.approx(math.log(summary["valid_perplexity"]), rel=1e-15)
    assert record["parameters"] == made.parameters
    assert record["epochs"] == [pytest.approx(epoch, rel=5e-7) for epoch in epochs]
    kept, known = (lines[-1]["valid_perplexity"] for lines in (record["epochs"], epochs))
    assert kept == float(f"{known:.7g}") != known
    # linear, three epochs: 0.2, 0.3, 0.4 and 0, 0.2, 0.4
    assert record["dose"] == {"prediction": pytest.approx(0.3), "neighbor": pytest.approx(0.2)}
    parts = record["effective"]
    assert parts["all"] == pytest.approx(parts["prediction"] + parts["neighbor"])


def test_the_time_of_a_run_is_that_of_its_epochs_and_unknown_where_the_line_of_one_is_lost(copied):
    spent = [line["train_seconds"] for line in copied.records("timing")]
    assert len(spent) == 3
    assert build_result(copied).record["timing"]["train_seconds"] == pytest.approx(sum(spent), rel=1e-12)
    timing = copied.path / "timing.jsonl"
    timing.write_bytes(timing.read_bytes()[:-9])  # cut in its last line
    copied.write_result(build_result(copied).record)
    [result] = collect(copied.path)
    assert result.record["timing"]["train_seconds"] is None
    [row] = csv.DictReader(results_csv([result]).splitlines())
    assert row["train_seconds"] == ""


@pytest.mark.parametrize("best", [0, 1, 2])
def test_what_was_really_replaced_is_counted_up_to_the_epoch_that_is_scored(copied, best):
    copied.write_summary(copied.summary() | {"best_epoch": best})
    first, second, third = (epoch["effective_rate"] for epoch in copied.records("metrics"))
    assert first < second < third
    expected = [first, (first + second) / 2, (first + second + third) / 3][best]
    record = build_result(copied).record
    assert record["effective"]["all"] == pytest.approx(expected)
    assert record["dose"]["prediction"] == pytest.approx(0.3)  # the plan is the whole plan


def test_a_result_names_no_folder_of_its_machine_and_is_plain_json(made):
    folder = made.directory.path.parent
    files = {name: str(folder / name) for name in ("data", "vectors", "oracle")}
    request = replace(REQUEST, **files)
    record = build_result(made.directory, request=request, trajectory=trajectory_of(made)).record
    assert json.loads(json.dumps(record)) == record
    assert str(folder) not in json.dumps(record)
    assert [record["request"][name] for name in files] == list(files)
    assert record["config"]["data"]["source"] == "words.txt"


def test_scores_and_samples_are_those_of_the_present_model(made, copied):
    scores = build_result(made.directory).scores
    assert {score["metric"] for score in scores} == {"ppl", "bleu4", "corpus-bleu4"}
    assert len([score for score in scores if score["metric"] == "bleu4"]) == 2  # sample and greedy
    for name in ("scores", "generations"):
        path = copied.path / f"{name}.jsonl"
        older = [{**json.loads(line), "model": "an earlier one"} for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(line) + "\n" for line in older))
    assert build_result(copied).scores == []
    assert build_result(copied).record["samples"] == []


def test_samples_are_five_sentences_from_all_over_the_text_under_one_way_of_decoding(made):
    samples = build_result(made.directory).record["samples"]
    stored = [line for line in made.directory.records("generations") if "decode:sample" in line["key"]]
    assert len(stored) == 12
    assert [sample["gold"] for sample in samples] == [stored[at]["gold"] for at in (0, 2, 4, 7, 9)]
    assert {sample["decode"] for sample in samples} == {"sample"}
    assert {(len(sample["prefix"]), len(sample["generated"])) for sample in samples} == {(3, 6)}


def test_runs_share_a_group_when_only_their_seeds_differ(made, tmp_path):
    text = made.parts.config.data.source
    rates = {"neighbor_rate": "0:0.4", "prediction_rate": "0.2:0.4"}
    for name, options in {"seed": {"seed": 7}, "k": {"k": 2}}.items():
        start(configure(given(text, **rates, **options)), tmp_path / name, CPU).finish()
    mine, seed, other = (
        build_result(RunDirectory(path)).group
        for path in (made.directory.path, tmp_path / "seed", tmp_path / "k")
    )
    assert mine == seed != other


def test_another_text_of_the_same_name_is_another_group(made, tmp_path):
    text = tmp_path / "words.txt"
    text.write_text(Path(made.parts.config.data.source).read_text().replace("w10", "w9"))
    rates = {"neighbor_rate": "0:0.4", "prediction_rate": "0.2:0.4"}
    start(configure(given(text, **rates)), tmp_path / "run", CPU).finish()
    ours, theirs = build_result(made.directory), build_result(RunDirectory(tmp_path / "run"))
    assert ours.record["names"] == theirs.record["names"]
    assert ours.group != theirs.group


def test_a_trajectory_tells_where_each_input_came_from(made):
    shown = trajectory_of(made)
    table, ids = made.parts.policy.table, made.parts.text.vocabulary.ids
    counted = {"gold": 0, "neighbor": 0, "prediction": 0}
    for gold, used, source in zip(shown["gold"], shown["inputs"], shown["sources"], strict=True):
        counted[source] += 1
        if source == "gold":
            assert used == gold
        if source == "neighbor":
            assert ids[used] in table.ids[ids[gold]].tolist()
    assert all(counted.values()), counted
    for step, source in enumerate(shown["sources"]):
        if source != "gold":
            assert shown[f"{source}s"][step] == shown["inputs"][step]
    assert trajectory_of(made) == shown


def test_a_trajectory_has_all_that_might_have_been_taken_too(made):
    shown, vocabulary = trajectory_of(made), made.parts.text.vocabulary
    table = made.parts.policy.table
    for gold, near in zip(shown["gold"], shown["neighbors"], strict=True):
        row = vocabulary.ids[gold]
        assert (near is not None) == bool(table.replaceable[row])
        assert near is None or vocabulary.ids[near] in table.ids[row].tolist()
    assert shown["predictions"][0] is None  # nothing precedes it
    assert {*shown["predictions"][1:]} <= {*vocabulary.words}
    taken = {"neighbors", "predictions"} - {f"{source}s" for source in shown["sources"]}
    assert not taken
    assert any(s == "gold" and n for s, n in zip(shown["sources"], shown["neighbors"], strict=True))


def test_teacher_forcing_has_no_neighbors_and_no_predictions(made, tmp_path):
    run = start(configure(given(made.parts.config.data.source, method="mle")), tmp_path / "mle", CPU)
    shown = trajectory_of(run)
    assert shown["inputs"] == shown["gold"]
    assert {*shown["neighbors"], *shown["predictions"]} == {None}


def test_scores_from_before_a_run_s_end_are_not_in_its_result(copied):
    summary = copied.summary()
    (copied.path / "summary.json").unlink()
    [early] = evaluate_run(copied.path, torch.device("cpu"))
    assert f"{early.metric}|{early.signature}" in {score["signature"] for score in copied.scores()}
    copied.write_summary(summary)  # the model that it ended with was its best at that time, too
    [late] = evaluate_run(copied.path, torch.device("cpu"))
    assert late.value == early.value
    told = [score["signature"] for score in build_result(copied).scores if score["metric"] == "ppl"]
    assert f"ppl|{late.signature}" in told
    assert f"ppl|{early.signature}" not in told


def test_an_unfinished_run_has_no_result(copied):
    (copied.path / "summary.json").unlink()
    with pytest.raises(RunError, match="is not finished"):
        collect(copied.path)


def test_results_come_from_a_run_a_folder_of_runs_or_a_file_of_lines(made, tmp_path):
    for name in ("seed-10", "seed-2", "seed-3"):
        copy = tmp_path / "runs" / name
        shutil.copytree(made.directory.path, copy)
        reconfigure(copy, lambda config, name=name: config.update(seed=int(name.removeprefix("seed-"))))
    (tmp_path / "runs" / "seed-3" / "summary.json").unlink()  # still training
    found = collect(tmp_path / "runs")
    assert [result.name for result in found] == ["seed-2", "seed-10"]
    assert collect(tmp_path / "runs" / "seed-2") == found[:1]
    lines = tmp_path / "results.jsonl"
    found[0].record["labels"]["method"] = "of\u2028two lines"  # which some would split
    lines.write_text("".join(json.dumps(result.record, ensure_ascii=False) + "\n" for result in found))
    assert collect(lines) == found


def lines_of(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_a_run_that_comes_several_times_counts_once_with_the_most_scores_that_any_copy_has(made, tmp_path):
    [measured] = collect(made.directory.path)
    assert measured.scores
    bare = lines_of(tmp_path / "bare.jsonl", {**measured.record, "name": "elsewhere", "scores": []})
    other = lines_of(tmp_path / "other.jsonl", {**measured.record, "seed": 9})
    shutil.copytree(made.directory.path, tmp_path / "copy")
    sources = bare, made.directory.path, other, tmp_path / "copy", bare
    assert [(result.name, result.seed) for result in collect(*sources)] == [("run", 1), ("run", 9)]
    assert collect(*sources)[0] == measured


@pytest.mark.parametrize("apart", ["seed", "group", "model", "signature", "test_nats"])
def test_different_runs_of_one_name_are_several(apart, tmp_path):
    first = result_of("mle", model="0123")
    second = {**first, apart: 7 if apart in ("seed", "test_nats") else f"not {first[apart]}"}
    assert len(collect(lines_of(tmp_path / "a.jsonl", first), lines_of(tmp_path / "b.jsonl", second))) == 2


def test_a_stored_result_is_read_unless_the_model_or_the_format_is_another_by_now(copied):
    stored = build_result(copied).record
    copied.write_result({**stored, "labels": {"method": "mine"}})
    assert collect(copied.path)[0].labels == {"method": "mine"}
    for earlier in ({"model": "of before"}, {"format": 1}):
        copied.write_result({**stored, "labels": {"method": "mine"}, **earlier})
        assert collect(copied.path)[0].labels == {"method": "ss-nnrs"}


def test_a_stored_result_counts_where_its_model_was_not_copied_along(copied):
    copied.write_result({**build_result(copied).record, "labels": {"method": "mine"}})
    for path in [*copied.path.glob("best-*"), *copied.path.glob("checkpoint-*")]:
        path.unlink()
    assert collect(copied.path)[0].labels == {"method": "mine"}
    assert collect(copied.path)[0].record["model"]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{")], ids=["lost", "damaged"])
def test_a_stored_result_counts_where_its_model_is_lost_and_an_older_one_is_there(copied, damage):
    stored = build_result(copied).record
    copied.write_result({**stored, "labels": {"method": "mine"}})
    older, newest = sorted(copied.path.glob("best-*.json"))
    damage(newest)
    assert collect(copied.path)[0].labels == {"method": "mine"}
    (copied.path / "result.json").unlink()  # without it the model is needed
    with pytest.raises(RunError, match=rf"{older.stem}, is of epoch 1|{newest.name} is damaged"):
        collect(copied.path)


def test_a_result_that_was_made_without_the_model_can_be_read_back(copied, tmp_path):
    for path in copied.path.glob("best-*"):
        path.unlink()
    [made] = collect(copied.path)
    assert made.record["parameters"] is None
    assert collect(lines_of(tmp_path / "results.jsonl", made.record)) == [made]
    [row] = csv.DictReader(io.StringIO(results_csv([made])))
    assert row["parameters"] == ""


def test_a_finished_run_without_its_epochs_is_refused(copied):
    path = copied.path / "metrics.jsonl"
    for kept in (2, 0):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:kept]))
        with pytest.raises(
            RunError, match=rf"run is finished, but metrics\.jsonl has {kept} of its 3 epochs"
        ):
            collect(copied.path)


def test_a_grid_leaves_out_a_result_of_another_model_than_the_present_one(copied, tmp_path):
    [cell] = expand({"method": ["ss-nnrs"]})
    plan = Plan(kind="grid", title="t", command="c", cells=(cell,), request=Request())
    grid = GridDirectory(tmp_path / "grid")
    shutil.copytree(copied.path, grid.run_path(cell.name))
    grid.write_plan(plan.as_dict())
    run, stored = RunDirectory(grid.run_path(cell.name)), build_result(copied).record
    run.write_result(stored)
    assert len(collect(grid.path)) == 1
    run.write_result({**stored, "model": "of before"})
    assert collect(grid.path) == []


def test_a_grid_gives_its_results_in_the_plan_s_order_under_the_plan_s_labels(tmp_path):
    cells = tuple(expand({"method": ["ss", "nnrs"], "schedule": ["static", "linear"], "seeds": "1"}))
    plan = Plan(kind="grid", title="t", command="c", cells=cells, request=Request())
    grid = GridDirectory(tmp_path)
    grid.write_plan(plan.as_dict())
    for cell in reversed(cells[1:]):  # the first is still missing
        record = result_of("old_name", group=cell.name)
        RunDirectory.create(grid.run_path(cell.name), {}).write_result(record)
    found = collect(tmp_path)
    assert [(result.name, result.labels) for result in found] == [
        (cell.name, cell.labels) for cell in cells[1:]
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 2 of .* is no JSON"),
        ("[1]", "line 2 of .* is not a result"),
        ('{"metric": "ppl"}', "line 2 of .* is not a result"),
        (
            json.dumps(result_of("mle_seed-1", format=3)),
            "line 2 of .* has result format 3; .* reads 2. Update nnrs",
        ),
        (json.dumps(result_of("mle_seed-1", format=1)), "line 2 of .* has result format 1; .* Make it again"),
    ],
    ids=["torn", "list", "score", "newer", "older"],
)
def test_a_file_that_holds_something_else_is_refused_by_its_line(line, told, tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(result_of("mle_seed-1")) + "\n" + line + "\n")
    with pytest.raises(RunError, match=told):
        collect(path)


SCORE = {"metric": "bleu4", "value": 3.25, "signature": "bleu4|n:9"}
DAMAGES = {
    "a text for a number": ({"test_perplexity": "oops"}, 'test_perplexity must be a number, got "oops"'),
    "nothing for a number": ({"valid_nats": None}, "valid_nats must be a number, got null or nothing"),
    "truth for a number": ({"test_nats": True}, "test_nats must be a number, got true"),
    "a text for parameters": ({"parameters": "7"}, "parameters must be a whole number or null"),
    "a fraction for a seed": ({"seed": 1.5}, r"seed must be a whole number, got 1\.5"),
    "a list for labels": ({"labels": ["mle"]}, r'labels must be an object, got \["mle"\]'),
    "a number for a label": ({"labels": {"method": 3}}, "labels must be an object of texts"),
    "no method": ({"labels": {"row": "a"}}, r"labels\.method must be a text, got null or nothing"),
    "a text for a config": ({"config": "x"}, "config must be an object"),
    "half a config": ({"config": {"data": {}}}, r"config\.policy must be an object, got null or nothing"),
    "no name of the text": ({"names": {}}, r"names\.corpus must be a text, got null or nothing"),
    "an object for scores": ({"scores": SCORE}, r"scores must be a list of objects, got .{40} \.\.\."),
    "a number for a score": ({"scores": [3]}, "scores must be a list of objects"),
    "a text for a value": (
        {"scores": [SCORE, {**SCORE, "value": "3"}]},
        "value must be a number, .* its scores",
    ),
    "no signature": (
        {"scores": [{"metric": "bleu4", "value": 3.0}]},
        "signature must be a text, .* its scores",
    ),
    "no metric": ({"scores": [{**SCORE, "metric": None}]}, "metric must be a text, .* its scores"),
    "a text for an epoch": ({"epochs": [{"valid_perplexity": "1"}]}, "valid_perplexity .* its epochs"),
    "a text for a dose": ({"dose": {"prediction": "0"}}, "dose must be an object of numbers"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_result_is_refused_by_its_line_and_field(name, tmp_path):
    damage, told = DAMAGES[name]
    sound = result_of("mle_seed-1", scores=[SCORE], epochs=[{"valid_perplexity": 2}])
    path = lines_of(tmp_path / "results.jsonl", sound, {**sound, **damage})
    with pytest.raises(RunError, match=rf"line 2 of .* is a damaged result: {told}") as caught:
        collect(path)
    assert "\n" not in str(caught.value)


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(RunError, match=r"cannot read .*none\.jsonl: No such file"):
        collect(tmp_path / "none.jsonl")
    with pytest.raises(RunError, match="is not a run directory"):
        collect(tmp_path)
    with pytest.raises(
        RunError, match=r"none does not exist: results come from a \.jsonl or \.jsonl\.xz file"
    ):
        collect(tmp_path / "none")


def test_a_table_has_a_row_for_each_run_and_a_column_for_each_number():
    score = {"metric": "bleu4", "value": 3.25, "signature": "bleu4|n:9|decode:greedy|split:test|seed:1"}
    first = result_of("mle_seed-1", labels={"method": "mle"})
    second = result_of("ss_seed-1", labels={"method": "ss", "row": 'S, "S"\n1'}, scores=[score])
    rows = list(csv.DictReader(io.StringIO(results_csv([Result(first), Result(second)]))))
    assert [row["row"] for row in rows] == ["", 'S, "S"\n1']
    assert [row["bleu4|test|greedy"] for row in rows] == ["", "3.25"]
    assert {
        (row["seed"], row["test_nats"], row["dose_prediction"], row["effective_all"]) for row in rows
    } == {("1", "2.5", "0.1", "0.2")}
    assert list(rows[0])[:3] == ["name", "method", "row"]
    assert list(rows[0])[-2:] == ["signature", "command"]


def test_scores_that_were_made_in_different_ways_stand_in_different_columns():
    def made_of(number, sentences):
        told = f"bleu4|n:{sentences}|decode:greedy|split:test|data:ptb|seed:{number}"
        scores = [{"metric": "bleu4", "value": float(number), "signature": told}]
        return Result(result_of(f"ss_seed-{number}", seed=number, scores=scores))

    rows = list(csv.DictReader(io.StringIO(results_csv([made_of(1, 9), made_of(2, 7)]))))
    assert [row["bleu4|test|greedy|n:9"] for row in rows] == ["1.0", ""]
    assert [row["bleu4|test|greedy|n:7"] for row in rows] == ["", "2.0"]
    assert "bleu4|test|greedy" not in rows[0]
