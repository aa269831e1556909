"""Looking a name up in a table, with a helpful answer when it is not there."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from nnrs.errors import ConfigError

T = TypeVar("T")
CLOSE = 0.66  # difflib's ratio, of which its own default, 0.6, takes "sine" for "linear"


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None where none has two thirds of the letters in common.

    >>> closest("cvs", ["csv", "json"]), closest("sine", ["linear", "static"])
    ('csv', None)
    """
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=CLOSE)), None)


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
