"""Options by name, laid over a config file: from `--method nnrs --schedule pulse` to a RunConfig."""

import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnrs.errors import ConfigError
from nnrs.experiments.config import LANGUAGE_MODEL, TRANSLATE, RunConfig, read_config
from nnrs.models.base import PRESETS
from nnrs.policies.methods import METHODS, Method, PolicyConfig
from nnrs.registry import look_up
from nnrs.schedules import Schedule
from nnrs.seeding import check_seed

# Which config setting each option sets. What is not given stays as --config or the defaults have it.
SETTINGS = {
    "task": "data.task",
    "data": "data.source",
    "from_language": "data.from_language",
    "to_language": "data.to_language",
    "min_count": "data.min_count",
    "max_vocabulary": "data.max_vocabulary",
    "vectors": "vectors.source",
    "protect": "vectors.protect",
    "initialise": "vectors.initialise",
    "method": "policy.method",
    "k": "policy.k",
    "rule": "policy.rule",
    "temperature": "policy.temperature",
    "granularity": "policy.granularity",
    "replace": "policy.replace",
    "draw": "policy.draw",
    "predict": "policy.predict",
    "unroll": "policy.unroll",
    "passes": "policy.passes",
    "search": "policy.search",
    "transition_row": "policy.transition_row",
    "transition_whole": "policy.transition_whole",
    "model": "model.kind",
    "preset": "model.preset",
    "units": "model.units",
    "layers": "model.layers",
    "dropout": "model.dropout",
    "weight_dropout": "model.weight_dropout",
    "optimizer": "optimizer.name",
    "learning_rate": "optimizer.learning_rate",
    "annealing": "optimizer.annealing",
    "clip": "optimizer.clip",
    "epochs": "training.epochs",
    "batch_size": "training.batch_size",
    "bptt": "training.bptt",
    "precision": "training.precision",
    "seed": "seed",
}
RATES = ("prediction_rate", "neighbor_rate")
OF_TRANSFORMERS = ("heads", "context")  # settings of a model that others have no use for
MOST_SEEDS = 1000


def configure(given: dict[str, Any]) -> RunConfig:
    """The configuration of the file `given["config"]`, if any, with the other options laid over it."""
    return lay_over(read_config(given["config"]) if "config" in given else {}, given)


def lay_over(values: dict[str, Any], given: dict[str, Any]) -> RunConfig:
    """The configuration of nested values, as `read_config` gives them, with options laid over them."""
    policy = values.setdefault("policy", {})
    method = look_up(METHODS, given.get("method", policy.get("method", PolicyConfig().method)), "method")
    _drop_dependents(values, given, method)
    for option, setting in SETTINGS.items():
        if option in given:
            section, _, name = setting.rpartition(".")
            table = values.setdefault(section, {}) if section else values
            table[name] = given[option]
    _lay_rates(policy, given, method)
    config = RunConfig.from_dict(values)
    _refuse_idle(config)
    return config


def _refuse_idle(config: RunConfig) -> None:
    """A setting without effect is a mistake, also one that only a file can have."""
    usual, kind = RunConfig(), config.model.kind
    if config.policy.unroll == "exact" and config.policy.passes != usual.policy.passes:
        raise ConfigError("unroll=exact makes as many passes as it needs: leave --passes out, or --unroll.")
    for name in OF_TRANSFORMERS:
        if kind != "transformer" and getattr(config.model, name) != getattr(usual.model, name):
            raise ConfigError(f"model '{kind}' has no {name}: leave it out, or use the transformer.")
    if config.data.task == TRANSLATE and config.training.valid_streams != usual.training.valid_streams:
        raise ConfigError("a translation reads whole sentences: leave valid_streams out.")


def command_of(config: RunConfig, name: str = "") -> str:
    """The `nnrs train` command that repeats a run: every option that is needed, and files by their last names.

    It is put where one of its name among others was, a cell of a grid; else its method and its seed make its name.
    Settings that no option sets are those of its config.json.

    >>> command_of(configure({"data": "sotu", "method": "nnrs", "preset": "tiny", "seed": 3}))
    'nnrs train --method nnrs --preset tiny --seed 3 --out nnrs_seed-3'
    """
    given = _spelled_out(config)
    seed = f"_seed-{config.seed}"
    out = ["--out", name if name.endswith(seed) else config.policy.method + seed]
    if not _makes(given, config):
        return shlex.join(["nnrs", "train", "--config", "config.json", *out])
    for option in [name for name in given if name != "preset"] + ["preset"]:
        rest = {name: value for name, value in given.items() if name != option}
        given = rest if _makes(rest, config) else given
    given |= {name: Path(given[name]).name for name in ("data", "vectors") if name in given}
    words = [word for option, value in given.items() for word in _words(option, value)]
    return shlex.join(["nnrs", "train", *words, *out])


def _makes(given: dict[str, Any], config: RunConfig) -> bool:
    try:
        return configure(given) == config
    except ConfigError:
        return False


def _spelled_out(config: RunConfig) -> dict[str, Any]:
    """Every option that a configuration can be made with, its preset among them where it has one's size."""
    values = config.as_dict()
    given = {}
    for option, setting in SETTINGS.items():
        section, _, name = setting.rpartition(".")
        given[option] = (values[section] if section else values).get(name)
    sizes = {name: (size.units, size.dropout) for name, size in PRESETS.items()}
    given["preset"] = next(
        (name for name, size in sizes.items() if size == (config.model.units, config.model.dropout)), None
    )
    rates = {name: getattr(config.policy, name) for name in RATES}
    for name, rate in rates.items():
        if rate:
            given |= {"schedule": rate.shape, name: f"{rate.start}:{rate.end}"}
    return {name: value for name, value in given.items() if value not in (None, False, ())}


def _words(option: str, value: Any) -> list[str]:
    name = spelled(option)
    if value is True:
        return [name]
    return [word for item in (value if isinstance(value, tuple) else [value]) for word in (name, str(item))]


def spelled(option: str) -> str:
    """An option as it is typed.

    >>> spelled("batch_size"), spelled("from_language")
    ('--batch-size', '--from')
    """
    return f"--{option.removesuffix('_language').replace('_', '-')}"


def as_keys(message: str) -> str:
    """A message that speaks of options, with the keys that a grid's file has for them.

    >>> as_keys("leave --batch-size or --from out, or choose another --out than a--data/b")
    'leave batch_size or from_language out, or choose another --out than a--data/b'
    >>> as_keys("no such file: a --data/b; not in the text: '--data of it', '--seeds'")  # a user's own words
    "no such file: a --data/b; not in the text: '--data of it', '--seeds'"
    """
    keys = {spelled(option): option for option in (*SETTINGS, *RATES, "schedule", "seeds")}
    return re.sub(r"(?<![\w/.'-])--[a-z-]+(?![\w/'-])", lambda found: keys.get(found[0], found[0]), message)


def configure_seeds(given: dict[str, Any]) -> list[RunConfig]:
    """The same configuration for each seed of `given["seeds"]`."""
    if "seed" in given:
        raise ConfigError("--seed and --seeds are two ways to say it: leave one of them out.")
    seeds, config = parse_seeds(given["seeds"]), configure(given)
    return [replace(config, seed=seed) for seed in seeds]


def parse_seeds(text: str) -> list[int]:
    """The seeds that numbers and ranges name, in the order given.

    >>> parse_seeds("1-3,7")
    [1, 2, 3, 7]
    """
    ranges = [_seed_range(part.strip(), text) for part in text.split(",")]
    count = sum(last - first + 1 for first, last in ranges)
    if count > MOST_SEEDS:
        raise ConfigError(f"--seeds {text} names {count:,} seeds; at most {MOST_SEEDS:,} can train together.")
    seeds = [seed for first, last in ranges for seed in range(first, last + 1)]
    seed, times = Counter(seeds).most_common(1)[0]
    if times > 1:
        raise ConfigError(f"--seeds {text} names seed {seed} more than once. Name it once.")
    return seeds


def _seed_range(part: str, text: str) -> tuple[int, int]:
    """The first and the last seed of `7` or `1-8`."""
    found = re.fullmatch(r"([0-9]{1,19})(?:-([0-9]{1,19}))?", part)
    if not found:
        raise ConfigError(f"--seeds takes numbers and ranges such as 1-8 or 1,3,7; got '{text}'.")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise ConfigError(f"--seeds: the range {part} runs backwards. Write {last}-{first}.")
    check_seed(last, "--seeds: every seed")
    return first, last


def _drop_dependents(values: dict[str, Any], given: dict[str, Any], method: Method) -> None:
    """What a config says of another preset, model, optimizer or method than the one asked for does not carry over."""
    if "preset" in given:
        for name in ("units", "dropout"):
            values.get("model", {}).pop(name, None)
    optimizer, policy = values.get("optimizer", {}), values["policy"]
    if "name" in optimizer and given.get("optimizer", optimizer["name"]) != optimizer["name"]:
        optimizer.pop("learning_rate", None)
    kind, task = values.get("model", {}).get("kind"), values.get("data", {}).get("task", LANGUAGE_MODEL)
    if kind is not None and given.get("model", kind) != kind:
        for name in OF_TRANSFORMERS:
            values["model"].pop(name, None)
        usual = RunConfig.from_dict({"data": {"task": task}, "model": {"kind": kind}}).optimizer
        if (optimizer.get("name"), optimizer.get("learning_rate")) == (usual.name, usual.learning_rate):
            del optimizer["name"], optimizer["learning_rate"]
    if "method" in given and policy.get("method", given["method"]) != given["method"]:
        keep_what_fits(policy, method)


def keep_what_fits(policy: dict[str, Any], method: Method) -> None:
    """Drop the settings that mean nothing to this method; with a rule that is not its own, the temperature."""
    for name in [name for name, value in policy.items() if not method.takes(name, value)]:
        policy.pop(name, None)
        if name == "rule":
            policy.pop("temperature", None)


def _lay_rates(policy: dict[str, Any], given: dict[str, Any], method: Method) -> None:
    """ε and γ: --schedule shapes both, --prediction-rate and --neighbor-rate give their ends."""
    unused = method.unused_settings()
    for name in RATES:
        before = policy.get(name) or {}
        shape = given.get("schedule", before.get("shape", "exponential"))
        if name in given:
            parsed = _parsed(name, given[name], shape)
            policy[name] = {"shape": parsed.shape, "start": parsed.start, "end": parsed.end}
        elif "schedule" in given and name not in unused:
            policy[name] = {**before, "shape": shape}


def _parsed(name: str, text: str, shape: str) -> Schedule:
    """A rate, or an error that names its option."""
    try:
        return Schedule.parse(text, shape)
    except ConfigError as error:
        raise ConfigError(f"--{name.replace('_', '-')}: {error}") from None
