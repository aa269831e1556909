"""`nnrs compare`: whether it helps on a text of one's own."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnrs.cli.grid import DryRunOption, FleetOption, JobsOption, RayOption, RecordsOption
from nnrs.cli.many import (
    OutOption,
    SeedsOption,
    check_means,
    names,
    print_findings,
    print_wide,
    this_command,
    with_train_options,
    write_page,
)
from nnrs.cli.output import DeviceOption, JsonOption, print_json
from nnrs.cli.train_options import given_options

if TYPE_CHECKING:
    from nnrs.experiments.findings import Findings
    from nnrs.experiments.groups import Group
    from nnrs.metrics.contrasts import Contrast

SHOWN = {"bleu4|test": "BLEU-4", "self-bleu4|test": "self-BLEU-4"}


@with_train_options()
def compare(
    out: OutOption,
    methods: Annotated[str, typer.Option(help="Separated by commas.")] = "mle,ss,nnrs,ss-nnrs",
    seeds: SeedsOption = "1-8",
    metrics: Annotated[
        str | None,
        typer.Option(help="As `nnrs evaluate` names them. [default: perplexity, bleu, self-bleu, exposure]"),
    ] = None,
    oracle: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="A better model's run: exposure measures errors against it."),
    ] = None,
    jobs: JobsOption = None,
    fleet: FleetOption = None,
    records: RecordsOption = None,
    ray: RayOption = None,
    device: DeviceOption = "auto",
    dry_run: DryRunOption = False,
    json: JsonOption = False,
    **options: Any,
) -> None:
    """Train methods side by side, and say what is better than what, by how much and how sure. It may be nothing."""
    from nnrs.cli.grid import carry_out
    from nnrs.experiments.compare import plan
    from nnrs.experiments.findings import reach
    from nnrs.experiments.options import parse_seeds
    from nnrs.experiments.settings import pairs_of

    check_means()
    chosen, wanted = names(methods), parse_seeds(seeds)
    measured = tuple(names(metrics or ""))
    made = plan(chosen, wanted, given_options(options), measured, command=this_command(), oracle=oracle)
    carry_out(
        made,
        out,
        jobs=jobs,
        fleet=fleet,
        records=records,
        device=device,
        ray=ray,
        listed=("json" if json else "table") if dry_run else None,
        remarks=reach(len(wanted), len(pairs_of(chosen))),
        tell=partial(_tell, made.title, out, json),
    )


def _tell(title: str, out: Path, json: bool, failed: Mapping[str, str]) -> None:
    """What the runs that are done say, which of the plan are missing, and in JSON also what became of those."""
    from nnrs.cli.grid import listed_failures
    from nnrs.experiments.findings import findings
    from nnrs.experiments.groups import grouped
    from nnrs.experiments.missing import missing_runs
    from nnrs.experiments.store import collect

    results = collect(out)
    found, page = findings(results, missing_runs([out])), write_page(out) if results else None
    if json:
        report = str(page) if page else None
        print_json({"title": title, **found.as_dict(), "report": report, "failed": listed_failures(failed)})
    elif results:
        _print_groups(grouped(results), title)
        if found.contrasts:
            _print_contrasts(found)
        print_findings(found)


def _print_groups(groups: "list[Group]", title: str) -> None:
    keys = dict.fromkeys(key for group in groups for key in group.scores)
    scores = {key: _label(key, list(keys)) for key in keys if _metric(key) in SHOWN}
    columns = ("method", "seeds", "valid", "test", *scores.values(), "ε asked", "γ asked", "replaced")
    rows = [
        (
            " ".join([group.method, *group.apart.values()]),
            str(len(group.seeds)),
            *(str(group.perplexity(split)) for split in ("valid", "test")),
            *(str(group.score(key)) for key in scores),
            *(f"{group.rate('dose', source):.3f}" for source in ("prediction", "neighbor")),
            f"{group.rate('effective', 'all'):.3f}",
        )
        for group in groups
    ]
    print_wide(f"{title}: perplexity (lower is better), mean ± sd over seeds", columns, rows)


def _metric(key: str) -> str:
    return "|".join(key.split("|")[:2])


def _label(key: str, keys: "list[str]") -> str:
    """What a column is called; where several are of one metric, also how each was made."""
    several = sum(_metric(other) == _metric(key) for other in keys) > 1
    return " ".join([SHOWN[_metric(key)], *(key.split("|")[2:] if several else [])])


def _print_contrasts(found: "Findings") -> None:
    columns = ("contrast", "metric", "difference", "95% interval", "p", "Holm p", "verdict")
    rows = [_contrast_row(item) for item in (*found.contrasts, *found.others)]
    print_wide("paired by seed; each family of metrics corrected by itself", columns, rows)


def _contrast_row(item: "Contrast") -> tuple[str, ...]:
    from nnrs.experiments.findings import shown_difference, shown_interval, shown_p

    pair, metric = f"{item.ours} − {item.theirs}", item.metric.replace("|", " ")
    sure = shown_p(item.p), shown_p(item.holm_p)
    return (pair, metric, shown_difference(item), shown_interval(item), *sure, item.verdict)
