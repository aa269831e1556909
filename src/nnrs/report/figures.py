"""The plots as Vega-Lite specifications: plain data, which the page's script fills with rows and colors.

A specification names its rows `rows` and its group `group`; widths, colors and fonts are the page's affair.
"""

from dataclasses import dataclass

from nnrs.report.vega import (
    AUTOSIZE,
    DASHED,
    SCHEMA,
    SOLID,
    Spec,
    axis,
    by_kind,
    deciles,
    dimmed,
    lanes,
    layered,
    pointer,
    tooltip,
    whole,
    zero_line,
)

NOISES = {"neighbor": "neighbors of its words", "unigram": "frequent words", "own": "the model's own words"}
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
    y = axis("valid", "perplexity", scale={"type": "log", "nice": False})
    spec = layered(
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
            pointer(["group", "epoch", "valid", "test"]),
        ],
        x=whole("epoch", "epoch"),
    )
    spec["layer"][0]["encoding"]["y"] = {**y, "field": "low"}
    caption = (
        "Validation solid, with a band from the lowest to the highest seed; test at the best epoch as a dashed line. "
        "The scale is logarithmic."
    )
    return Figure("learning", "Learning curves", caption, "learning", spec)


def learning_differences() -> Figure:
    """The validation loss as a difference to the baseline, where methods can be told apart."""
    y = axis("difference", "nats per token, to the baseline")
    layers: list[Spec] = [zero_line(), {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": y}}]
    layers.append(pointer(["group", "epoch", "difference"]))
    caption = f"Validation loss minus that of the baseline, {BASELINE}: {READ}"
    spec = layered(layers, x=whole("epoch", "epoch"))
    return Figure(
        "learning-differences", "Difference to the baseline", caption, "learning", spec, WITHOUT_BASELINE
    )


def exposure_curves() -> Figure:
    """What the model's own history costs, step by step; gold tokens follow behind the vertical line."""
    spec = layered(
        [
            {
                "mark": {"type": "area", "opacity": 0.15, "tooltip": None},
                "encoding": {"y": axis("low", "excess loss, nats"), "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {"y": axis("excess", "excess loss, nats")},
            },
            {
                "mark": {"type": "rule", "strokeDash": [2, 3], "tooltip": None},
                "transform": [{"filter": "datum.returns"}],
                "encoding": {"x": {"field": "step", "type": "quantitative"}, "color": {"value": "gray"}},
            },
            pointer(["group", "step", "excess", "low", "high"]),
        ],
        x=whole("step", "step h"),
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
    y = axis("quality", "BLEU-4 (up is closer to gold)", scale={"zero": False, "padding": 12})
    layers: list[Spec] = [
        {
            "mark": {"type": "point", "filled": True, "opacity": 1},
            "encoding": {"size": by_kind(170.0, 36.0, 20.0), "fillOpacity": by_kind(0.95, 0.55, 0.35)},
        }
    ]
    spec = layered(layers, x=x, y=y, tooltip=tooltip("group", "seeds", "quality", "diversity"))
    spec["encoding"]["color"]["condition"] = {"test": "datum.kind === 'other'", "value": "gray"}
    spec["encoding"]["color"]["legend"] |= {"symbolType": "circle", "symbolFillColor": None}
    caption = (
        "Large points are means, small ones their runs, gray ones the groups that are not chosen. Text can be "
        "diverse because it is bad: read both axes."
    )
    return Figure("tradeoff", "BLEU-4 and self-BLEU-4", caption, "tradeoff", spec)


def decile_curves() -> Figure:
    """The perplexity of each tenth of the training text."""
    y = axis("perplexity", "perplexity", scale={"type": "log"})
    y["axis"]["values"] = [10**power for power in range(7)]
    layers: list[Spec] = [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": y}},
        {
            "mark": {"type": "circle", "size": 36},
            "encoding": {"y": y, "tooltip": tooltip("group", "decile", "perplexity")},
        },
    ]
    caption = (
        "Each tenth of the training text by how frequent its words are, on a logarithmic scale. One that a frequent "
        "word fills, as <unk> may the first, has no point; nor has one that the text measured has no token of."
    )
    return Figure("deciles", "Perplexity by frequency", caption, "deciles", layered(layers, x=deciles()))


def decile_differences() -> Figure:
    """The same as a difference to the baseline, where the methods can be told apart."""
    y = axis("difference", "nats per token, to the baseline")
    layers: list[Spec] = [
        zero_line(),
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": y}},
        {
            "mark": {"type": "circle", "size": 36},
            "encoding": {"y": y, "tooltip": tooltip("group", "decile", "difference")},
        },
    ]
    caption = f"The same minus the baseline, {BASELINE}: {READ}"
    spec = layered(layers, x=deciles())
    return Figure(
        "decile-differences", "Difference to the baseline", caption, "deciles", spec, WITHOUT_BASELINE
    )


def noise_curves(kind: str, title: str) -> Figure:
    """Perplexity of gold text after histories that were tampered with, in one way."""
    y = axis("perplexity", "perplexity", scale={"type": "log", "nice": False})
    layers: list[Spec] = [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": y}},
        {
            "mark": {"type": "circle", "size": 30},
            "encoding": {"y": y, "tooltip": tooltip("group", "percent", "perplexity")},
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
    return Figure(f"noise-{kind}", title, caption, f"noise:{kind}", layered(layers, x=x))


def trajectory_across() -> Figure:
    """One sentence through training inputs: time runs to the right, a lane for each source."""
    lane = {"field": "lane", "type": "nominal", "sort": ["gold", "neighbor", "prediction"], "axis": lanes()}
    step = {"field": "step", "type": "ordinal", "axis": None}
    spec = _trajectory(step, lane, {"dx": 4, "dy": -7, "angle": -38, "align": "left"})
    return Figure("trajectory", "", "", "trajectory", {**spec, "height": {"step": 76}})


def trajectory_down() -> Figure:
    """The same for a narrow screen: time runs down."""
    lane = {
        "field": "lane",
        "type": "nominal",
        "sort": ["gold", "neighbor", "prediction"],
        "axis": {**lanes(), "orient": "top", "labelAngle": 0},
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
                    "opacity": dimmed(),
                    "tooltip": tooltip("step", "lane", "word", "gold"),
                },
            },
            {
                "mark": {"type": "text", "fontSize": 12, "limit": 104, **text},
                "encoding": {"text": {"field": "word"}, "color": color, "opacity": dimmed()},
            },
        ],
    }


def _over_epochs(id: str, title: str, field: str, label: str, caption: str) -> Figure:
    """A rate over the epochs, once as asked and once as it came out; or a single line."""
    y = axis(field, label)
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
    layers.append(pointer(told, field))
    return Figure(id, title, caption, f"rates:{field}", layered(layers, x=whole("epoch", "epoch")))
