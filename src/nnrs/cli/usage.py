"""What the parser refuses (an option it does not know, a number that is none), in one line."""

from collections.abc import Collection, Sequence
from typing import Any, cast

import typer

from nnrs.registry import closest, likely

# The parser's errors have no public name of their own, and their module is not the same in every version of typer.
UsageError = cast(type[Exception], typer.BadParameter.__base__)
# What the parser says of a word that is no number, and what it wanted. Versions of typer have "float" and "number".
NUMBERS = {"valid integer": "a whole number", "valid float": "a number", "valid number": "a number"}


def refusal(error: Any, words: Sequence[str], commands: Collection[str]) -> str:
    """What is wrong with the words of a command, what was expected, and where to read on."""
    command = " ".join(["nnrs", *(word for word in words[:1] if word in commands)])
    told = " ".join(_told(error, words, commands).split()).rstrip(".")
    return f"{command}: {told[:1].lower()}{told[1:]}{'' if told.endswith('?') else '.'} See {command} --help."


def _told(error: Any, words: Sequence[str], commands: Collection[str]) -> str:
    """What the parser says; of a wrong command or option with the likeliest one, of a missing one with its use."""
    first = words[0]
    if first not in commands and not first.startswith("-"):
        close = closest(first, commands)
        return f"no such command '{first}'" + (f". Did you mean '{close}'?" if close else "")
    if hasattr(error, "possibilities"):
        options = _options(error.ctx)
        if error.option_name == "--json" and "format" in options:
            return "no such option --json. Use --format json"
        meant = " or ".join(f"--{name}" for name in likely(error.option_name.lstrip("-"), options))
        return f"no such option {error.option_name}" + (f". Did you mean {meant}?" if meant else "")
    message = str(error.format_message())
    expected = next((number for said, number in NUMBERS.items() if said in message), None)
    if expected and isinstance(error, typer.BadParameter) and error.param:
        return f"{error.param.opts[0]} must be {expected}, got '{_given(error, words)}'"
    if "extra argument" in message:
        return (
            f"{message.rstrip('.')}: values stand behind their option, several of them joined by commas (a,b)"
        )
    is_missing = hasattr(error, "param_type")
    return f"{message.rstrip('.')}: {error.param.help}" if is_missing and error.param else message


def _options(context: typer.Context) -> list[str]:
    """The options that a command has, without the dashes, which all of them share."""
    names = [name for param in context.command.get_params(context) for name in param.opts]
    return [name.removeprefix("--") for name in names if name.startswith("--")]


def _given(error: Any, words: Sequence[str]) -> str:
    """The value that was refused, as the parser takes it from the words of a command: its error may not say it."""
    given, _, _ = error.ctx.command.make_parser(error.ctx).parse_args(list(words[1:]))
    return str(given[error.param.name])
