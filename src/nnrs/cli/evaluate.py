"""`nnrs evaluate`: how well a trained model predicts text."""

from pathlib import Path
from typing import Annotated

import typer

from nnrs.cli.output import DeviceOption, JsonOption, print_json, print_table


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run directory made by `nnrs train`.")],
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    data: Annotated[str | None, typer.Option(help="Another text; default: the run's own.")] = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Perplexity of a run's best model: teacher-forced, every token scored, in one stream."""
    from nnrs.corpus import SPLITS
    from nnrs.experiments.prepare import choose_device
    from nnrs.experiments.run import evaluate_run
    from nnrs.registry import look_up

    look_up(dict.fromkeys(SPLITS), split, "split")
    score = evaluate_run(run, split, choose_device(device), data)
    if json:
        print_json(score.as_dict())
        return
    print_table("lower is better", ("metric", "value"), [(f"{score.metric} ({split})", f"{score.value:.2f}")])
    typer.echo(str(score))
