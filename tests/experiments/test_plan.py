"""From a table with lists in it to runs in a stable order, and what a plan allows to follow another."""

import json
import shlex
from pathlib import Path

import pytest
import typer

from nnrs.cli.main import app
from nnrs.errors import ConfigError
from nnrs.experiments import compare, paper
from nnrs.experiments.options import command_of, configure
from nnrs.experiments.plan import Plan, cells_of, expand, read_plan
from nnrs.experiments.subject import Request

OUT = Path("runs/out")  # where a plan is continued


def plan_of(values, *, kind="grid", **request):
    plan = Plan(kind=kind, title="t", command="c", cells=tuple(expand(values)), request=Request(**request))
    plan.check_measurable()
    return plan


def names(values):
    return [cell.name for cell in expand(values)]


def test_the_last_list_varies_fastest_and_the_seeds_faster_still():
    values = {"seeds": "1-2", "schedule": ["linear", "static"], "method": ["ss", "nnrs"]}
    assert names(values) == [
        "ss_linear_seed-1",
        "ss_linear_seed-2",
        "nnrs_linear_seed-1",
        "nnrs_linear_seed-2",
        "ss_static_seed-1",
        "ss_static_seed-2",
        "nnrs_static_seed-1",
        "nnrs_static_seed-2",
    ]


def test_options_and_tables_of_settings_say_the_same():
    options = {"method": "nnrs", "k": [3, 5], "epochs": 2, "data": "synthetic", "preset": "tiny"}
    tables = {
        "policy": {"method": "nnrs", "k": [3, 5]},
        "training": {"epochs": 2},
        "data": {"source": "synthetic"},
        "model": {"preset": "tiny"},
    }
    assert expand(options) == expand(tables)
    assert names(options) == ["nnrs_k-3_seed-1", "nnrs_k-5_seed-1"]


def test_a_cell_is_what_the_options_of_train_would_make():
    [cell] = expand(
        {"data": "synthetic", "method": "ss", "schedule": "pulse", "prediction_rate": 0.3, "seed": 4}
    )
    given = {"data": "synthetic", "method": "ss", "schedule": "pulse", "prediction_rate": "0.3", "seed": 4}
    assert cell.config == configure(given)


def test_each_table_of_runs_is_laid_over_the_rest():
    values = {"method": "ss", "epochs": 2, "runs": [{"method": "mle"}, {"schedule": ["linear", "static"]}]}
    cells = expand(values)
    assert [cell.labels for cell in cells] == [
        {"method": "mle"},
        {"method": "ss", "schedule": "linear"},
        {"method": "ss", "schedule": "static"},
    ]
    assert {cell.config.training.epochs for cell in cells} == {2}


def test_a_setting_that_is_a_list_varies_as_a_list_of_lists():
    one, two = {"method": "nnrs", "protect": ["a", "b"]}, {"method": "nnrs", "protect": [["a", "b"], []]}
    assert [cell.config.vectors.protect for cell in expand(one)] == [("a", "b")]
    assert [cell.config.vectors.protect for cell in expand(two)] == [("a", "b"), ()]


def test_files_are_located_at_once_and_called_by_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = expand({"data": ["a/one.txt", "b/two.txt"]})
    assert [cell.labels["corpus"] for cell in cells] == ["one", "two"]
    assert [cell.config.data.source for cell in cells] == [
        str(tmp_path / place) for place in ("a/one.txt", "b/two.txt")
    ]


def test_files_of_one_name_are_told_apart_by_their_folders():
    assert names({"data": ["a/text.txt", "b/text.txt"]}) == [
        "ss-nnrs_a-text.txt_seed-1",
        "ss-nnrs_b-text.txt_seed-1",
    ]


def test_no_label_names_more_folders_than_tell_its_file_apart():
    cells = expand({"data": ["/texts/a/text.txt", "/texts/b/text.txt"]})
    assert [cell.labels["corpus"] for cell in cells] == ["a/text.txt", "b/text.txt"]
    cells = expand({"data": ["/texts/text.txt", "/texts/text.tok"]})
    assert [cell.labels["corpus"] for cell in cells] == ["text.txt", "text.tok"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"methd": ["ss"]}, "unknown grid setting 'methd'. Did you mean 'method'"),
        ({"policy": {"methd": "ss"}}, "unknown config setting policy 'methd'. Did you mean 'method'"),
        (
            {"method": "mle", "schedule": ["linear", "static"]},
            "mle_linear_seed-1 and mle_static_seed-1 are the same",
        ),
        ({"runs": [{"method": "ss"}, {"method": "ss"}]}, "ss_seed-1 and ss_seed-1 are the same run"),
        ({"method": ["ss", "ss"]}, "the list of policy.method names ss more than once. Name it once."),
        ({"k": []}, "the list of policy.k is empty"),
        ({"method": ["nnrs", "mle"], "k": 3}, "the run with method mle, k 3: method 'mle' has no --k"),
        (
            {"method": ["mle", "ss"], "granularity": ["token", "position"]},
            "method 'mle' has no --granularity",
        ),
        (
            {"data": "x", "method": "mle", "k": 3},
            "the run with data x, method mle, k 3: method 'mle' has no --k",
        ),
        ({"method": 5}, "config policy.method must be a text, got 5"),
        ({"epochs": [2, "3"]}, "config training.epochs must be a whole number, got '3'"),
        ({"protect": "word"}, "config vectors.protect must be a list"),
        ({"seed": 1, "seeds": "1-2"}, "seed and seeds are two ways to say it"),
        (
            {"learning_rate": [5, 10], "optimizer": {"learning_rate": 3}},
            "learning_rate and learning_rate in [optimizer] are two ways to say it: leave one of them out.",
        ),
        (
            {"training": {"epochs": 1}, "epochs": [1, 2]},
            "epochs and epochs in [training] are two ways to say it",
        ),
        (
            {"seeds": []},
            'seeds must be a text such as "1-8" or "1,3,7", got []. Write one, or list numbers as seed',
        ),
        ({"seeds": [1, 2]}, "got [1, 2]. Write one, or list numbers as seed = [1, 3, 7]."),
        ({"seeds": True}, "seeds must be a text"),
        ({"seed": [1, 2, 1]}, "the list of seed names 1 more than once. Name it once."),
        ({"k": [5, 5]}, "the list of policy.k names 5 more than once. Name it once."),
        ({"seeds": "3-1"}, "the range 3-1 runs backwards"),
        ({"policy": {"prediction_rate": [{"end": 0.1}]}}, "put each into a [[runs]] table"),
        ({"runs": {"method": "ss"}}, "write [[runs]] above each"),
        ({"runs": [{"evaluate": {}}]}, "grid setting evaluate does not go here"),
        ({"runs": []}, "the plan is empty"),
        ({"seed": list(range(1000)), "k": list(range(101))}, "101,000 runs; at most 100,000"),
    ],
)
def test_what_is_wrong_with_a_grid_is_said_in_one_line(values, told):
    with pytest.raises(ConfigError) as error:
        plan_of(values)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_metric_that_nobody_knows_is_refused_before_anything_is_trained():
    with pytest.raises(ConfigError, match=r"unknown metric 'blue'. Did you mean 'bleu'"):
        plan_of({}, metrics=("blue",))


def test_a_metric_that_a_translation_lacks_is_refused_before_anything_is_trained(tmp_path):
    for name in ("train.de", "train.en", "valid.de", "valid.en", "test.de", "test.en"):
        (tmp_path / name).touch()  # its languages are read off its files
    translation = {"data": {"source": str(tmp_path), "task": "translate"}, "method": "mle"}
    with pytest.raises(
        ConfigError,
        match=r"^mle_seed-1 is a translation: it has perplexity, bleu, but no wmd\. Leave it out\.$",
    ):
        plan_of(translation, metrics=("bleu", "wmd"))
    with pytest.raises(
        ConfigError,
        match=r"^mle_seed-1 is a translation, and sentences does not go with it: leave sentences out",
    ):
        plan_of(translation, sentences=20)
    assert plan_of(translation, metrics=("bleu", "all")).cells


@pytest.mark.parametrize("metric", ["wmd", "self-wmd"])
def test_distances_between_words_without_vectors_are_refused_before_anything_is_trained(metric):
    methods = {"method": ["nnrs", "mle"]}
    with pytest.raises(
        ConfigError, match=rf"^mle_seed-1 is trained without word vectors, which {metric} needs\."
    ):
        plan_of(methods, metrics=("perplexity", metric))
    assert plan_of({"method": "nnrs"}, metrics=(metric,)).cells
    assert plan_of({**methods, "initialise": True}, metrics=(metric,)).cells
    assert plan_of(methods, metrics=(metric,), vectors="corpus").cells
    assert plan_of(methods, metrics=("all",)).cells  # which leaves it out


def test_exposure_of_too_short_a_text_or_of_no_history_is_refused_before_anything_is_trained():
    with pytest.raises(
        ConfigError, match=r"^exposure cannot be measured: it needs a --length .* of at least 7, got 6\."
    ):
        plan_of({"method": "mle"}, metrics=("perplexity", "exposure"), length=6)
    with pytest.raises(ConfigError, match="it follows its own history"):
        plan_of({"method": "mle"}, metrics=("exposure",), decodings=("beam", "teacher-forced"))
    assert plan_of({"method": "mle"}, metrics=("exposure",), decodings=("beam", "greedy"), length=7).cells
    assert plan_of(
        {"method": "mle"}, metrics=("all", "exposure", "wmd"), length=6
    ).cells  # which leaves them out


def test_what_a_folder_holds_is_not_refused_for_what_could_not_be_measured_of_it():
    request = Request(metrics=("wmd",))
    held = Plan(kind="grid", title="t", command="c", cells=tuple(expand({"method": "mle"})), request=request)
    with pytest.raises(
        ConfigError, match=r"^runs/out holds runs that are measured with other vectors \(null there"
    ):
        plan_of({"method": "mle"}, metrics=("wmd",), vectors="corpus").following(
            Plan.from_dict(held.as_dict()), OUT
        )


def test_a_grid_file_gives_a_plan(tmp_path):
    path = tmp_path / "rates.toml"
    path.write_text('method = ["mle", "ss"]\n[evaluate]\nmetrics = ["perplexity", "bleu"]\nsentences = 7\n')
    plan = read_plan(path, "nnrs grid rates.toml")
    assert (plan.kind, plan.title, plan.command) == ("grid", "rates", "nnrs grid rates.toml")
    assert plan.request == Request(metrics=("perplexity", "bleu"), sentences=7)
    assert [cell.name for cell in plan.cells] == ["mle_seed-1", "ss_seed-1"]
    path.write_text("[evaluate]\nsentence = 7\n")
    with pytest.raises(
        ConfigError, match=r"unknown config setting evaluate 'sentence'. Did you mean 'sentences'"
    ):
        read_plan(path, "")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('seeds = "1..8"', "seeds takes numbers and ranges such as 1-8 or 1,3,7; got '1..8'."),
        ("seeds = -1", "seeds takes numbers and ranges such as 1-8 or 1,3,7; got '-1'."),
        ('neighbor_rate = "0:2"', "the run with neighbor_rate 0:2: neighbor_rate: "),
        ("bptt = 7\n[data]\ntask = 'translate'", "reads whole sentences: leave bptt out."),
        ("to_language = 'de'", "from_language and to_language go with task translate: add it"),
        ("unroll = 'exact'\npasses = 3", "leave passes out, or unroll."),
        ("weight_dropout = 0.5\nmodel = 'transformer'", "to drop: leave weight_dropout out."),
    ],
)
def test_a_grid_file_is_told_of_by_its_keys(line, told, tmp_path):
    (tmp_path / "grid.toml").write_text(f"{line}\n")
    with pytest.raises(ConfigError) as error:
        read_plan(tmp_path / "grid.toml", "")
    assert told in str(error.value)
    assert "--" not in str(error.value)


@pytest.mark.parametrize("name", ["metrics", "splits", "decodings"])
def test_a_grid_file_that_asks_for_none_of_something_is_refused(name, tmp_path):
    (tmp_path / "grid.toml").write_text(f"[evaluate]\n{name} = []\n")
    with pytest.raises(ConfigError, match=f"{name} must name at least one, got none"):
        read_plan(tmp_path / "grid.toml", "")


def test_a_grid_file_that_says_nothing_is_refused(tmp_path):
    """Cut off as it was saved, say: the plan would be the default run, of hours."""
    (tmp_path / "grid.toml").write_text("# nothing\n")
    with pytest.raises(ConfigError, match=r"grid\.toml is empty\. Write settings of nnrs train into it"):
        read_plan(tmp_path / "grid.toml", "")


def test_a_plan_survives_json():
    plan = plan_of(
        {"method": ["nnrs", "mle"], "seeds": "1-2"}, metrics=("perplexity", "bleu"), splits=("valid",)
    )
    assert Plan.from_dict(json.loads(json.dumps(plan.as_dict()))) == plan
    with pytest.raises(ConfigError, match="format 99"):
        Plan.from_dict({**plan.as_dict(), "format": 99})


def test_a_plan_may_grow_and_known_runs_keep_their_names_while_new_ones_come_behind():
    before = plan_of({"method": "ss", "schedule": "linear", "seeds": "1-2"})
    after = plan_of({"method": "ss", "schedule": ["static", "linear"], "seeds": "1-2"}).following(before, OUT)
    assert [(cell.name, cell.labels.get("schedule")) for cell in after.cells] == [
        ("ss_seed-1", "linear"),
        ("ss_seed-2", "linear"),
        ("ss_static_seed-1", "static"),
        ("ss_static_seed-2", "static"),
    ]


def test_a_plan_that_lacks_runs_or_measures_otherwise_is_refused():
    before = plan_of({"seeds": "1-9"})
    with pytest.raises(
        ConfigError, match=r"lacks: ss-nnrs_seed-2, ss-nnrs_seed-3, ss-nnrs_seed-4 and 5 more"
    ):
        plan_of({"seeds": "1"}).following(before, OUT)
    with pytest.raises(
        ConfigError, match=r"measured with other sentences \(1000 there, 5 here\)\. Ask for the same"
    ):
        plan_of({"seeds": "1-9"}, sentences=5).following(before, OUT)
    with pytest.raises(ConfigError, match="made as grid and not as compare"):
        plan_of({"seeds": "1-9"}, kind="compare").following(before, OUT)


def test_the_setting_is_named_of_any_run_that_has_its_name_in_both_plans():
    before = plan_of({"seeds": "1-2", "epochs": 2})
    with pytest.raises(
        ConfigError, match=r"whose ss-nnrs_seed-2 differs in training.epochs \(2 there, 3 here\)"
    ):
        plan_of({"seeds": "2-3", "epochs": 3}).following(before, OUT)


def test_a_plan_whose_runs_have_another_setting_is_refused_with_both_values():
    stored = json.loads(json.dumps(plan_of({"method": ["mle", "nnrs"], "seeds": "1-2"}).as_dict()))
    for cell in stored["cells"]:
        cell["config"]["training"]["precision"] = "bf16"  # what was the default then
    with pytest.raises(ConfigError) as error:
        plan_of({"method": ["mle", "nnrs"], "seeds": "1-3"}).following(Plan.from_dict(stored), OUT)
    assert str(error.value) == (
        'runs/out holds another plan, whose mle_seed-1 differs in training.precision ("bf16" there, "auto" here). '
        "Set that as it is there, or choose another --out; a plan may only grow."
    )
    many = {"epochs": 2, "clip": 1.0, "units": 16, "learning_rate": 3.0}
    with pytest.raises(
        ConfigError, match=r"in model.units .*, optimizer.clip .*, optimizer.learning_rate .* and 1 more"
    ):
        plan_of(many).following(plan_of({}), OUT)


def test_no_seeds_are_told_by_their_name():
    for make in (
        lambda: cells_of({"data": "synthetic"}, ["mle", "ss"], []),
        lambda: compare.plan(["mle", "ss"], [], {"data": "synthetic:100"}, command="c"),
        lambda: paper.plan("table1", paper.pilot_corpora(), {}, [], command="c", pilot=True),
    ):
        with pytest.raises(ConfigError, match=r"^seeds is empty: .* Name at least one, such as \[1\]\.$"):
            make()


def test_cells_of_methods_share_options_and_leave_out_what_means_nothing_to_one():
    rates = {"neighbor_rate": "0:0.3", "prediction_rate": "0:0.1"}
    options = {"data": "synthetic", **rates, "temperature": 0.75, "granularity": "position"}
    cells = cells_of(options, ["mle", "ss", "nnrs"], [1, 2], {"row": "X 1", "corpus": "syn"})
    assert [cell.name for cell in cells[::2]] == ["X-1_syn_seed-1"] * 3
    assert [cell.config.seed for cell in cells] == [1, 2] * 3
    assert cells[0].labels == {"method": "mle", "row": "X 1", "corpus": "syn"}
    mle, ss, nnrs = (cell.config.policy for cell in cells[::2])
    assert (mle.prediction_rate, mle.neighbor_rate, mle.temperature) == (None, None, None)
    assert (ss.prediction_rate.end, ss.neighbor_rate) == (0.1, None)
    assert (nnrs.prediction_rate, nnrs.neighbor_rate.end, nnrs.temperature) == (None, 0.3, 0.75)
    assert [policy.granularity for policy in (mle, ss, nnrs)] == ["token", "position", "position"]


def test_what_a_config_file_says_reaches_the_methods_that_have_it(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("[policy]\nk = 3\nneighbor_rate = {end = 0.3}\n[training]\nepochs = 2\n")
    cells = cells_of({"data": "synthetic", "config": file}, ["mle", "ss", "nnrs"], [1])
    assert [cell.config.policy.k for cell in cells] == [None, None, 3]
    assert [cell.config.policy.neighbor_rate is None for cell in cells] == [True, True, False]
    assert cells[2].config.policy.neighbor_rate.end == 0.3
    assert [cell.config.training.epochs for cell in cells] == [2, 2, 2]


@pytest.mark.parametrize(
    ("rule", "temperature", "of_tprs"),
    [("constant", 0.05, ("constant", 0.05)), ("prose", 0.75, ("constant", 1.0))],
    ids=["constant", "prose"],
)
@pytest.mark.parametrize("method", [None, "nnrs"])
def test_methods_of_one_config_have_one_temperature_where_they_have_its_rule(
    rule, temperature, of_tprs, method, tmp_path
):
    policy = {"rule": rule, "temperature": temperature, **({"method": method} if method else {})}
    (tmp_path / "config.json").write_text(json.dumps({"policy": policy}))
    options = {"data": "synthetic", "config": tmp_path / "config.json"}
    cells = cells_of(options, ["mle", "nnrs", "ss-nnrs", "shuffled", "tprs"], [1])
    settled = [(cell.config.policy.rule, cell.config.policy.temperature) for cell in cells]
    assert settled == [(None, None), *[(rule, temperature)] * 3, of_tprs]
    options = {"data": "synthetic", "rule": rule, "temperature": temperature}  # as options, the same
    methods = [cell.config.policy.method for cell in cells]
    assert [cell.config.policy for cell in cells_of(options, methods, [1])] == [
        cell.config.policy for cell in cells
    ]


COMMANDS = {
    "plain": {"method": "mle"},
    "preset": {
        "data": "synthetic",
        "preset": "medium",
        "method": "ss-nnrs",
        "schedule": "pulse",
        "k": 5,
        "seed": 9,
    },
    "sizes": {"units": 32, "dropout": 0.25, "layers": 1, "model": "gru"},
    "transformer": {
        "model": "transformer",
        "optimizer": "sgd",
        "learning_rate": 0.5,
        "annealing": "constant",
    },
    "rates": {"method": "ss", "prediction_rate": "0.1:0.7", "unroll": "exact", "predict": "greedy"},
    "lists": {"method": "nnrs", "protect": ("a b", "c"), "initialise": True, "rule": "constant"},
    "tprs": {"method": "tprs", "transition_row": "previous", "transition_whole": True},
}


@pytest.mark.parametrize("options", COMMANDS.values(), ids=COMMANDS)
def test_the_command_of_a_run_makes_the_same_run(options):
    config = configure(options)
    words = shlex.split(command_of(config))
    assert words[:2] == ["nnrs", "train"]
    parser = typer.main.get_command(app).commands["train"]
    parsed = parser.make_context("train", words[2:]).params
    given = {name: value for name, value in parsed.items() if value not in (None, [], (), False)}
    given["protect"] = tuple(given.get("protect", ()))
    for name in ("out", "device"):
        del given[name]
    assert configure(given) == config


@pytest.mark.parametrize("name", ["", "my run", "seed-2", "nnrs_k-5_seed-12"])
def test_the_command_of_a_run_puts_it_where_its_cell_was_and_any_other_by_its_method_and_seed(name):
    config = configure({"data": "ptb", "method": "nnrs", "k": 5, "seed": 2})
    assert command_of(config, "nnrs_k-5_seed-2").endswith(" --out nnrs_k-5_seed-2")
    assert command_of(config, name).endswith(" --out nnrs_seed-2")


def test_the_command_of_a_run_names_no_folder_of_this_machine_and_no_option_too_many():
    assert command_of(configure({"data": "/texts/ptb", "method": "nnrs", "seed": 2})) == (
        "nnrs train --data ptb --method nnrs --seed 2 --out nnrs_seed-2"
    )


def test_settings_without_an_option_are_taken_from_the_config(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("[training]\nvalid_streams = 3\n")
    assert "--config config.json" in command_of(configure({"config": path}))


def test_what_is_said_of_runs_names_keys_where_a_file_made_the_plan_and_options_elsewhere():
    told = "Lower --learning-rate."
    assert plan_of({"method": "mle"}).worded(told) == "Lower learning_rate."
    assert plan_of({"method": "mle"}, kind="compare").worded(told) == told
