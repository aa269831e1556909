"""The plots as Vega-Lite specifications: plain data, which the page's script fills with rows and colors.

A specification names its rows `rows` and its group `group`; widths, colors and fonts are the page's affair.
"""

from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name: nothing is fetched
HEIGHT = 260
AUTOSIZE = {"type": "fit-x", "contains": "padding"}
NOISES = {"neighbor": "neighbors of its words", "unigram": "frequent words", "own": "the model's own words"}
SOLID, DASHED = [1, 0], [5, 3]
BASELINE = "the chosen mle of the same text, model and training"
READ = "below zero is better than it. A group without one has no curve."
WITHOUT_BASELINE = (
    "Nothing to compare with: no chosen group has its baseline, an mle of the same text, model and training, among "
    "the chosen."
)


@dataclass(frozen=True)
class Figure:
    """A plot: where it stands, what it shows, and which rows its script makes for it."""

    id: str
    title: str
    caption: str
    rows: str  # the kind of rows: see `rowsOf` in assets/rows.js
    spec: Spec
    without: str = ""  # of a plot of differences: what is said where no chosen group has a baseline


def figures() -> list[Figure]:
    """Every plot that the page may have; one without rows is left out there."""
    return [
        learning_curves(),
        learning_differences(),
        _over_epochs(
            "predictions",
            "Predictions, ε",
            "prediction",
            "share of inputs",
            "Solid: asked for. Dashed: really replaced.",
        ),
        _over_epochs(
            "neighbors",
            "Neighbors, γ",
            "neighbor",
            "share of inputs",
            "Solid: asked for. Dashed: really replaced, fewer because not every word has neighbors.",
        ),
        _over_epochs("temperature", "Temperature, τ", "temperature", "τ", "How evenly neighbors are drawn."),
        _over_epochs(
            "effective-neighbors",
            "Effective neighbors",
            "effective",
            "neighbors",
            "exp(entropy) of the draw: how many neighbors share it.",
        ),
        exposure_curves(),
        tradeoff(),
        decile_curves(),
        decile_differences(),
        noise_curves("neighbor", "Neighbors"),
        noise_curves("unigram", "Frequent words"),
        noise_curves("own", "Own words"),
        trajectory_across(),
        trajectory_down(),
    ]


def learning_curves() -> Figure:
    """Validation solid, test a dashed horizontal line, as in the paper's figures."""
    y = _axis("valid", "perplexity", scale={"type": "log", "nice": False})
    spec = _spec(
        [
            {
                "mark": {"type": "area", "opacity": 0.15, "tooltip": None},
                "encoding": {"y": y, "y2": {"field": "high"}},
            },
            {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": y}},
            {
                "mark": {"type": "rule", "strokeDash": [6, 4], "strokeWidth": 1.5},
                "transform": [{"filter": "datum.epoch === 0"}],
                "encoding": {
                    "y": {"field": "test", "type": "quantitative"},
                    "x": {"value": 0},
                    "x2": {"value": "width"},
                },
            },
            _pointer("epoch", ["group", "epoch", "valid", "test"]),
        ],
        x=_epochs(),
    )
    spec["layer"][0]["encoding"]["y"] = {**y, "field": "low"}
    caption = (
        "Validation solid, with a band from the lowest to the highest seed; test at the best epoch as a dashed line. "
        "The scale is logarithmic."
    )
    return Figure("learning", "Learning curves", caption, "learning", spec)


def learning_differences() -> Figure:
    """The validation loss as a difference to the baseline, where methods can be told apart."""
    y = _axis("difference", "nats per token, to the baseline")
    layers: list[Spec] = [_zero(), {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": y}}]
    layers.append(_pointer("epoch", ["group", "epoch", "difference"]))
    caption = f"Validation loss minus that of the baseline, {BASELINE}: {READ}"
    spec = _spec(layers, x=_epochs())
    return Figure(
        "learning-differences", "Difference to the baseline", caption, "learning", spec, WITHOUT_BASELINE
    )


def exposure_curves() -> Figure:
    """What the model's own history costs, step by step; gold tokens follow behind the vertical line."""
    spec = _spec(
        [
            {
                "mark": {"type": "area", "opacity": 0.15, "tooltip": None},
                "encoding": {"y": _axis("low", "excess loss, nats"), "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {"y": _axis("excess", "excess loss, nats")},
            },
            {
                "mark": {"type": "rule", "strokeDash": [2, 3], "tooltip": None},
                "transform": [{"filter": "datum.returns"}],
                "encoding": {"x": {"field": "step", "type": "quantitative"}, "color": {"value": "gray"}},
            },
            _pointer("step", ["group", "step", "excess", "low", "high"]),
        ],
        x={
            "field": "step",
            "type": "quantitative",
            "axis": {"title": "step h", "tickMinStep": 1, "grid": False},
        },
    )
    caption = (
        "Loss of the gold token after the model's own words, minus its loss after gold ones. Behind the dotted line "
        "gold words follow again. Band: lowest to highest seed; of one seed the bootstrap interval."
    )
    return Figure("exposure", "Exposure bias", caption, "exposure", spec)


def tradeoff() -> Figure:
    """Quality against diversity: small points are runs, large ones the means of groups."""
    x = {
        "field": "diversity",
        "type": "quantitative",
        "axis": {"title": "self-BLEU-4 (left is more diverse)"},
        "scale": {"zero": False, "padding": 12},
    }
    y = _axis("quality", "BLEU-4 (up is closer to gold)", scale={"zero": False, "padding": 12})
    layers: list[Spec] = [
        {
            "mark": {"type": "point", "filled": True, "opacity": 1},
            "encoding": {"size": _by_kind(170.0, 36.0, 20.0), "fillOpacity": _by_kind(0.95, 0.55, 0.35)},
        }
    ]
    spec = _spec(layers, x=x, y=y, tooltip=_told("group", "seeds", "quality", "diversity"))
    spec["encoding"]["color"]["condition"] = {"test": "datum.kind === 'other'", "value": "gray"}
    spec["encoding"]["color"]["legend"] |= {"symbolType": "circle", "symbolFillColor": None}
    caption = (
        "Large points are means, small ones their runs, gray ones the groups that are not chosen. Text can be "
        "diverse because it is bad: read both axes."
    )
    return Figure("tradeoff", "BLEU-4 and self-BLEU-4", caption, "tradeoff", spec)


def decile_curves() -> Figure:
    """The perplexity of each tenth of the training text."""
    y = _axis("perplexity", "perplexity", scale={"type": "log"})
    y["axis"]["values"] = [10**power for power in range(7)]
    layers: list[Spec] = [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": y}},
        {
            "mark": {"type": "circle", "size": 36},
            "encoding": {"y": y, "tooltip": _told("group", "decile", "perplexity")},
        },
    ]
    caption = "Each tenth of the training text by how frequent its words are, on a logarithmic scale."
    return Figure("deciles", "Perplexity by frequency", caption, "deciles", _spec(layers, x=_deciles()))


def decile_differences() -> Figure:
    """The same as a difference to the baseline, where the methods can be told apart."""
    y = _axis("difference", "nats per token, to the baseline")
    layers: list[Spec] = [
        _zero(),
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": y}},
        {
            "mark": {"type": "circle", "size": 36},
            "encoding": {"y": y, "tooltip": _told("group", "decile", "difference")},
        },
    ]
    caption = f"The same minus the baseline, {BASELINE}: {READ}"
    spec = _spec(layers, x=_deciles())
    return Figure(
        "decile-differences", "Difference to the baseline", caption, "deciles", spec, WITHOUT_BASELINE
    )


def noise_curves(kind: str, title: str) -> Figure:
    """Perplexity of gold text after histories that were tampered with, in one way."""
    y = _axis("perplexity", "perplexity", scale={"type": "log", "nice": False})
    layers: list[Spec] = [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": y}},
        {
            "mark": {"type": "circle", "size": 30},
            "encoding": {"y": y, "tooltip": _told("group", "percent", "perplexity")},
        },
    ]
    x = {
        "field": "percent",
        "type": "quantitative",
        "axis": {"title": "percent of the history", "grid": False},
    }
    caption = f"Gold text after a history of which so much became {NOISES[kind]}."
    if kind == "neighbor":
        caption += " Where no vectors were named for it, each run's neighbors are those it was trained with."
    return Figure(f"noise-{kind}", title, caption, f"noise:{kind}", _spec(layers, x=x))


def trajectory_across() -> Figure:
    """One sentence through training inputs: time runs to the right, a lane for each source."""
    lane = {"field": "lane", "type": "nominal", "sort": ["gold", "neighbor", "prediction"], "axis": _lanes()}
    step = {"field": "step", "type": "ordinal", "axis": None}
    spec = _trajectory(step, lane, {"dx": 4, "dy": -7, "angle": -38, "align": "left"})
    return Figure("trajectory", "", "", "trajectory", {**spec, "height": {"step": 76}})


def trajectory_down() -> Figure:
    """The same for a narrow screen: time runs down."""
    lane = {
        "field": "lane",
        "type": "nominal",
        "sort": ["gold", "neighbor", "prediction"],
        "axis": {**_lanes(), "orient": "top", "labelAngle": 0},
    }
    step = {"field": "step", "type": "ordinal", "axis": None}
    spec = _trajectory(lane, step, {"dx": 8, "align": "left", "baseline": "middle"})
    return Figure("trajectory-down", "", "", "trajectory", {**spec, "height": {"step": 22}})


def _trajectory(x: Spec, y: Spec, text: Spec) -> Spec:
    """The words of each lane, those taken in their color, joined by the path of the inputs."""
    lanes = {"domain": ["gold", "neighbor", "prediction"]}
    color = {"field": "lane", "type": "nominal", "scale": lanes, "legend": None}
    taken = [{"filter": "datum.taken"}]
    return {
        "$schema": SCHEMA,
        "data": {"name": "rows"},
        "width": "container",
        "autosize": AUTOSIZE,
        "encoding": {"x": x, "y": y},
        "layer": [
            {
                "transform": taken,
                "mark": {"type": "line", "strokeWidth": 1.5, "opacity": 0.5, "tooltip": None},
                "encoding": {"order": {"field": "step", "type": "quantitative"}, "color": {"value": "gray"}},
            },
            {
                "mark": {"type": "circle", "size": 50},
                "encoding": {
                    "color": color,
                    "opacity": _dimmed(),
                    "tooltip": _told("step", "lane", "word", "gold"),
                },
            },
            {
                "mark": {"type": "text", "fontSize": 12, "limit": 104, **text},
                "encoding": {"text": {"field": "word"}, "color": color, "opacity": _dimmed()},
            },
        ],
    }


def _over_epochs(id: str, title: str, field: str, label: str, caption: str) -> Figure:
    """A rate over the epochs, once as asked and once as it came out; or a single line."""
    y = _axis(field, label)
    layers: list[Spec] = [
        {"mark": {"type": "line", "strokeWidth": 2, "strokeDash": SOLID}, "encoding": {"y": y}},
    ]
    told = ["group", "epoch", field]
    if field in ("prediction", "neighbor"):
        real = f"{field}_real"
        layers.append(
            {
                "mark": {"type": "line", "strokeWidth": 1.5, "strokeDash": DASHED},
                "encoding": {"y": {**y, "field": real}},
            }
        )
        told.append(real)
    layers.append(_pointer("epoch", told, field))
    return Figure(id, title, caption, f"rates:{field}", _spec(layers, x=_epochs()))


def _spec(layers: list[Spec], **encoding: Any) -> Spec:
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


def _pointer(x: str, told: list[str], y: str | None = None) -> Spec:
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
            "tooltip": _told(*told),
        },
    }


def _told(*names: str) -> list[Spec]:
    """A tooltip of fields; numbers with four digits that matter."""
    texts = {"group", "lane", "word", "gold", "kind", "seeds"}
    whole = {"epoch", "step", "decile", "percent"}
    return [
        {"field": name}
        if name in texts | whole
        else {"field": name, "type": "quantitative", "format": ".4~g"}
        for name in names
    ]


def _axis(field: str, title: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "axis": {"title": title}, **more}


def _epochs() -> Spec:
    return {
        "field": "epoch",
        "type": "quantitative",
        "axis": {"title": "epoch", "tickMinStep": 1, "grid": False, "format": "d"},
    }


def _deciles() -> Spec:
    title = "tenth of the text, rare words to the right"
    return {"field": "decile", "type": "ordinal", "axis": {"title": title, "labelAngle": 0, "grid": False}}


def _by_kind(mean: float, run: float, other: float) -> Spec:
    """A value for the means, one for their runs, one for the groups that are not chosen."""
    cases = (("mean", mean), ("run", run))
    return {
        "condition": [{"test": f"datum.kind === '{kind}'", "value": value} for kind, value in cases],
        "value": other,
    }


def _zero() -> Spec:
    """The line of no difference."""
    return {
        "mark": {"type": "rule", "strokeWidth": 1, "tooltip": None},
        "encoding": {"y": {"datum": 0}, "color": {"value": "gray"}},
    }


def _lanes() -> Spec:
    return {"title": None, "domain": False, "ticks": False, "grid": True}


def _dimmed() -> Spec:
    return {"condition": {"test": "datum.taken", "value": 1}, "value": 0.4}
