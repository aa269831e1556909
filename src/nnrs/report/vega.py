"""The pieces that our plots are made of, in Vega-Lite's words."""

from typing import Any

Spec = dict[str, Any]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name: nothing is fetched
HEIGHT = 260
AUTOSIZE = {"type": "fit-x", "contains": "padding"}
SOLID, DASHED = [1, 0], [5, 3]
TICKS = 6  # along an axis of whole numbers, about


def layered(layers: list[Spec], **encoding: Any) -> Spec:
    """Layers that share their colors, by group, and the encodings given."""
    color = {
        "field": "group",
        "type": "nominal",
        "title": None,
        "legend": {"orient": "top", "symbolType": "stroke", "symbolOpacity": 1, "symbolDash": SOLID},
    }
    return {
        "$schema": SCHEMA,
        "data": {"name": "rows"},
        "width": "container",
        "height": HEIGHT,
        "autosize": AUTOSIZE,
        "encoding": {"color": color, **encoding},
        "layer": layers,
    }


def pointer(told: list[str], y: str | None = None) -> Spec:
    """Points that show under the mouse, nearest first, with the numbers of that step."""
    name = y or told[2]
    return {
        "params": [
            {
                "name": "near",
                "select": {"type": "point", "on": "pointerover", "nearest": True, "clear": "pointerout"},
            }
        ],
        "mark": {"type": "circle", "size": 60},
        "encoding": {
            "y": {"field": name, "type": "quantitative"},
            "opacity": {"condition": {"param": "near", "empty": False, "value": 1}, "value": 0},
            "tooltip": tooltip(*told),
        },
    }


def tooltip(*names: str) -> list[Spec]:
    """A tooltip of fields; numbers with four digits that matter."""
    texts = {"group", "lane", "word", "gold", "kind", "seeds"}
    whole = {"epoch", "step", "decile", "percent"}
    return [
        {"field": name}
        if name in texts | whole
        else {"field": name, "type": "quantitative", "format": ".4~g"}
        for name in names
    ]


def axis(field: str, title: str, **more: Any) -> Spec:
    """A number along an axis."""
    return {"field": field, "type": "quantitative", "axis": {"title": title}, **more}


def whole(field: str, title: str) -> Spec:
    """A number that has no fractions, along the lower axis."""
    # No more ticks than steps: Vega's tickMinStep allows one more, and so halves where the steps are two or less.
    count = f"clamp(span(domain('x')), 1, {TICKS})"
    shown = {"title": title, "tickCount": {"expr": count}, "grid": False, "format": "d"}
    return {"field": field, "type": "quantitative", "axis": shown}


def deciles() -> Spec:
    """The tenths of a text, along an axis."""
    title = "tenth of the text, rare words to the right"
    return {"field": "decile", "type": "ordinal", "axis": {"title": title, "labelAngle": 0, "grid": False}}


def by_kind(mean: float, run: float, other: float) -> Spec:
    """A value for the means, one for their runs, one for the groups that are not chosen."""
    cases = (("mean", mean), ("run", run))
    return {
        "condition": [{"test": f"datum.kind === '{kind}'", "value": value} for kind, value in cases],
        "value": other,
    }


def zero_line() -> Spec:
    """The line of no difference."""
    return {
        "mark": {"type": "rule", "strokeWidth": 1, "tooltip": None},
        "encoding": {"y": {"datum": 0}, "color": {"value": "gray"}},
    }


def lanes() -> Spec:
    """An axis of names."""
    return {"title": None, "domain": False, "ticks": False, "grid": True}


def dimmed() -> Spec:
    """Whether a row was taken."""
    return {"condition": {"test": "datum.taken", "value": 1}, "value": 0.4}
