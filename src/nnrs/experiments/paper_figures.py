"""The paper's figures, as SVG: learning curves of Table 1's runs, validation solid and test a dashed line."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from nnrs.errors import ConfigError, RunError
from nnrs.experiments.paper import METHOD_OF, NO_SAMPLING, SCHEDULES
from nnrs.experiments.replication import Entry, entries, places
from nnrs.experiments.store import Result
from nnrs.files import explained, write_text
from nnrs.grid_directory import GridDirectory


def check_folder(out: Path) -> None:
    """Refuse a file that stands where the folder of the figures goes."""
    folder = GridDirectory(out).figures_path
    with explained(folder, "read"):
        if folder.exists() and not folder.is_dir():
            raise RunError(
                f"{folder} is a file: figures go into a folder there. Move it, or choose another --out."
            )


def write_figures(results: Sequence[Result], out: Path) -> list[Path]:
    """A file for each text in OUT/figures, in place of those of an earlier time."""
    try:
        import vl_convert
    except ImportError:
        raise ConfigError("figures need vl-convert-python: pip install 'nnrs[report]'.") from None
    written = []
    found = entries(results)
    folder = GridDirectory(out).figures_path
    with explained(folder):
        folder.mkdir(exist_ok=True)
    for place in places(found):
        drawn = vl_convert.vegalite_to_svg(curves([entry for entry in found if entry.group.place == place]))
        path = folder / f"{place}.svg"
        write_text(path, drawn)
        written.append(path)
    return written


def curves(found: Sequence[Entry]) -> dict[str, Any]:
    """A Vega-Lite specification: families below each other, schedules side by side, teacher forcing in each panel."""
    families = [name for name in METHOD_OF if name != NO_SAMPLING]
    valid, test = _points(found, families)
    epochs = 1 + max(point["epoch"] for point in valid)
    ticks = list(range(0, epochs, -(-epochs // 8)))  # whole epochs, eight at most
    color = {"field": "number", "type": "nominal", "sort": None, "title": "configuration"}
    y = {
        "type": "quantitative",
        "scale": {"type": "log", "zero": False, "nice": False},
        "title": "perplexity",
    }
    panel = {
        "width": 220,
        "height": 180,
        "layer": [
            {
                "mark": {"type": "line", "clip": True},
                "transform": [{"filter": "datum.split == 'valid'"}],
                "encoding": {
                    "x": {
                        "field": "epoch",
                        "type": "quantitative",
                        "axis": {"values": ticks},
                    },
                    "y": {**y, "field": "perplexity"},
                    "color": color,
                },
            },
            {
                "mark": {"type": "rule", "strokeDash": [5, 3]},
                "transform": [{"filter": "datum.split == 'test'"}],
                "encoding": {"y": {**y, "field": "perplexity"}, "color": color},
            },
        ],
    }
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": f"{found[0].group.place}: validation perplexity (solid) and test perplexity (dashed)",
        "data": {"values": [*valid, *test]},
        "facet": {
            "row": {"field": "family", "type": "nominal", "sort": families, "title": None},
            "column": {"field": "schedule", "type": "nominal", "sort": list(SCHEDULES), "title": None},
        },
        "spec": panel,
    }


def _points(
    found: Sequence[Entry], families: Sequence[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Means over the seeds: the validation perplexity of each epoch, and the test perplexity of the best one."""
    valid, test = [], []
    for entry in found:
        runs = [result.epochs for result in entry.group.results]
        for family in families if entry.row.name == NO_SAMPLING else [entry.row.family]:
            number = entry.row.name.removeprefix(entry.row.family) or NO_SAMPLING  # -1, -2 ... within a panel
            place = {
                "row": entry.row.name,
                "number": number,
                "family": family,
                "schedule": entry.schedule,
            }
            valid += [
                {
                    **place,
                    "split": "valid",
                    "epoch": epoch,
                    "perplexity": fmean(run[epoch]["valid_perplexity"] for run in runs),
                }
                for epoch in range(min(map(len, runs)))
            ]
            test.append({**place, "split": "test", "perplexity": entry.group.perplexity("test").mean})
    return valid, test
