"""`nnrs paper`: the paper's tables and figures by name, with ours beside the printed values."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnrs.cli.grid import DryRunOption, FleetOption, JobsOption, RayOption, RecordsOption
from nnrs.cli.many import (
    OutOption,
    SeedsOption,
    check_means,
    named,
    print_findings,
    print_wide,
    this_command,
    with_train_options,
    write_page,
)
from nnrs.cli.output import DeviceOption, note, print_json
from nnrs.cli.train_options import given_options

if TYPE_CHECKING:
    from nnrs.experiments.store import Result

FORMATS = ("table", "csv", "json")


@with_train_options("model", "schedule", "prediction_rate", "neighbor_rate", "config")  # the tables say them
def paper(
    what: Annotated[str, typer.Argument(metavar="table1|table2|table3|figures", help="Of the paper.")],
    out: OutOption,
    data: Annotated[
        Path | None, typer.Option(help="The folder that holds the texts, each in a folder of its name.")
    ] = None,
    corpus: Annotated[
        str | None, typer.Option(help="Names, with commas. [default: of wikitext-2, ptb what --data holds]")
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            help="A part: rows of Table 1 or methods of Tables 2 and 3, with commas. [default: all]"
        ),
    ] = None,
    schedules: Annotated[
        str | None, typer.Option(help="A part of Table 1: its schedules, with commas. [default: all]")
    ] = None,
    seeds: SeedsOption = "1",
    preset: Annotated[
        str | None, typer.Option(help="tiny, small, medium, large. [default: medium; --pilot: tiny]")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="[default: 40; --pilot: 4]")] = None,
    pilot: Annotated[
        bool, typer.Option("--pilot", help="The same rows on a small text of ours, in minutes on two cores.")
    ] = False,
    format: Annotated[str, typer.Option(help="table, csv or json, on standard output.")] = "table",
    jobs: JobsOption = None,
    fleet: FleetOption = None,
    records: RecordsOption = None,
    ray: RayOption = None,
    device: DeviceOption = "auto",
    dry_run: DryRunOption = False,
    **options: Any,
) -> None:
    """Run what is missing of a table, print it in the paper's layout, and write the page."""
    from nnrs.cli.grid import carry_out
    from nnrs.experiments.options import parse_seeds
    from nnrs.experiments.paper import plan

    _check(what, format, out)
    corpora = _corpora(data, corpus, pilot)
    wanted = given_options({"preset": preset, "epochs": epochs, **options})
    if not pilot and "vectors" not in wanted:
        note(
            "neighbors come from the training text; for the paper's, name a file of GoogleNews with --vectors"
        )
    made = plan(
        what,
        corpora,
        wanted,
        parse_seeds(seeds),
        command=this_command(),
        pilot=pilot,
        rows=named("rows", rows),
        schedules=named("schedules", schedules),
    )
    carry_out(
        made,
        out,
        jobs=jobs,
        fleet=fleet,
        records=records,
        device=device,
        ray=ray,
        listed=format if dry_run else None,
        tell=lambda failed: _tell(what, format, out),
    )


def _tell(what: str, format: str, out: Path) -> None:
    """What there is of the table, which of its runs are missing, and the page."""
    from nnrs.experiments.findings import findings
    from nnrs.experiments.missing import missing_runs
    from nnrs.experiments.store import collect

    results = collect(out)
    if not results:
        if format == "json":
            print_json([])
        return
    _print(what, results, format, out)
    if what != "figures" and format == "table":
        print_findings(findings(results, missing_runs([out])))
    write_page(out)


def _check(what: str, format: str, out: Path) -> None:
    """Refuse what could not be printed or drawn in the end."""
    from nnrs.experiments.paper import PLAN_OF
    from nnrs.experiments.paper_figures import check_folder
    from nnrs.registry import look_up

    look_up(PLAN_OF, what, "table")
    look_up(dict.fromkeys(FORMATS), format, "format")
    check_means(drawing=what == "figures")
    if what == "figures":
        check_folder(out)


def _corpora(data: Path | None, corpus: str | None, pilot: bool) -> dict[str, str]:
    """The texts by name: those of a folder, or the pilot's own."""
    from nnrs.errors import ConfigError
    from nnrs.experiments.paper import find_corpora, pilot_corpora

    if pilot == (data is not None) or (pilot and corpus):
        raise ConfigError(
            "give one of the two: --data, the folder of the texts, or --pilot, which brings its own."
        )
    return pilot_corpora() if data is None else find_corpora(data, named("corpus", corpus))


def _print(what: str, results: "list[Result]", format: str, out: Path) -> None:
    from nnrs.experiments import replication, text_tables
    from nnrs.experiments.table import lines_csv

    if what == "figures":
        from nnrs.experiments.paper_figures import write_figures

        written = [str(path) for path in write_figures(results, out)]
        print_json(written) if format == "json" else typer.echo("\n".join(written))
        return
    perplexities = what == "table1"
    if format == "table":
        made = replication.table1(results) if perplexities else text_tables.text_table(what, results)
        for one in made:
            print_wide(one.title, one.columns, one.rows, lines=True)
        return
    lines = replication.table1_lines(results) if perplexities else text_tables.text_lines(what, results)
    print_json(lines) if format == "json" else typer.echo(lines_csv(lines), nl=False)
