"""What each method gains over teacher forcing, where one setting of each was trained with several seeds."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.studies import arms, contrasts, gains, records

from nnrs.experiments.groups import grouped
from nnrs.files import write_text
from nnrs.metrics.contrasts import ALPHA, Contrast
from nnrs.report.vega import SCHEMA, Spec

# The studies and their documents in docs/studies/, in the order of the table and, from the top, of the picture.
PLACES = {
    "ptb-contrasts": ("PTB, one setting for all", "contrasts.md#contrasts"),
    "ptb-best-seeds": ("PTB, each tuned", "best.md#ptb-best-seeds"),
    "ptb-large-seeds": ("PTB, large LSTM", "large.md#large-seeds"),
    "wikitext-2-contrasts": ("WikiText-2, one setting for all", "contrasts.md#wikitext-2-contrasts"),
    "wikitext-2-best-seeds": ("WikiText-2, each tuned", "best.md#wikitext-2-best-seeds"),
    "multi30k": ("Multi30k, translation", "multi30k.md#multi30k"),
    "synthetic": ("Known language, plenty of text", "known-language.md#synthetic"),
    "synthetic-best-seeds": ("Known language, scarce text, each tuned", "known-language.md#best"),
}
FORCED = "mle"
ARMS = {  # their names, and the colors that the report's page gives methods in the light
    "ss": ("scheduled sampling", "#c8581f"),
    "nnrs": ("neighbors", "#2c8a5f"),
    "ss-nnrs": ("both", "#8b46a8"),
    "unigram": ("unrelated words", "#58707f"),
    "nnrs, targets": ("neighbors as targets", "#a98307"),
}
BETTER, WORSE = "✓", "✗"  # a difference that passed its corrected test
BREAK = "|"  # between the lines of a label
GRID = "#dddddd"
BARE = {"ticks": False, "domain": False, "labelPadding": 8}


@dataclass(frozen=True)
class Place:
    """Where the methods were compared, and what was found of each that was."""

    study: str
    perplexity: float  # of teacher forcing, on test
    gains: Mapping[str, Contrast]  # by arm, against it
    passed: frozenset[str]  # the arms of which that was named in advance and passed its corrected test

    @property
    def seeds(self) -> int:
        """On which all were trained."""
        (count,) = {len(item.seeds) for item in self.gains.values()}
        return count


def places() -> Iterator[Place]:
    """All of them."""
    for study in PLACES:
        results = records(study)
        found = {arm: group for arm, (group,) in arms(grouped(results)).items() if arm in (FORCED, *ARMS)}
        beside = [item for item in contrasts(study, results) if item.theirs == FORCED]
        passed = frozenset(item.ours for item in beside if item.holm_p < ALPHA)
        yield Place(study, found[FORCED].perplexity("test").mean, gains(found, "test"), passed)


def overview_markdown() -> str:
    """As a table: bold where the interval lies on one side of zero, a sign where it passed its corrected test."""
    head = ["", "seeds", "teacher forcing (`mle`)", *(f"{name} (`{arm}`)" for arm, (name, _) in ARMS.items())]
    rows = [head, ["---"] * len(head)]
    for place in places():
        title, document = PLACES[place.study]
        cells = [_cell(place.gains[arm], arm in place.passed) if arm in place.gains else "" for arm in ARMS]
        rows.append([f"[{title}](studies/{document})", str(place.seeds), f"{place.perplexity:.2f}", *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def write_overview(out: Path) -> None:
    """The same as a picture."""
    import vl_convert

    write_text(out, vl_convert.vegalite_to_svg(overview()) + "\n")


def overview() -> Spec:
    """The picture as a Vega-Lite specification: a row for each place, and in it a point for each arm."""
    found = {_label(place): place.gains for place in places()}
    rows = [_drawn(label, item) for label, gains in found.items() for item in gains.values()]
    names, colors = [_legend(arm) for arm in ARMS], [color for _, color in ARMS.values()]
    axis = {"labelExpr": f"split(datum.label, '{BREAK}')", "labelFontSize": 12, "labelLimit": 400, **BARE}
    y = {"field": "place", "type": "nominal", "sort": list(found), "title": None, "axis": axis}
    every_other = {"values": [{"place": label} for label in list(found)[::2]]}
    color = {
        "field": "arm",
        "type": "nominal",
        "scale": {"domain": names, "range": colors},
        "legend": {
            "orient": "top",
            "title": None,
            "labelFontSize": 12,
            "columns": 3,
            "columnPadding": 30,
            "labelLimit": 300,
        },
    }
    beside = {"y": y, "yOffset": {"field": "arm", "type": "nominal", "sort": names}, "color": color}
    interval = {"x": _along("low"), "x2": {"field": "high"}, **beside}
    point = {"x": _along("gain"), "description": {"field": "told"}, **beside}
    return {
        "$schema": SCHEMA,
        "background": "white",
        "padding": {"left": 50, "top": 10, "right": 60, "bottom": 10},  # another machine's font may be wider
        "title": {
            "text": "What each method gains over teacher forcing (mle): further left is better",
            "subtitle": "Mean of differences that are paired by seed, and its 95 % interval",
            "anchor": "start",
        },
        "data": {"values": rows},
        "width": 560,
        "height": 62 * len(found),
        "layer": [
            {
                "data": every_other,
                "mark": {"type": "rect", "color": "#f4f4f4", "aria": False},
                "encoding": {"y": y},
            },
            {"data": {"values": [{}]}, "mark": _silent("#444444"), "encoding": {"x": {"datum": 0}}},
            {"mark": _silent(None), "encoding": interval},
            {"mark": {"type": "point", "filled": True, "size": 55}, "encoding": point},
        ],
        "config": {"view": {"stroke": None}, "font": "sans-serif", "point": {"opacity": 1}},
    }


def _label(place: Place) -> str:
    title, _ = PLACES[place.study]
    return f"{title}{BREAK}{place.seeds} seeds, teacher forcing {place.perplexity:.1f}"


def _legend(arm: str) -> str:
    return f"{arm}: {ARMS[arm][0]}"


def _drawn(label: str, item: Contrast) -> dict[str, Any]:
    low, high = _ends(item)
    told = f"{label.split(BREAK)[0]}, {_legend(item.ours)}: {_signed(_percent(item.mean))} % {_between(item)}"
    drawn = {"place": label, "arm": _legend(item.ours), "told": told}
    return {**drawn, "gain": _percent(item.mean), "low": low, "high": high}


def _along(field: str) -> Spec:
    shown = {"grid": True, "gridColor": GRID, "tickCount": 8, "format": "d", "labelFlush": False}
    title = "difference in test perplexity, %"
    return {"field": field, "type": "quantitative", "title": title, "axis": {**shown, **BARE}}


def _silent(color: str | None) -> Spec:
    """A line of which a screen reader has nothing to say: its point tells both ends."""
    return {"type": "rule", "strokeWidth": 2, "aria": False, **({"color": color} if color else {})}


def _cell(item: Contrast, passed: bool) -> str:
    (low, high), mean = _ends(item), f"{_signed(_percent(item.mean))} %"
    shown = mean if low <= 0.0 <= high else f"**{mean}**"
    sign = f" {BETTER if high < 0.0 else WORSE}" if passed else ""
    return f"{shown}{sign} {_between(item)}"


def _between(item: Contrast) -> str:
    return f"({' to '.join(map(_signed, _ends(item)))})"


def _signed(percent: float) -> str:
    """A digit behind the point, and two where one would hide on which side of zero it is."""
    return f"{percent:+.1f}" if abs(percent) >= 0.05 else f"{percent:+z.2f}"


def _ends(item: Contrast) -> tuple[float, float]:
    low, high = item.interval
    return _percent(low), _percent(high)


def _percent(nats: float) -> float:
    return 100.0 * math.expm1(nats)
