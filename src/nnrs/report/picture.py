"""The main result as one picture: perplexities by setting, with their seeds and intervals."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nnrs.errors import ConfigError, DataError
from nnrs.experiments.groups import Group, grouped, names_of
from nnrs.experiments.store import Result
from nnrs.files import check_replaceable, write_text
from nnrs.metrics.contrasts import t_interval
from nnrs.metrics.score import family_of
from nnrs.report.vega import SCHEMA, Spec

# What is drawn where it was measured, beside the test perplexity itself.
PANELS = {
    "ppl-decile10|test": "in the rarest tenth of the text",
    "ppl-own-noise30|test": "after a history with 30 % own words",
}
MARK = "<!-- nnrs picture -->"


def write_picture(results: Sequence[Result], out: Path) -> None:
    """Draw the settings side by side as SVG. A picture that was there is made anew; any other file is left alone."""
    check_drawable(out)
    try:
        import vl_convert
    except ImportError:
        raise ConfigError("the picture needs vl-convert: pip install 'nnrs[report]'.") from None
    write_text(out, MARK + vl_convert.vegalite_to_svg(picture(results)) + "\n")


def check_drawable(out: Path) -> None:
    """Refuse a name of another kind than SVG, and to write over what is no picture of ours."""
    if out.suffix.lower() != ".svg":
        raise ConfigError(f"the picture is an SVG: {out} must end in .svg. Choose another name.")
    check_replaceable(out, MARK, "picture")


def picture(results: Sequence[Result]) -> Spec:
    """As a Vega-Lite specification: a panel for each perplexity, a line for each setting, the best at the top."""
    groups = sorted(grouped(results), key=lambda group: group.perplexity("test").mean)
    if not groups:
        raise DataError("no finished run to draw. Finish one first.")
    names = names_of(groups)
    panels = [_panel("test perplexity", names, [_test(group) for group in groups])]
    for key, title in PANELS.items():
        values = [list(group.scores.get(key, {}).values()) for group in groups]
        if all(values):
            panels.append(_panel(title, names, values, labelled=False))
    return {
        "$schema": SCHEMA,
        "background": "white",
        # Wider on the left than was measured here: another machine's font may be.
        "padding": {"left": 10 + max(map(len, names)), "top": 10, "right": 20, "bottom": 10},
        "title": {"text": _title(groups), "anchor": "start", "fontSize": 12, "fontWeight": "normal"},
        "hconcat": panels,
        "config": {"view": {"stroke": None}, "axis": {"grid": False}, "font": "sans-serif"},
    }


def _title(groups: Sequence[Group]) -> list[str]:
    """In two lines, which one panel is wide enough for."""
    texts = ", ".join(dict.fromkeys(group.results[0].corpus for group in groups))
    seeds = sorted({len(group.seeds) for group in groups})
    counts = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    runs = "one seed" if seeds == [1] else f"{counts} seeds (light), mean and 95 % interval (dark)"
    return [f"Perplexity on {texts}, lower is better", runs]


def _test(group: Group) -> list[float]:
    return [result.record["test_perplexity"] for result in group.results]


def _panel(
    title: str, names: Sequence[str], values: Iterable[Sequence[float]], labelled: bool = True
) -> Spec:
    means, seeds = [], []
    for name, each in zip(names, values, strict=True):
        mean = sum(each) / len(each)
        low, high = t_interval(each, family_of("ppl").least) or (mean, mean)
        means.append({"name": name, "mean": mean, "low": low, "high": high})
        seeds += [{"name": name, "value": value} for value in each]
    axis = {"labelFontSize": 12, "labelLimit": 600, "ticks": False, "domain": False, "title": None}
    y = {"field": "name", "type": "nominal", "sort": list(names), "axis": axis if labelled else None}
    return {
        "width": 260,
        "height": {"step": 22},
        "layer": [
            _layer(seeds, "value", title, y, {"type": "tick", "thickness": 2, "color": "#9ecae1"}),
            _layer(means, "low", title, y, {"type": "rule", "color": "#08519c"}, {"x2": {"field": "high"}}),
            _layer(
                means, "mean", title, y, {"type": "point", "filled": True, "size": 60, "color": "#08519c"}
            ),
        ],
    }


def _layer(
    rows: list[dict[str, Any]], field: str, title: str, y: Spec, mark: Spec, more: Spec | None = None
) -> Spec:
    scale = {"zero": False, "nice": True, "padding": 6}
    x = {"field": field, "type": "quantitative", "scale": scale, "title": title, "axis": {"tickCount": 4}}
    return {"data": {"values": rows}, "mark": mark, "encoding": {"x": x, "y": y, **(more or {})}}
