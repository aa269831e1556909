"""`nnrs results`: stored results as a table for a spreadsheet, pandas or DuckDB."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnrs.cli.output import note

if TYPE_CHECKING:
    from nnrs.experiments.store import Result

OTHERS = (".gz", ".bz2", ".zst", ".zip")  # names of what is compressed otherwise


def results(
    sources: Annotated[
        list[Path],
        typer.Argument(help="A grid's folder, a folder of runs, a run, or a .jsonl(.xz) file; several too."),
    ],
    format: Annotated[
        str,
        typer.Option(
            help="csv: a row for each run; json, jsonl: all that is known of it; md: means over seeds, as Markdown; "
            "table1, table2, table3: the paper's tables with ours beside them, as CSV."
        ),
    ] = "csv",
    out: Annotated[
        Path | None, typer.Option(help="A file, instead of standard output; *.xz: compressed.")
    ] = None,
) -> None:
    """All results of finished runs, without their models."""
    from nnrs.errors import ConfigError, DataError
    from nnrs.experiments.missing import missing_runs
    from nnrs.experiments.store import collect
    from nnrs.files import explained, write_text
    from nnrs.registry import look_up

    write = look_up(_formats(), format, "format")
    if out and out.suffix in OTHERS:
        raise ConfigError(
            f"{out}: files of nnrs are compressed as .xz. Choose a name that ends in that, or plain."
        )
    if out:
        with explained(out, "read"):
            if out.exists():
                raise ConfigError(f"{out} exists already and is not overwritten. Choose another --out.")
    found = collect(*sources)
    if not found:
        raise DataError(f"{', '.join(map(str, sources))}: no finished run to tell of. Finish one first.")
    text = write(found)
    for sentence in missing_runs(sources):
        note(sentence)
    if not out:
        typer.echo(text, nl=False)
        return
    write_text(out, text)


def _formats() -> "dict[str, Callable[[Sequence[Result]], str]]":
    """How results are written, by name."""
    import json

    from nnrs.experiments.markdown import as_markdown
    from nnrs.experiments.replication import table1_lines
    from nnrs.experiments.table import results_csv
    from nnrs.experiments.text_tables import text_lines

    def line(record: Any, indent: int | None = None) -> str:
        return json.dumps(record, ensure_ascii=False, indent=indent)

    return {
        "csv": results_csv,
        "json": lambda found: line([result.record for result in found], indent=2) + "\n",
        "jsonl": lambda found: "".join(f"{line(result.record)}\n" for result in found),
        "md": as_markdown,
        "table1": lambda found: _table("table1", table1_lines(found)),
        "table2": lambda found: _table("table2", text_lines("table2", found)),
        "table3": lambda found: _table("table3", text_lines("table3", found)),
    }


def _table(name: str, lines: Sequence[dict[str, Any]]) -> str:
    from nnrs.errors import DataError
    from nnrs.experiments.table import lines_csv

    if not lines:
        raise DataError(f"none of these results stands in {name}. `nnrs paper {name}` makes such results.")
    return lines_csv(lines)
