"""What the parser refuses (an option it does not know, a number that is none), in one line."""

from collections.abc import Collection, Sequence
from typing import Any, cast

import typer

# The parser's errors have no public name of their own, and their module is not the same in every version of typer.
UsageError = cast(type[Exception], typer.BadParameter.__base__)


def refusal(error: Any, words: Sequence[str], commands: Collection[str]) -> str:
    """What is wrong with the words of a command, what was expected, and where to read on."""
    command = " ".join(["nnrs", *(word for word in words[:1] if word in commands)])
    told = " ".join(_told(error).split()).rstrip(".")
    return f"{command}: {told[:1].lower()}{told[1:]}{'' if told.endswith('?') else '.'} See {command} --help."


def _told(error: Any) -> str:
    """What the parser says; of a wrong option with the likeliest one, of a missing one with what it is for."""
    if hasattr(error, "possibilities"):
        hint = f". Did you mean {error.possibilities[0]}?" if error.possibilities else ""
        return f"no such option {error.option_name}{hint}"
    message = str(error.format_message())
    is_missing = hasattr(error, "param_type")
    return f"{message.rstrip('.')}: {error.param.help}" if is_missing and error.param else message
