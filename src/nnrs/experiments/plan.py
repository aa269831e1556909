"""A plan: the runs that a grid's folder is to hold, in a stable order, and what is measured of each."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from nnrs.errors import ConfigError, reworded
from nnrs.experiments.config import RunConfig, leaves, read_config, read_table, typed
from nnrs.experiments.differences import differences, facts
from nnrs.experiments.options import RATES, SETTINGS, as_keys, keep_what_fits, lay_over, parse_seeds
from nnrs.experiments.prepare import located
from nnrs.experiments.scoring import check_measurable
from nnrs.experiments.subject import Request
from nnrs.policies.methods import METHODS
from nnrs.registry import look_up
from nnrs.run_directory import Json

FORMAT = 1
MOST_CELLS = 100_000
LAID_OVER = ("schedule", *RATES)  # options of `nnrs train` that are no single setting
LISTS = ("vectors.protect",)  # settings whose one value is a list
FILES = ("data.source", "vectors.source")  # shown by their names
OPTIONS = {setting: option for option, setting in SETTINGS.items()}
Flat = dict[str, Any]  # settings by their full names, such as policy.prediction_rate.end


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One run of a plan."""

    name: str  # its folder; unique in the plan
    config: RunConfig  # files by their full paths
    labels: dict[str, str]  # what a reader calls it: always `method`, never the seed

    def as_dict(self) -> Json:
        """The cell as plain values; `from_dict` takes it back."""
        return {"name": self.name, "labels": self.labels, "config": self.config.as_dict()}

    def named_in_errors(self) -> AbstractContextManager[None]:
        """Have an error of ours begin with this run's name."""
        return reworded(lambda message: f"{self.name}: {message}")

    @staticmethod
    def from_dict(values: Json) -> "Cell":
        """What `as_dict` gave."""
        config = RunConfig.from_dict(values["config"])
        return Cell(name=values["name"], config=config, labels=values["labels"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The cells of a folder, and what is measured of every finished run."""

    kind: str  # grid | compare | table1 | table2 | table3 | figures
    title: str
    command: str  # that repeats it
    cells: tuple[Cell, ...]
    request: Request

    def __post_init__(self) -> None:
        if not self.cells:
            raise ConfigError("the plan is empty: it names no runs. Name at least one.")
        _refuse_equal(self.cells)

    def check_measurable(self) -> None:
        """Refuse what cannot be measured of its runs, before anything is trained."""
        for cell in self.cells:
            check_measurable(self.request, cell.config, cell.name)

    def as_dict(self) -> Json:
        """The plan as plain values; `from_dict` takes it back."""
        return {
            "format": FORMAT,
            "kind": self.kind,
            "title": self.title,
            "command": self.command,
            "request": asdict(self.request),
            "cells": [cell.as_dict() for cell in self.cells],
        }

    @staticmethod
    def from_dict(values: Json) -> "Plan":
        """What `as_dict` gave, also by way of JSON."""
        if values.get("format") != FORMAT:
            raise ConfigError(
                f"this plan has format {values.get('format')}; this version of nnrs reads {FORMAT}. Update nnrs."
            )
        return Plan(
            kind=values["kind"],
            title=values["title"],
            command=values["command"],
            cells=tuple(map(Cell.from_dict, values["cells"])),
            request=request_of(values["request"]),
        )

    def worded(self, message: str) -> str:
        """What is said of its runs, with the keys of the file that made the plan, or with options where none did."""
        return as_keys(message) if self.kind == "grid" else message

    def following(self, before: "Plan", folder: Path) -> "Plan":
        """The plan as it continues another in a folder: known runs keep their names, new ones come behind them.

        Refused where something of the earlier plan is missing, or would be measured in another way.
        """
        if self.kind != before.kind:
            raise ConfigError(
                f"{folder} holds '{before.title}', made as {before.kind} and not as {self.kind}. "
                "Choose another --out."
            )
        if self.request != before.request:
            apart = differences(*(facts(asdict(plan.request)) for plan in (before, self)))
            raise ConfigError(
                f"{folder} holds runs that are measured with other {apart}. "
                "Ask for the same, or choose another --out."
            )
        ours, theirs = ({cell.config: cell for cell in plan.cells} for plan in (self, before))
        gone = [cell for config, cell in theirs.items() if config not in ours]
        if gone:
            raise ConfigError(f"{folder} holds another plan, {self._lacking(gone)}; a plan may only grow.")
        kept = [replace(cell, labels=ours[config].labels) for config, cell in theirs.items()]
        added = [cell for config, cell in ours.items() if config not in theirs]
        return replace(self, cells=(*kept, *added))

    def _lacking(self, gone: Sequence[Cell]) -> str:
        """What became of runs of an earlier plan (another setting, else their names), and what to do."""
        named = {cell.name: cell for cell in self.cells}
        for cell in gone:
            if cell.name in named:
                apart = differences(*(facts(each.config.as_dict()) for each in (cell, named[cell.name])))
                return (
                    f"whose {cell.name} differs in {apart}. Set that as it is there, or choose another --out"
                )
        return f"with runs that this one lacks: {several([cell.name for cell in gone])}. Choose another --out"


def request_of(values: Mapping[str, Any]) -> Request:
    """What is to be measured, from the plain values of a grid file's `[evaluate]` or of a stored plan."""
    return Request(**typed(Request, values, "evaluate."))


def read_plan(path: Path, command: str) -> Plan:
    """The plan of a grid file: settings and options of `nnrs train` in TOML, with lists for what varies."""
    values = read_table(path)
    if not values:
        raise ConfigError(f"{path} is empty. Write settings of nnrs train into it, lists for what varies.")
    title, evaluate = values.pop("title", path.stem), values.pop("evaluate", {})
    if not isinstance(title, str) or not isinstance(evaluate, dict):
        raise ConfigError(f"{path}: title must be a text and evaluate a table.")
    request = request_of(evaluate)
    with reworded(as_keys):  # what is refused may name the options of `nnrs train`
        cells = tuple(expand(values))
    return Plan(kind="grid", title=title, command=command, cells=cells, request=request)


def expand(values: Mapping[str, Any]) -> list[Cell]:
    """The runs of a table with lists in it: the last list varies fastest, the seeds faster still.

    Each table of the list `runs` is laid over the rest and stands for runs of its own.

    >>> [cell.name for cell in expand({"method": ["mle", "ss"], "seeds": "1-2"})]
    ['mle_seed-1', 'mle_seed-2', 'ss_seed-1', 'ss_seed-2']
    """
    blocks = values.get("runs", [{}])
    if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
        raise ConfigError("runs must be a list of tables: write [[runs]] above each.")
    common = _flat({name: value for name, value in values.items() if name != "runs"})
    chosen = [flat for block in blocks for flat in _product({**common, **_flat(block)})]
    configs = [_configured(flat) for flat in chosen]
    varying = _varying(chosen)
    cells = []
    for flat, config in zip(chosen, configs, strict=True):
        shown = {_label(name): varying[name][flat[name]] for name in varying if name in flat}
        labels = {"method": config.policy.method, **shown}
        cells.append(Cell(name=cell_name(labels, config.seed), config=located(config), labels=labels))
    return cells


def cells_of(
    options: Mapping[str, Any],
    methods: Sequence[str],
    seeds: Sequence[int],
    labels: Mapping[str, str] | None = None,
) -> list[Cell]:
    """A cell for each method and each seed, from options as `configure` takes them.

    An option that means nothing to a method is left out for it, so that one set of options serves several; and so is
    what their config file says of it.
    """
    if not seeds:
        raise ConfigError(
            "seeds is empty: a run is trained for each of them. Name at least one, such as [1]."
        )
    cells = []
    for name in methods:
        method = look_up(METHODS, name, "method")
        given = dict(options)
        keep_what_fits(given, method)
        values = read_config(given["config"]) if "config" in given else {}
        keep_what_fits(values.setdefault("policy", {}), method)
        config = located(lay_over(values, {**given, "method": name}))
        said = {"method": name, **(labels or {})}
        cells += [
            Cell(name=cell_name(said, seed), config=replace(config, seed=seed), labels=said) for seed in seeds
        ]
    return cells


def cell_name(labels: Mapping[str, str], seed: int) -> str:
    """A folder name made of labels: a bare value with its name; a `row` of the paper without its method.

    >>> cell_name({"method": "nnrs", "k": "5", "corpus": "my text"}, 3)
    'nnrs_k-5_my-text_seed-3'
    """
    said = {name: text for name, text in labels.items() if name != "method" or "row" not in labels}
    shown = [f"{name}-{text}" if is_bare(text) else text for name, text in said.items()]
    return "_".join([*(re.sub(r"[^\w.+-]+", "-", text).strip("-.") for text in shown), f"seed-{seed}"])


def is_bare(value: str) -> bool:
    """Whether a label's value says nothing without its name: a number, yes or no.

    >>> is_bare("0:0.2"), is_bare("True"), is_bare("greedy")
    (True, True, False)
    """
    return value[:1].isdecimal() or value in ("True", "False")


def _flat(values: Mapping[str, Any]) -> Flat:
    """Settings by their full names, from tables of settings and from options of `nnrs train`."""
    sections = {item.name for item in fields(RunConfig)}
    known = dict.fromkeys([*SETTINGS, *LAID_OVER, *sections, "seeds", "title", "evaluate", "runs"])
    if "seed" in values and "seeds" in values:
        raise ConfigError("seed and seeds are two ways to say it: leave one of them out.")
    flat: Flat = {}
    for name, value in values.items():
        look_up(known, name, "grid setting")
        if name == "seeds":
            flat["seed"] = _seeds(value)
        elif isinstance(value, Mapping) and name in sections:
            _add(flat, dict(leaves(value, f"{name}.")))
        elif name in SETTINGS or name in LAID_OVER:
            _add(flat, {SETTINGS.get(name, name): value})
        else:
            raise ConfigError(f"grid setting {name} does not go here: it belongs at the top, once.")
    return flat


def _add(flat: Flat, more: Flat) -> None:
    """Take more settings in; one that is there already was said as an option and in a table."""
    for name in more:
        if name in flat:
            table, setting = name.split(".", 1)
            raise ConfigError(
                f"{OPTIONS.get(name, name)} and {setting} in [{table}] are two ways to say it: leave one of them out."
            )
    flat |= more


def _seeds(value: Any) -> list[int]:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ConfigError(
            f'seeds must be a text such as "1-8" or "1,3,7", got {value!r}. Write one, or list numbers as '
            "seed = [1, 3, 7]."
        )
    return parse_seeds(str(value))


def _product(flat: Flat) -> list[Flat]:
    """One value for each setting, in every combination."""
    names = sorted(flat, key="seed".__eq__)  # stable: only the seeds move, to the end
    choices = [_choices(name, flat[name]) for name in names]
    count = math.prod(map(len, choices))
    if count > MOST_CELLS:
        raise ConfigError(f"these lists make {count:,} runs; at most {MOST_CELLS:,} fit a plan.")
    return [dict(zip(names, picked, strict=True)) for picked in itertools.product(*choices)]


def _choices(name: str, value: Any) -> list[Any]:
    choices = value if isinstance(value, list) else [value]
    if name in LISTS:
        several = any(isinstance(item, list) for item in choices)  # a list of lists varies
        choices = [
            tuple(item) if isinstance(item, list) else item for item in (choices if several else [value])
        ]
    if not choices:
        raise ConfigError(f"the list of {name} is empty: name at least one value, or leave it out.")
    if any(isinstance(item, list | Mapping) for item in choices):
        raise ConfigError(f"{name} lists tables or lists: put each into a [[runs]] table of its own.")
    item, times = Counter(choices).most_common(1)[0]
    if times > 1:
        raise ConfigError(f"the list of {name} names {_shown(item)} more than once. Name it once.")
    return choices


def _configured(flat: Flat) -> RunConfig:
    given = {
        name: flat[name] if name == "schedule" else str(flat[name]) for name in LAID_OVER if name in flat
    }
    values: Json = {}
    for name, value in flat.items():
        if name not in LAID_OVER:
            *path, last = name.split(".")
            table = values
            for part in path:
                table = table.setdefault(part, {})
            table[last] = value
    try:
        return lay_over(typed(RunConfig, values, ""), given)
    except ConfigError as error:
        said = ", ".join(f"{_key(name)} {_shown(value)}" for name, value in flat.items())
        raise ConfigError(f"the run with {said}: {error}") from None


def _varying(chosen: Sequence[Flat]) -> dict[str, dict[Any, str]]:
    """The settings in which runs differ, method and seed apart, and how each of their values is shown."""
    names = dict.fromkeys(name for flat in chosen for name in flat)
    found = {}
    for name in names:
        values = dict.fromkeys(flat.get(name) for flat in chosen)
        if len(values) > 1 and name not in ("seed", "policy.method"):
            found[name] = _file_names(values) if name in FILES else {value: _shown(value) for value in values}
    return found


def _file_names(values: Iterable[Any]) -> dict[Any, str]:
    """What files are called: by their stems, else with no more of their folders than tells them apart.

    >>> list(_file_names(["/texts/2019/news.txt", "/texts/2020/news.txt"]).values())
    ['2019/news.txt', '2020/news.txt']
    """
    paths = {value: Path(str(value)) for value in values}
    short = {value: path.stem for value, path in paths.items()}
    deepest = max(len(path.parts) for path in paths.values())
    for depth in range(1, deepest + 1):
        if len(set(short.values())) == len(short):
            break
        short = {value: "/".join(path.parts[-depth:]) for value, path in paths.items()}
    return short


def _shown(value: Any) -> str:
    return "+".join(value) if isinstance(value, tuple) else str(value)


def _label(name: str) -> str:
    """What a setting is called beside results: as its key is, and data by what it is."""
    return "corpus" if name == "data.source" else _key(name)


def _key(name: str) -> str:
    """What a setting is called in a grid's file."""
    return OPTIONS.get(name, name.removeprefix("policy."))


def _refuse_equal(cells: Sequence[Cell]) -> None:
    """No two cells of one name, none that are the same run."""
    names: dict[str, Cell] = {}
    configs: dict[RunConfig, Cell] = {}
    for cell in cells:
        if cell.config in configs:
            raise ConfigError(
                f"{configs[cell.config].name} and {cell.name} are the same run: they differ in nothing that the "
                "method uses. Give such a method a table of its own under [[runs]]."
            )
        if cell.name in names:
            raise ConfigError(f"two different runs are called {cell.name}. Give them labels that differ.")
        names[cell.name] = configs[cell.config] = cell


def several(names: Sequence[str]) -> str:
    """The first few of some names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
