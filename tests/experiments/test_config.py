"""A configuration goes to plain values and back, and says what is wrong with those it cannot take."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nnrs.errors import ConfigError
from nnrs.experiments.config import RunConfig, read_config, settings_of
from nnrs.experiments.options import command_of, configure
from nnrs.experiments.prepare import choose_device, located
from nnrs.models.base import PRESETS, ModelConfig
from nnrs.policies.methods import METHODS
from nnrs.schedules import SHAPES, Schedule

BAD = {
    "section": ({"trainin": {}}, "unknown config setting 'trainin'. Did you mean 'training'?"),
    "key": ({"training": {"epoch": 3}}, "unknown config setting training 'epoch'. Did you mean 'epochs'?"),
    "model key": ({"model": {"unit": 3}}, "unknown config setting model 'unit'. Did you mean 'units'?"),
    "rate key": (
        {"policy": {"neighbor_rate": {"begin": 0.1}}},
        "unknown config setting policy.neighbor_rate 'begin'.",
    ),
    "preset": ({"model": {"preset": "larg"}}, "unknown preset 'larg'. Did you mean 'large'?"),
    "annealing": ({"optimizer": {"annealing": "cosin"}}, "unknown annealing 'cosin'. Did you mean 'cosine'?"),
    "granularity": ({"policy": {"granularity": "tokens"}}, "unknown granularity 'tokens'."),
    "unroll": ({"policy": {"unroll": "exakt"}}, "unknown unroll 'exakt'. Did you mean 'exact'?"),
    "text for a number": (
        {"training": {"epochs": "many"}},
        "training.epochs must be a whole number, got 'many'",
    ),
    "truth for a number": (
        {"training": {"epochs": True}},
        "training.epochs must be a whole number, got True",
    ),
    "fraction for a count": ({"policy": {"k": 2.5}}, "policy.k must be a whole number, got 2.5"),
    "number for a name": ({"policy": {"method": 3}}, "policy.method must be a text, got 3"),
    "list for a name": ({"model": {"preset": ["tiny"]}}, "model.preset must be a text, got ['tiny']"),
    "number for a table": ({"data": 3}, "data must be a table of source, min_count, max_vocabulary, "),
    "text for a rate": (
        {"policy": {"neighbor_rate": "0:0.2"}},
        "policy.neighbor_rate must be a table of shape, start, end, got '0:0.2'",
    ),
    "text for a list": ({"vectors": {"protect": "not"}}, "vectors.protect must be a list, got 'not'"),
    "numbers in a list": ({"vectors": {"protect": ["not", 3]}}, "vectors.protect must be a text, got 3"),
    "rate below 0": ({"policy": {"neighbor_rate": {"start": -0.1}}}, "start must be a probability in [0, 1]"),
    "rate of nan": ({"policy": {"prediction_rate": {"end": float("nan")}}}, "probability in [0, 1], got nan"),
    "rate of another method": (
        {"policy": {"method": "mle", "neighbor_rate": {}}},
        "'mle' has no --neighbor-rate: leave it out, or use one of nnrs",
    ),
    "temperature of 0": ({"policy": {"temperature": 0}}, "temperature must be in [0.0001, 10000], got 0.0"),
    "temperature of nan": ({"policy": {"temperature": float("nan")}}, "[0.0001, 10000], got nan"),
    "endless temperature": ({"policy": {"temperature": float("inf")}}, "[0.0001, 10000], got inf"),
    "dropout of 1": ({"model": {"dropout": 1}}, "dropout must be in [0, 0.99], got 1.0"),
    "learning rate of nan": ({"optimizer": {"learning_rate": float("nan")}}, "must be positive, got nan"),
    "no epochs": ({"training": {"epochs": 0}}, "epochs must be at least 1, got 0"),
    "negative seed": ({"seed": -1}, "seed must be in [0, 2^63), got -1"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_setting_is_named(case):
    values, message = BAD[case]
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_dict(values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


rates = st.builds(Schedule, st.sampled_from(sorted(SHAPES)), st.floats(0, 1), st.floats(0, 1))
models = st.builds(
    ModelConfig.preset,
    st.sampled_from(["lstm", "gru", "highway", "transformer"]),
    st.sampled_from(sorted(PRESETS)),
    layers=st.integers(1, 4),
    tied=st.booleans(),
)


@given(rate=rates, model=models, k=st.none() | st.integers(0, 50), seed=st.integers(0, 2**63 - 1))
def test_a_config_survives_the_way_through_json(rate, model, k, seed):
    default = RunConfig()
    config = replace(
        default,
        policy=replace(default.policy, neighbor_rate=rate, k=k),
        model=model,
        vectors=replace(default.vectors, protect=("not", "no")),
        seed=seed,
    )
    assert RunConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config


@pytest.mark.parametrize("method", METHODS)
def test_the_defaults_of_every_method_survive_the_way_through_json(method):
    config = RunConfig.from_dict({"policy": {"method": method}})
    assert RunConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config


def test_dropped_weights_are_spoken_of_where_there_are_any():
    plain, dropping = configure({"preset": "tiny"}), configure({"preset": "tiny", "weight_dropout": 0.5})
    assert "weight_dropout" not in plain.as_dict()["model"]  # nor in the fingerprint that is made of it
    assert "|dropout:0.1|policy" in plain.signature("text", None)
    assert "|dropout:0.1|weight-dropout:0.5|policy" in dropping.signature("text", None)
    assert dropping.fingerprint() != plain.fingerprint()
    assert RunConfig.from_dict(json.loads(json.dumps(dropping.as_dict()))) == dropping
    assert "--preset tiny --weight-dropout 0.5" in command_of(dropping)


def test_no_values_give_the_default_config():
    assert RunConfig.from_dict({}) == RunConfig()


def test_the_values_passed_in_are_left_alone():
    values = {"model": {"preset": "tiny"}, "vectors": {"protect": ["not"]}}
    RunConfig.from_dict(values)
    assert values == {"model": {"preset": "tiny"}, "vectors": {"protect": ["not"]}}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_gives_a_size_that_single_settings_replace(preset):
    plain = RunConfig.from_dict({"model": {"kind": "gru", "preset": preset}}).model
    assert plain == replace(PRESETS[preset], kind="gru")
    changed = RunConfig.from_dict({"model": {"kind": "gru", "preset": preset, "units": 24}}).model
    assert changed == replace(plain, units=24)


def test_whole_numbers_pass_for_fractions():
    config = RunConfig.from_dict({"optimizer": {"learning_rate": 3}, "model": {"dropout": 0}})
    assert config.optimizer.learning_rate == 3.0
    assert isinstance(config.optimizer.learning_rate, float)
    assert isinstance(config.model.dropout, float)


TOML = """
seed = 7
[data]
source = "synthetic"
[policy]
method = "nnrs"
neighbor_rate = {shape = "linear", end = 0.3}
[model]
preset = "tiny"
units = 32
[training]
epochs = 3
"""


def test_toml_and_json_say_the_same(tmp_path):
    toml, twin = tmp_path / "config.toml", tmp_path / "config.json"
    toml.write_text(TOML)
    values = read_config(toml)
    twin.write_text(json.dumps(values))
    assert read_config(twin) == values
    config = RunConfig.from_dict(values)
    assert (config.seed, config.model.units, config.model.dropout) == (7, 32, 0.1)
    assert config.policy.neighbor_rate == Schedule("linear", 0.0, 0.3)
    assert config.policy.prediction_rate is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", b"[training]\nepochs 3\n", "line 2"),
        ("a.json", b'{\n"training" 3}', "line 2"),
        ("a.json", b"[1, 2]", "must hold a table of settings"),
        ("a.toml", b'source = "caf\xe9"', "can't decode"),
        ("a.toml", b"policy = 3", "policy must be a table of method"),
        ("a.toml", b"[trainig]", "Did you mean 'training'?"),
    ],
)
def test_a_config_file_that_cannot_be_read_is_named(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path / name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.toml.*No such file"):
        read_config(tmp_path / "absent.toml")


def test_a_runs_record_of_how_it_was_made_is_no_setting():
    values = RunConfig().as_dict()
    record = {"format": 1, "names": {}, "text_sha256": "ab", "environment": {}}
    assert settings_of({**values, **record}) == values


def configured(tmp_path, values, **options):
    """What `nnrs train --config` makes of a config and options."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    return configure({"config": path, **options})


BAD_OPTIONS = {
    "method": ("nrs", "unknown method 'nrs'. Did you mean 'nnrs'?"),
    "preset": ("smal", "unknown preset 'smal'. Did you mean 'small'?"),
    "schedule": ("liner", "unknown schedule shape 'liner'. Did you mean 'linear'?"),
    "rule": ("pros", "unknown temperature rule 'pros'. Did you mean 'prose'?"),
    "optimizer": ("adam", "unknown optimizer 'adam'. Did you mean 'adamw'?"),
    "neighbor_rate": ("0:1.5", "--neighbor-rate: a rate is a probability in [0, 1]"),
    "prediction_rate": ("0:half", "a rate is START:END or one number, such as 0:0.2; got '0:half'"),
}


@pytest.mark.parametrize("option", BAD_OPTIONS)
def test_a_bad_option_is_named(option):
    value, message = BAD_OPTIONS[option]
    with pytest.raises(ConfigError) as caught:
        configure({option: value})
    assert message in str(caught.value)


IDLE = {
    "context of an LSTM": (
        {"model": {"context": 7}},
        "model 'lstm' has no context: leave it out, or use the ",
    ),
    "heads of a GRU": ({"model": {"kind": "gru", "heads": 3}}, "model 'gru' has no heads: leave it out, or "),
    "streams of sentences": (
        {"data": {"task": "translate"}, "training": {"valid_streams": 3}},
        "a translation reads whole sentences: leave valid_streams out.",
    ),
}


@pytest.mark.parametrize("case", IDLE)
def test_a_setting_without_effect_is_refused_in_a_config_as_among_options(case, tmp_path):
    values, message = IDLE[case]
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, values)
    assert message in str(caught.value)


def test_another_model_does_not_inherit_what_only_transformers_have(tmp_path):
    whole = RunConfig.from_dict({"model": {"kind": "transformer", "heads": 2, "context": 9}}).as_dict()
    model = configured(tmp_path, whole).model
    assert (model.heads, model.context) == (2, 9)
    assert configured(tmp_path, whole, model="lstm").model == RunConfig().model
    assert configured(tmp_path, {"model": {"heads": 2}}, model="transformer").model.heads == 2
    assert (
        configured(tmp_path, RunConfig().as_dict()) == RunConfig()
    )  # which says how many heads it would have


def test_an_option_overrides_the_config(tmp_path):
    config = configured(tmp_path, {"training": {"epochs": 3, "bptt": 9}, "seed": 2}, epochs=5, method="nnrs")
    assert (config.training.epochs, config.training.bptt, config.seed) == (5, 9, 2)
    assert config.policy.method == "nnrs"


def test_a_preset_overrides_the_size_of_a_config_and_leaves_the_rest(tmp_path):
    whole = RunConfig.from_dict({"model": {"kind": "gru", "preset": "tiny", "layers": 3}}).as_dict()
    model = configured(tmp_path, whole, preset="medium").model
    assert (model.kind, model.units, model.dropout, model.layers) == ("gru", 640, 0.5, 3)
    assert configured(tmp_path, whole, preset="medium", units=100).model.units == 100


@pytest.mark.parametrize(
    ("kind", "optimizer", "rate"),
    [
        ("lstm", {}, 20.0),
        ("gru", {}, 5.0),
        ("highway", {"name": "sgd"}, 5.0),
        ("highway", {"learning_rate": 20}, 20.0),
        ("highway", {"learning_rate": None}, 5.0),
        ("gru", {"name": "adamw"}, 0.001),
        ("transformer", {}, 0.001),
    ],
)
def test_the_learning_rate_goes_with_the_model_and_the_optimizer(kind, optimizer, rate):
    config = RunConfig.from_dict({"model": {"kind": kind}, "optimizer": optimizer})
    assert config.optimizer.learning_rate == rate
    assert RunConfig.from_dict(config.as_dict()) == config


def test_a_learning_rate_of_nothing_is_refused_of_every_model():
    with pytest.raises(ConfigError, match=r"learning_rate must be positive, got 0\.0"):
        RunConfig.from_dict({"model": {"kind": "gru"}, "optimizer": {"learning_rate": 0}})


def test_another_model_does_not_inherit_a_learning_rate(tmp_path):
    whole = RunConfig.from_dict({"model": {"kind": "gru"}}).as_dict()
    assert configured(tmp_path, whole, units=32).optimizer.learning_rate == 5.0
    assert configured(tmp_path, whole, model="lstm").optimizer.learning_rate == 20.0
    assert configured(tmp_path, whole, model="lstm", learning_rate=3.0).optimizer.learning_rate == 3.0
    assert configured(tmp_path, whole, model="transformer").optimizer.name == "adamw"
    own = whole | {"optimizer": {"name": "adamw", "learning_rate": 0.5}}  # no kind's usual one
    assert configured(tmp_path, own, model="lstm").optimizer.learning_rate == 0.5
    assert configured(tmp_path, own, model="gru").optimizer.learning_rate == 0.5


def test_another_optimizer_does_not_inherit_a_learning_rate(tmp_path):
    whole = RunConfig().as_dict()
    assert configured(tmp_path, whole).optimizer.learning_rate == 20.0
    assert configured(tmp_path, whole, optimizer="adamw").optimizer.learning_rate == 0.001
    assert configured(tmp_path, whole, optimizer="sgd").optimizer.learning_rate == 20.0
    own = {"optimizer": {"learning_rate": 0.5}}  # names no optimizer that it would belong to
    assert configured(tmp_path, own, optimizer="adamw").optimizer.learning_rate == 0.5


def test_a_schedule_shapes_the_rates_of_a_config_and_keeps_their_ends(tmp_path):
    rates = {"policy": {"neighbor_rate": {"shape": "linear", "start": 0.1, "end": 0.3}}}
    config = configured(tmp_path, rates, schedule="static", prediction_rate="0:0.5")
    assert config.policy.neighbor_rate == Schedule("static", 0.1, 0.3)
    assert config.policy.prediction_rate == Schedule("static", 0.0, 0.5)
    assert configure({"schedule": "pulse", "method": "mle"}).policy.neighbor_rate is None


def test_paths_become_absolute_and_built_in_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("text.txt", "synthetic", "vectors.bin"):
        (tmp_path / name).touch()
    config = located(configure({"data": "text.txt", "vectors": "vectors.bin"}))
    assert config.data.source == str(tmp_path / "text.txt")
    assert config.vectors.source == str(tmp_path / "vectors.bin")
    assert (
        located(configure({"data": "synthetic"})).data.source == "synthetic"
    )  # as everywhere, the built-in one


@pytest.mark.parametrize("name", ["cuda:1", "cuda:7"])
def test_a_gpu_that_is_not_there_is_named(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("cuda:0") == torch.device("cuda", 0)
    with pytest.raises(ConfigError, match=f"'{name}' is not there: this machine's CUDA devices number 1"):
        choose_device(name)


@pytest.mark.parametrize(
    ("name", "message"), [("gpu", "unknown device"), ("meta", "is not there"), ("mps", "not supported")]
)
def test_a_device_of_no_known_kind_is_named(name, message, monkeypatch):
    made = torch.zeros(0, device="meta" if name == "meta" else "cpu")
    monkeypatch.setattr(torch, "empty", lambda size, device: made)  # as on a machine that has all kinds
    with pytest.raises(ConfigError, match=message):
        choose_device(name)


def test_a_gpu_without_triton_is_passed_over_and_refused_by_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("auto") == torch.device("cuda")
    monkeypatch.setattr("nnrs.experiments.prepare.find_spec", lambda name: None)
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"needs Triton.*--device cpu"):
        choose_device("cuda")
