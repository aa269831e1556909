"""The parser and the exit codes: 0 done, 2 for what the user can mend, 130 after Ctrl-C, 143 after SIGTERM."""

import sys
import traceback
from collections.abc import Iterable
from typing import Annotated, TextIO, cast

import typer

from nnrs import __version__
from nnrs.cli import (
    compare,
    demo,
    evaluate,
    generate,
    grid,
    neighbors,
    paper,
    report,
    results,
    schedule,
    train,
)
from nnrs.cli.standard_output import StandardOutput
from nnrs.cli.torchrun import refuse_several
from nnrs.cli.usage import UsageError, refusal
from nnrs.errors import ConfigError, NnrsError

TOO_LITTLE_MEMORY = (
    "there is not enough memory for this. Use a smaller --preset, --units or --batch-size, or less text."
)
OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")

app = typer.Typer(
    name="nnrs",
    help="Train sequence models to survive their own mistakes: neighbor replacement, scheduled sampling, both.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("generate")(generate.generate)
app.command("neighbors")(neighbors.neighbors)
app.command("schedule")(schedule.schedule)
app.command("compare")(compare.compare)
app.command("paper")(paper.paper)
app.command("grid")(grid.grid)
app.command("results")(results.results)
app.command("report")(report.report)
app.command("demo")(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nnrs {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with an error.")] = False,
) -> None:
    """Train sequence models to survive their own mistakes."""
    if context.invoked_subcommand != "train":
        refuse_several(f"nnrs {context.invoked_subcommand}")


def _refuse_other_encodings(words: Iterable[str]) -> None:
    """An error for a word whose bytes are not UTF-8: what a run writes of itself and its text could not hold it."""
    for word in words:
        told = word.encode(errors="surrogateescape").decode(errors="backslashreplace")
        if told != word:
            raise ConfigError(
                f"'{told}' is not UTF-8. Rename the file or folder, or write the word in UTF-8."
            )


def _is_out_of_memory(error: Exception) -> bool:
    """Whether the memory was not enough; PyTorch says so in a RuntimeError, on the CPU in no class of its own."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY)


def main() -> None:
    """Run the command line; errors of ours and of the parser become one line on standard error."""
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]  # wherever it stood
    words = sys.argv[1:]
    if sys.stdout:  # it may have been closed
        sys.stdout = cast(TextIO, StandardOutput(sys.stdout))
    try:
        _refuse_other_encodings(words)
        sys.exit(app(standalone_mode=not words))  # without a word the parser shows its help
    except UsageError as error:
        told = refusal(error, words, [str(command.name) for command in app.registered_commands])
    except (NnrsError, MemoryError, RuntimeError) as error:
        ours = isinstance(error, NnrsError)
        if not ours and not _is_out_of_memory(error):
            raise
        if debug:
            traceback.print_exc()
        told = str(error) if ours else TOO_LITTLE_MEMORY
    typer.echo(f"error: {told}", err=True)
    sys.exit(2)
