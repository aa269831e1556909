"""Looking a name up in a table, with a helpful answer when it is not there."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from nnrs.errors import ConfigError

T = TypeVar("T")
CLOSE = 0.66  # difflib's ratio, of which its own default, 0.6, takes "sine" for "linear"
SHORTEST = 3  # letters of a name that may stand for the beginning of a word of another


def likely(name: str, known: Iterable[str]) -> list[str]:
    """The known names that were probably meant: in other case, else one that is close, else all that it shortens.

    >>> likely("cvs", ["csv", "json"]), likely("sine", ["linear", "static"])
    (['csv'], [])
    >>> likely("temp", ["batch", "temperature"]), likely("rate", ["learning-rate", "neighbor-rate"])
    (['temperature'], ['learning-rate', 'neighbor-rate'])
    >>> likely("RUN", ["runs", "Run", "run"])
    ['Run', 'run']
    >>> likely("te", ["temperature"])  # too short to stand for anything
    []
    """
    names = list(known)
    same = [one for one in names if one.casefold() == name.casefold()]
    shortened = [one for one in names if len(name) >= SHORTEST and f"-{name}" in f"-{one}"]
    return same or difflib.get_close_matches(name, names, n=1, cutoff=CLOSE) or shortened


def closest(name: str, known: Iterable[str]) -> str | None:
    """The first of the known names that were probably meant, or None.

    >>> closest("sigmoid", ["s-curve", "inverse-sigmoid"])
    'inverse-sigmoid'
    """
    return next(iter(likely(name, known)), None)


def look_up(table: Mapping[str, T], name: str, kind: str) -> T:
    """The entry called `name`, or a ConfigError that suggests the closest known name.

    >>> look_up({"linear": 1, "static": 2}, "liner", "schedule shape")
    Traceback (most recent call last):
    nnrs.errors.ConfigError: unknown schedule shape 'liner'. Did you mean 'linear'? Known: linear, static.
    """
    known = f"Known: {', '.join(sorted(table))}."
    if not isinstance(name, str):
        raise ConfigError(f"{kind} must be a name, got {name!r}. {known}")
    if name in table:
        return table[name]
    close = closest(name, table)
    hint = f" Did you mean '{close}'?" if close else ""
    raise ConfigError(f"unknown {kind} '{name}'.{hint} {known}")
