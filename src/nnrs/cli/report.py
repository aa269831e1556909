"""`nnrs report`: one page of results, complete in itself."""

from pathlib import Path
from typing import Annotated

import typer

from nnrs.cli.output import JsonOption, note, print_json


def report(
    sources: Annotated[
        list[Path],
        typer.Argument(help="Folders of grids or of runs, run directories, or .jsonl(.xz) files of results."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page. [default: report.html, in the folder where there is one]")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="The perplexities as one picture, too.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Of the page. [default: the grid's own]")] = None,
    json: JsonOption = False,
) -> None:
    """Write the tables, plots and explorers of stored results as one HTML file that needs no network."""
    from nnrs.files import explained
    from nnrs.grid_directory import GridDirectory
    from nnrs.report.page import write_report

    with explained(sources[0], "read"):
        folder = sources[0] if len(sources) == 1 and sources[0].is_dir() else Path()
    place = out or GridDirectory(folder).report_path
    for sentence in write_report(sources, place, picture, title):
        note(sentence)
    if json:
        print_json({"report": str(place), "bytes": place.stat().st_size})
    else:
        typer.echo(f"report to open: {place}")
