"""Looking a name up in a table, with a helpful answer when it is not there."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

from nnrs.errors import ConfigError

T = TypeVar("T")


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
    close = difflib.get_close_matches(name, table, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    raise ConfigError(f"unknown {kind} '{name}'.{hint} {known}")
