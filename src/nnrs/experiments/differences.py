"""In which settings two runs, plans or requests differ, in words."""

import json
from collections.abc import Mapping
from typing import Any

from nnrs.experiments.config import leaves

SHOWN = 3  # of the differences


def facts(table: Mapping[str, Any]) -> dict[str, str]:
    """The settings of nested tables by their full names, values as JSON."""
    return {name: json.dumps(value, ensure_ascii=False) for name, value in leaves(table)}


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """What is otherwise here than there, the first few by name; empty where nothing is.

    >>> differences(facts({"training": {"epochs": 2}, "seed": 1}), facts({"training": {"epochs": 3}, "seed": 1}))
    'training.epochs (2 there, 3 here)'
    """
    apart = [
        f"{name} ({there.get(name, 'nothing')} there, {here.get(name, 'nothing')} here)"
        for name in sorted({*there, *here})
        if there.get(name) != here.get(name)
    ]
    more = f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
    return f"{', '.join(apart[:SHOWN])}{more}"
