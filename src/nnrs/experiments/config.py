"""The configuration of a run: frozen dataclasses of plain values, nested by rung, to and from TOML and JSON."""

import hashlib
import json
import tomllib
import types
import typing
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nnrs import __version__
from nnrs.errors import ConfigError
from nnrs.models import TRANSLATORS
from nnrs.models.base import ModelConfig
from nnrs.policies.methods import METHODS, PolicyConfig
from nnrs.registry import look_up
from nnrs.run_directory import SEAL, check_format
from nnrs.seeding import check_seed
from nnrs.training.loop import TrainingConfig
from nnrs.training.optimize import OptimizerConfig

LANGUAGE_MODEL, TRANSLATE = "language-model", "translate"
# What a translation is trained with where nothing else is said. A word that is met once teaches little, and `<unk>`
# must be met for unknown words of a source to mean anything.
TRANSLATION: dict[str, dict[str, Any]] = {
    "data": {"min_count": 2},
    "model": {"preset": "medium"},
    "optimizer": {"name": "adamw", "clip": 1.0},
    "training": {"epochs": 20, "batch_size": 128, "precision": "fp32"},
}

# What SGD starts from with models that come apart or learn badly at the 20 of the paper (docs/paper.md#models).
LOWER_RATES = {"gru": 5.0, "highway": 5.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """Which text, and which of its words."""

    source: str = "sotu"  # a folder, a file, or a built-in name
    min_count: int = 1
    max_vocabulary: int | None = None
    task: str = LANGUAGE_MODEL
    from_language: str | None = None  # translate only; None: as `choose_languages` says
    to_language: str | None = None

    def __post_init__(self) -> None:
        look_up(dict.fromkeys((LANGUAGE_MODEL, TRANSLATE)), self.task, "task")
        if self.task != TRANSLATE and (self.from_language or self.to_language):
            raise ConfigError("--from and --to go with --task translate: add it, or leave them out.")

    def as_dict(self) -> dict[str, Any]:
        """Plain values; a language model's say nothing of translation."""
        values = asdict(self)
        if self.task != TRANSLATE:
            del values["task"], values["from_language"], values["to_language"]
        return values

    def label(self, corpus: str) -> str:
        """The text as it stands in a score's signature."""
        if self.task != TRANSLATE:
            return f"data:{corpus}"
        return f"data:{corpus}|task:{self.task}|from:{self.from_language}|to:{self.to_language}"


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorsConfig:
    """Where word vectors come from and what they are used for."""

    source: str = "corpus"  # a file, or `corpus` for vectors made from the training text
    protect: tuple[str, ...] = ()  # words never replaced, beside the special ones
    initialise: bool = False  # input embeddings start from the vectors


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """All that a run depends on, the device apart."""

    data: DataConfig = field(default_factory=DataConfig)
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    model: ModelConfig = field(default_factory=lambda: ModelConfig.preset("lstm", "small"))
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    seed: int = 1

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.data.task == TRANSLATE:
            look_up(TRANSLATORS, self.model.kind, "translator")
            if self.training.bptt != TrainingConfig().bptt:
                raise ConfigError("a translation reads whole sentences: leave --bptt out.")

    @property
    def uses_vectors(self) -> bool:
        """Whether such a run has word vectors: its method proposes words, or its model starts from them."""
        return METHODS[self.policy.method].proposal is not None or self.vectors.initialise

    @property
    def remarks(self) -> list[str]:
        """What is to be known before it is trained of its rates, and of a k that makes one of them idle."""
        rates = [rate for rate in (self.policy.prediction_rate, self.policy.neighbor_rate) if rate]
        said = [rate.remark(self.training.epochs) for rate in rates]
        idle = "k is 0: no word has a neighbor, so that none becomes one at any --neighbor-rate."
        return [remark for remark in said if remark] + [idle] * (self.policy.k == 0)

    def as_dict(self) -> dict[str, Any]:
        """The configuration as plain values; `from_dict` takes it back."""
        return {**asdict(self), "data": self.data.as_dict(), "model": self.model.as_dict()}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "RunConfig":
        """A configuration from nested plain values; what is left out takes its default.

        `model` may name a `preset`, whose settings the other keys of `model` replace.
        """
        values = typed(RunConfig, values, "")
        if values.get("data", {}).get("task") == TRANSLATE:
            values |= {name: usual | values.get(name, {}) for name, usual in TRANSLATION.items()}
        model = values.get("model", {})
        preset = ModelConfig.preset(model.get("kind", "lstm"), model.pop("preset", "small"))
        values["model"] = asdict(preset) | model
        kind, optimizer = values["model"]["kind"], values.get("optimizer", {})
        if kind == "transformer":  # which SGD at the paper's rate does not train
            optimizer = {"name": "adamw", **optimizer}
        by_sgd = optimizer.get("name", "sgd") == "sgd"
        if kind in LOWER_RATES and by_sgd and optimizer.get("learning_rate") is None:
            optimizer = {**optimizer, "learning_rate": LOWER_RATES[kind]}
        values["optimizer"] = optimizer
        built: RunConfig = _build(RunConfig, values)
        return built

    def signature(self, corpus: str, vectors: str | None) -> str:
        """What a score of this run carries: data, model, policy, training, seed and version."""
        rate = self.optimizer
        parts = [
            self.data.label(corpus),
            f"model:{self.model.label()}",
            self.model.dropout_label(),
            self.policy.label(),
            *([f"vectors:{vectors}"] if vectors else []),
            f"opt:{rate.name}-{rate.learning_rate:g}-{rate.annealing}",
            f"epochs:{self.training.epochs}",
            f"config:{self.fingerprint()}",
            f"seed:{self.seed}",
            f"v:{__version__}",
        ]
        return "|".join(parts)

    def fingerprint(self) -> str:
        """Eight digits that tell settings apart, also those a signature does not spell out.

        Seed and file names are left out: the first stands in the signature, the others differ between machines.
        """
        values = self.as_dict()
        del values["seed"], values["data"]["source"], values["vectors"]["source"]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


def leaves(table: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, Any]]:
    """The values of nested tables by their full names, which begin with `path`.

    >>> dict(leaves({"policy": {"k": 5, "rate": {"end": 0.2}}, "seed": 1}))
    {'policy.k': 5, 'policy.rate.end': 0.2, 'seed': 1}
    """
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def read_config(path: Path) -> dict[str, Any]:
    """The nested settings of a TOML or JSON file; a run's own config.json may be used as it is."""
    values = read_table(path)
    if "format" in values:  # of a run's own; a file by hand says none
        check_format(values["format"], path)
    return typed(RunConfig, settings_of(values), "")


def read_table(path: Path) -> dict[str, Any]:
    """The values of a TOML or JSON file, whatever they are."""
    try:
        text = path.read_text(encoding="utf-8")
        once, of_json = partial(_each_once, path), path.suffix == ".json"
        values = json.loads(text, object_pairs_hook=once) if of_json else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read the config {path}: {error.strerror}. Check the path.") from None
    except ValueError as error:
        raise ConfigError(
            f"cannot read the config {path}: {error}. It must be TOML, or JSON if so named."
        ) from None
    if not isinstance(values, dict):
        raise ConfigError(f"the config {path} must hold a table of settings.")
    return values


def _each_once(path: Path, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A table of JSON, which would let the last of two values win where TOML refuses them."""
    name, times = Counter(name for name, _ in pairs).most_common(1)[0] if pairs else ("", 0)
    if times > 1:
        raise ConfigError(f"the config {path} has '{name}' {times} times in one table. Keep one of them.")
    return dict(pairs)


def settings_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among what a run's config.json holds, without the record of how it was made."""
    record = ("format", "names", "text_sha256", "vectors_sha256", "environment", SEAL)
    return {name: value for name, value in values.items() if name not in record}


KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def typed(cls: type[Any], values: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The values of a dataclass, nested as they came, each checked against its field's type; nothing is made yet."""
    hints = typing.get_type_hints(cls)
    known = {item.name: hints[item.name] for item in fields(cls)}
    if cls is ModelConfig:
        known["preset"] = str
    for name in values:
        look_up(known, name, f"config setting {path}".rstrip(". "))
    return {name: _convert(known[name], value, f"{path}{name}") for name, value in values.items()}


def _build(cls: type[Any], values: Mapping[str, Any]) -> Any:
    """A dataclass from what `typed` gave."""
    hints = typing.get_type_hints(cls)
    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    return cls(**{**values, **{name: _build(_table(hints[name]), table) for name, table in tables.items()}})


def _convert(hint: Any, value: Any, path: str) -> Any:
    for option in _options(hint):
        if is_dataclass(option) and isinstance(value, Mapping):
            return typed(typing.cast("type[Any]", option), value, f"{path}.")
        if typing.get_origin(option) is tuple and isinstance(value, list | tuple):
            return tuple(_convert(typing.get_args(option)[0], item, path) for item in value)
        if option is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if option is type(value):
            return value
    expected = " or ".join(_described(option) for option in _options(hint) if option is not type(None))
    raise ConfigError(f"config {path} must be {expected}, got {value!r}.")


def _options(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _table(hint: Any) -> Any:
    return next(option for option in _options(hint) if is_dataclass(option))


def _described(option: Any) -> str:
    if is_dataclass(option):
        return f"a table of {', '.join(item.name for item in fields(option))}"
    return "a list" if typing.get_origin(option) is tuple else KINDS[option]
