"""Results to standard output, progress to standard error, the same content as JSON for programs."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]

ANY_WIDTH = 10_000  # characters, of which a table takes what it needs


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def note(message: str) -> None:
    """A remark on standard error."""
    typer.echo(message, err=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> "Table":
    """A rich table, its numbers to the right. Cells are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(title), title_justify="left")
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """The table on standard output; where that is no terminal, each row on one line, however long."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = ANY_WIDTH
    console.print(table(title, columns, rows))


def duration(seconds: float) -> str:
    """Seconds as a person says them.

    >>> duration(42.0), duration(90.0), duration(7260.0)
    ('42 s', '1.5 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
