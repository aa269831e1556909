"""`nnrs schedule`: the curriculum drawn in the terminal before anything is trained."""

from itertools import groupby
from typing import Annotated

import typer

from nnrs.cli.output import JsonOption, print_json
from nnrs.errors import ConfigError
from nnrs.schedules import SHAPES, Schedule, progress
from nnrs.wording import counted

WIDTH = 50


def schedule(
    schedule: Annotated[str, typer.Option(help=f"Shape: {', '.join(SHAPES)}.")] = "exponential",
    neighbor_rate: Annotated[str | None, typer.Option(help="γ, START:END.", metavar="START:END")] = None,
    prediction_rate: Annotated[str | None, typer.Option(help="ε, START:END.", metavar="START:END")] = None,
    epochs: Annotated[int, typer.Option(help="Number of epochs.")] = 40,
    json: JsonOption = False,
) -> None:
    """Draw a curriculum, with its dose (the mean rate), before you train."""
    if epochs < 1:
        raise ConfigError(f"epochs must be at least 1, got {epochs}.")
    if neighbor_rate is None and prediction_rate is None:
        neighbor_rate = "0:0.2"
    given = {"neighbor rate γ": neighbor_rate, "prediction rate ε": prediction_rate}
    rates = {name: Schedule.parse(text, schedule) for name, text in given.items() if text is not None}
    if json:
        print_json([_record(name, rate, epochs) for name, rate in rates.items()])
        return
    for name, rate in rates.items():
        typer.echo(f"{name}: {rate.shape} {_course(rate, epochs)} over {counted(epochs, 'epoch')}")
        highest = max(rate.start, rate.end) or 1.0
        for epoch in range(epochs):
            value = rate(progress(epoch, epochs))
            typer.echo(f"{epoch:4d}  {value:.4f}  {'█' * round(WIDTH * value / highest)}")
        typer.echo(f"dose (mean rate): {rate.dose(epochs):.4f}")


def _course(rate: Schedule, epochs: int) -> str:
    """The rate of the first epoch, the one that is farthest from it and that of the last, each where it is another.

    >>> _course(Schedule("static", 0.0, 0.2), 40), _course(Schedule("pulse", 0.0, 0.2), 40)
    ('0.2', '0 -> 0.2 -> 0')
    """
    rates = [rate(progress(epoch, epochs)) for epoch in range(epochs)]
    farthest = max(rates, key=lambda value: abs(value - rates[0]))
    return " -> ".join(
        shown for shown, _ in groupby(f"{value:.4g}" for value in (rates[0], farthest, rates[-1]))
    )


def _record(name: str, rate: Schedule, epochs: int) -> dict[str, object]:
    return {
        "rate": name.split()[0],
        "shape": rate.shape,
        "start": rate.start,
        "end": rate.end,
        "dose": rate.dose(epochs),
        "rates": [rate(progress(epoch, epochs)) for epoch in range(epochs)],
    }
