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
    "ptb-large-seeds": ("PTB, large LSTM, regularised", "large.md#large-seeds"),
    "wikitext-2-contrasts": ("WikiText-2, one setting for all", "contrasts.md#wikitext-2-contrasts"),
    "wikitext-2-best-seeds": ("WikiText-2, each tuned", "best.md#wikitext-2-best-seeds"),
    "multi30k": ("Multi30k, translation", "multi30k.md#multi30k"),
    "synthetic": ("Known language, plenty of text", "known-language.md#synthetic"),
    "synthetic-best-seeds": ("Known language, scarce text, each tuned", "known-language.md#best"),
}
FORCED = "mle"
ARMS = {
    "ss": ("scheduled sampling", "#08519c"),
    "nnrs": ("neighbors", "#e6550d"),
    "ss-nnrs": ("both", "#756bb1"),
    "unigram": ("unrelated words", "#969696"),
    "nnrs, targets": ("neighbors as targets", "#31a354"),
}
PASSED = "✓"
BREAK = "|"  # between the lines of a label
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
    """As a table: bold where the interval lies on one side of zero."""
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
    names, colors = ([arm[part] for arm in ARMS.values()] for part in (0, 1))
    y = {
        "field": "place",
        "type": "nominal",
        "sort": list(found),
        "title": None,
        "axis": {
            "labelExpr": f"split(datum.label, '{BREAK}')",
            "labelFontSize": 12,
            "labelLimit": 400,
            **BARE,
        },
    }
    color = {
        "field": "arm",
        "type": "nominal",
        "scale": {"domain": names, "range": colors},
        "legend": {"orient": "top", "title": None, "labelFontSize": 12, "columnPadding": 24},
    }
    beside = {"y": y, "yOffset": {"field": "arm", "type": "nominal", "sort": names}, "color": color}
    interval = {"x": _along("low"), "x2": {"field": "high"}, **beside}
    return {
        "$schema": SCHEMA,
        "background": "white",
        "padding": {"left": 50, "top": 10, "right": 20, "bottom": 10},  # another machine's font may be wider
        "title": {
            "text": "What each method gains over teacher forcing: further left is better",
            "subtitle": "Mean of differences that are paired by seed, and its 95 % interval",
            "anchor": "start",
        },
        "data": {"values": rows},
        "width": 480,
        "height": {"step": 10, "for": "offset"},
        "layer": [
            {"mark": {"type": "rule", "color": "#444444"}, "encoding": {"x": {"datum": 0}}},
            {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": interval},
            {
                "mark": {"type": "point", "filled": True, "size": 55},
                "encoding": {"x": _along("gain"), **beside},
            },
        ],
        "config": {"view": {"stroke": None}, "font": "sans-serif", "point": {"opacity": 1}},
    }


def _label(place: Place) -> str:
    title, _ = PLACES[place.study]
    return f"{title}{BREAK}{place.seeds} seeds, teacher forcing {place.perplexity:.1f}"


def _drawn(label: str, item: Contrast) -> dict[str, Any]:
    low, high = _ends(item)
    return {"place": label, "arm": ARMS[item.ours][0], "gain": item.percent, "low": low, "high": high}


def _along(field: str) -> Spec:
    axis = {"grid": True, "gridColor": "#dddddd", "tickCount": 8, "format": "d", **BARE}
    return {"field": field, "type": "quantitative", "title": "difference in test perplexity, %", "axis": axis}


def _cell(item: Contrast, passed: bool) -> str:
    low, high = _ends(item)
    mean = f"{item.percent:+.1f} %"
    shown = mean if low <= 0.0 <= high else f"**{mean}**"
    return f"{shown}{f' {PASSED}' if passed else ''} ({low:+.1f} to {high:+.1f})"


def _ends(item: Contrast) -> tuple[float, float]:
    low, high = item.interval or (item.mean, item.mean)
    return 100.0 * math.expm1(low), 100.0 * math.expm1(high)
