"""`nnrs results`: stored results as a table for a spreadsheet, pandas or DuckDB."""

from pathlib import Path
from typing import Annotated

import typer

FORMATS = ("csv", "json", "jsonl", "md")


def results(
    sources: Annotated[
        list[Path],
        typer.Argument(help="A grid's folder, a folder of runs, a run, or a .jsonl file; several too."),
    ],
    format: Annotated[
        str,
        typer.Option(
            help="csv: a row for each run; json, jsonl: all that is known of it; md: means over seeds, as Markdown."
        ),
    ] = "csv",
    out: Annotated[Path | None, typer.Option(help="A file, instead of standard output.")] = None,
) -> None:
    """All results of finished runs, without their models."""
    import json

    from nnrs.errors import ConfigError
    from nnrs.experiments.markdown import as_markdown
    from nnrs.experiments.store import collect
    from nnrs.experiments.table import results_csv
    from nnrs.files import write_text
    from nnrs.registry import look_up

    look_up(dict.fromkeys(FORMATS), format, "format")
    if out and out.exists():
        raise ConfigError(f"{out} exists already and is not overwritten. Choose another --out.")
    found = [result for source in sources for result in collect(source)]
    if format == "csv":
        text = results_csv(found)
    elif format == "md":
        text = as_markdown(found)
    elif format == "json":
        text = json.dumps([result.record for result in found], ensure_ascii=False, indent=2) + "\n"
    else:
        text = "".join(json.dumps(result.record, ensure_ascii=False) + "\n" for result in found)
    if not out:
        typer.echo(text, nl=False)
        return
    write_text(out, text)
