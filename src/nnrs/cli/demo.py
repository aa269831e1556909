"""`nnrs demo`: the mechanism on real text, in a few minutes on a laptop."""

import shlex
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnrs.cli.many import check_means, repeating
from nnrs.cli.output import DeviceOption, JsonOption, note, print_json

if TYPE_CHECKING:
    from nnrs.experiments.plan import Plan
    from nnrs.experiments.store import Result

METHODS = ("mle", "ss", "nnrs", "ss-nnrs")
MEASURED = ("perplexity", "deciles", "bleu", "self-bleu", "exposure")
LEGEND = """\
Four language models ({model}) trained on one text ({text}), differing only in their training inputs:
mle feeds the true words, ss some of its own predictions, nnrs some neighbors of the true words, ss-nnrs both.

ε is the share of inputs asked to be predictions, γ the share asked to be neighbors; both rise over the epochs.
Fewer are really replaced: the end of a line (<eos>) and rare words (<unk>) have no neighbors, and a word that
both ask for goes to one of them. τ says how evenly the neighbors are drawn; "effective neighbors" is how many
share the draws. Replaced inputs are harder, so higher perplexities on the way are expected.

A passage of the training text at the last epoch's rates; a replaced word is shown as true→replacement.
"""


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs and the report. [default: demo]")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Epochs of each run.")] = 5,
    data: Annotated[
        str, typer.Option(help="Folder, file, sotu[:YEAR] or synthetic[:SENTENCES].")
    ] = "sotu:1990",
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Train mle, ss, nnrs and ss-nnrs side by side and show what each did to its inputs. Names no winner."""
    from nnrs.cli.grid import carry_out
    from nnrs.corpus import open_corpus

    open_corpus(data)  # refused before there is a folder; what the usual text comes with can draw, too
    check_means(drawing=True)
    plan = demo_plan(data, epochs)
    folder = out or free_folder(plan)
    carry_out(plan, folder, jobs=None, device=device, ray=None, tell=lambda failed: _tell(folder, json))


def _tell(folder: Path, json: bool) -> None:
    """What the runs that are done show, the page, and which of the four are missing."""
    from nnrs.experiments.store import collect
    from nnrs.grid_directory import GridDirectory
    from nnrs.report.page import write_report

    results, page = collect(folder), GridDirectory(folder).report_path
    missing = write_report([folder], page) if results else []
    if json:
        print_json({result.labels["method"]: _record(result) for result in results})
    elif results:
        _print(results, folder, missing)
        typer.echo(f"report to open: {page}")


def demo_plan(data: str, epochs: int) -> "Plan":
    """The four runs, and what of them is cheap to measure."""
    from nnrs.experiments.plan import Plan, cells_of
    from nnrs.experiments.subject import Request

    options = {"data": data, "max_vocabulary": 2000, "preset": "tiny", "epochs": epochs, "schedule": "linear"}
    rates = {"prediction_rate": "0:0.25", "neighbor_rate": "0:0.25"}
    return Plan(
        kind="compare",
        title="The mechanism on real text",
        command=shlex.join(repeating(["nnrs", "demo", "--data", data, "--epochs", str(epochs)])),
        cells=tuple(cells_of({**options, **rates}, METHODS, [1])),
        request=Request(metrics=MEASURED, sentences=200, prefix=5, length=15),
    )


def free_folder(plan: "Plan") -> Path:
    """`demo`, or the first of demo-2, demo-3 ... that is not there yet, or where this very demo was interrupted."""
    candidates = (Path("demo" if number == 1 else f"demo-{number}") for number in count(1))
    return next(path for path in candidates if not path.exists() or _is_interrupted(path, plan))


def _is_interrupted(path: Path, plan: "Plan") -> bool:
    """Whether a folder holds the same runs, and not yet all of their results or the page that they end with.

    One with a damaged file, of which that cannot be known, is told and left alone.
    """
    from nnrs.errors import NnrsError
    from nnrs.experiments.missing import missing_runs
    from nnrs.experiments.plan import Plan
    from nnrs.grid_directory import GridDirectory

    grid = GridDirectory(path)
    try:
        stored = grid.plan()
        if stored is None or Plan.from_dict(stored) != plan:
            return False
        return bool(missing_runs([path])) or not grid.report_path.exists()  # read also where there is no page
    except NnrsError as error:
        note(f"{path} is left as it is, and another folder taken: {error}")
        return False


def _record(result: "Result") -> dict[str, Any]:
    names = ("valid_perplexity", "test_perplexity", "best_epoch", "signature")
    return {**{name: result.record[name] for name in names}, "metrics": result.epochs}


def _print(results: "list[Result]", folder: Path, missing: Sequence[str]) -> None:
    """The tables on standard output, and the same as a text file."""
    from rich.console import Console

    from nnrs.cli.output import table
    from nnrs.files import write_text
    from nnrs.grid_directory import GridDirectory
    from nnrs.metrics.score import signature_parts

    printed = Console(record=True, width=120)
    model = signature_parts(results[0].record["signature"])["model"]
    printed.print(LEGEND.format(text=results[0].corpus, model=model), markup=False, highlight=False)
    by_method = {result.labels["method"]: result for result in results}
    for method, result in by_method.items():
        printed.print(f"{method:8s} {_example(result.record['trajectory'])}\n", markup=False, highlight=False)
    curves = {method: result.epochs for method, result in by_method.items()}
    if "ss-nnrs" in curves:
        columns = ("epoch", "ε asked", "γ asked", "really replaced", "τ", "effective neighbors")
        printed.print(table("The curriculum of ss-nnrs", columns, map(_curriculum_row, curves["ss-nnrs"])))
    by_epoch = [
        [str(epoch), *(f"{curve[epoch]['valid_perplexity']:.1f}" for curve in curves.values())]
        for epoch in range(len(results[0].epochs))
    ]
    printed.print(table("Validation perplexity (lower is better)", ["epoch", *curves], by_epoch))
    tests = [["test", *(f"{result.record['test_perplexity']:.1f}" for result in results)]]
    printed.print(table("Test perplexity, one seed, a tiny model", ["", *curves], tests))
    printed.print("One seed and a few epochs decide nothing: these figures name no winner.")
    for sentence in missing:
        printed.print(sentence, markup=False, highlight=False)
    write_text(GridDirectory(folder).text_path, printed.export_text())


def _curriculum_row(metrics: dict[str, Any]) -> list[str]:
    rates = [
        f"{metrics[name]:.3f}"
        for name in ("prediction_rate", "neighbor_rate", "effective_rate", "temperature")
    ]
    return [str(metrics["epoch"]), *rates, f"{metrics['effective_neighbors']:.2f}"]


def _example(trajectory: dict[str, Any]) -> str:
    """A few sentences of the training text with replacements at the last epoch's rates."""
    pairs = zip(trajectory["gold"], trajectory["inputs"], strict=True)
    return " ".join(gold if gold == used else f"{gold}→{used}" for gold, used in pairs)
