"""What commands that train many runs have in common: the options of `nnrs train`, and the page at the end."""

import inspect
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from nnrs.cli.output import note, table
from nnrs.cli.train import train
from nnrs.errors import ConfigError

if TYPE_CHECKING:
    from nnrs.experiments.findings import Findings

OutOption = Annotated[Path, typer.Option(help="The folder for runs and report; the same again continues.")]
SeedsOption = Annotated[
    str, typer.Option(metavar="1-8|1,3,7", help="Every method or row is trained with each of them.")
]
Command = TypeVar("Command", bound=Callable[..., None])
WIDTH = 130
DRAWER = "vl_convert"
ONE_RUN = ("context", "out", "method", "seed", "seeds", "resume", "previous", "device", "tensorboard", "json")
TRANSLATION = ("task", "from_language", "to_language")  # what is compared are language models


def with_train_options(*without: str) -> Callable[[Command], Command]:
    """Give a command the options of `nnrs train` behind its own, one run, translation and `without` apart.

    They reach it as keywords; what was not given is None.
    """

    def decorate(command: Command) -> Command:
        own = [
            one for one in inspect.signature(command).parameters.values() if one.kind is not one.VAR_KEYWORD
        ]
        taken = {one.name for one in own} | {*without, *ONE_RUN, *TRANSLATION}
        more = [one for one in inspect.signature(train).parameters.values() if one.name not in taken]
        cast(Any, command).__signature__ = inspect.Signature([*own, *more])
        return command

    return decorate


def names(text: str) -> list[str]:
    """Names that came with commas, each once.

    >>> names("mle, ss,mle")
    ['mle', 'ss']
    """
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def named(option: str, text: str | None) -> list[str]:
    """The names that an option was given; none where it was not, refused where it was given and names nothing."""
    found = names(text or "")
    if text is not None and not found:
        raise ConfigError(f"--{option} names nothing: give at least one name, or leave it out for the usual.")
    return found


def this_command() -> str:
    """The command that is being carried out, for whoever repeats it."""
    return shlex.join(["nnrs", *repeating(sys.argv[1:])])


def repeating(words: list[str]) -> list[str]:
    """The words of a command, files and folders of this machine by their last name.

    >>> repeating(["nnrs", "compare", "--data", "texts/my.txt", "--vectors=/models/glove.txt"])
    ['nnrs', 'compare', '--data', 'my.txt', '--vectors=glove.txt']
    """
    return [_without_folders(word) for word in words]


def _without_folders(word: str) -> str:
    option, sign, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if "/" not in value or "://" in value:  # an address names no folder
        return word
    return f"{option}{sign}{Path(value).name or Path(value).resolve().name}"


def check_means(*, drawing: bool = False) -> None:
    """Refuse before anything is trained where the statistics, or a drawing that is the point, could not be made."""
    needed = {"scipy": "scipy", **({DRAWER: "vl-convert-python"} if drawing else {})}
    missing = [package for module, package in needed.items() if find_spec(module) is None]
    if missing:
        raise ConfigError(
            f"statistics and the page need {' and '.join(missing)}: pip install 'nnrs[report]'."
        )
    if not _can_draw():
        note("there will be no page: it needs vl-convert-python (pip install 'nnrs[report]')")


def _can_draw() -> bool:
    return find_spec(DRAWER) is not None


def print_wide(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, lines: bool = False
) -> None:
    """A table on standard output that may be wider than a narrow terminal, rather than be cut."""
    from rich.console import Console

    made = table(title, columns, rows)
    made.show_lines = lines
    Console(width=max(WIDTH, Console().width)).print(made)


def print_findings(found: "Findings") -> None:
    """The sentences, one a line."""
    for sentence in found.sentences:
        typer.echo(f"- {sentence}")


def write_page(out: Path) -> Path | None:
    """The page of a grid's folder, in it; none where it cannot be made."""
    from nnrs.grid_directory import GridDirectory
    from nnrs.report.page import write_report

    if not _can_draw():
        note(f"no page here. Where the extra is installed: nnrs report {out}")
        return None
    page = GridDirectory(out).report_path
    write_report([out], page)
    note(f"report to open: {page}")
    return page
