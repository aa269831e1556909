"""Results as the page's script reads them: by column and by group, the details of a few, nothing twice."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from nnrs.experiments.store import FILES, Result
from nnrs.metrics.contrasts import Contrast
from nnrs.report.columns import Published, column_values, columns_of, paper_columns
from nnrs.report.figures import figures
from nnrs.report.groups import Shown, detailed, rounded, shown_at_first, shown_groups, varying_labels
from nnrs.run_directory import Json

NOISES = ("neighbor", "unigram", "own")


def nothing_published(labels: Mapping[str, str]) -> Mapping[str, float]:
    """For results that are none of the paper's rows."""
    return {}


def make_payload(
    results: Sequence[Result], explorer: Json | None = None, published: Published = nothing_published
) -> Json:
    """Everything that the tables, plots and explorers of a page show."""
    groups = shown_groups(results)
    columns = columns_of(groups)
    heads: dict[str, int] = {}
    tails: dict[str, int] = {}
    told = [{**asdict(column), **column_values(column, groups, heads)} for column in columns]
    chosen = detailed(groups)
    return {
        "labels": varying_labels(groups),
        "groups": [_group(group, tails) for group in groups],
        "columns": [column for column in told if any(mean is not None for mean in column["mean"])],
        "paper": rounded(paper_columns(columns, groups, published)),
        "bests": [record["best_epoch"] for group in groups for record in group.records],
        "heads": list(heads),
        "tails": list(tails),
        "shown": shown_at_first(groups, chosen),
        "prompts": _prompts(groups[chosen[0]]),
        "details": {str(index): rounded(_detail(groups[index])) for index in chosen},
        "figures": [asdict(figure) for figure in figures()],
        "explorer": explorer,
    }


def contrast_row(contrast: Contrast) -> Json:
    """A contrast as a row of its table; perplexities in percent, other metrics as they are."""
    low, high = contrast.interval or (None, None)
    row: Json = rounded(
        {
            "ours": f"{contrast.setting}: {contrast.ours}" if contrast.setting else contrast.ours,
            "theirs": contrast.theirs,
            "metric": contrast.metric,
            "seeds": len(contrast.seeds),
            "mean": contrast.mean,
            "low": low,
            "high": high,
            "percent": contrast.percent,
            "p": contrast.p,
            "holm": contrast.holm_p,
            "verdict": contrast.verdict,
        }
    )
    return row


def _group(group: Shown, tails: dict[str, int]) -> Json:
    """What tells a group apart; `{seed}` stands for the seed in its signature."""
    seed = group.seeds[0]
    _, _, run = str(group.first["signature"]).partition("|data:")
    tail = f"data:{run}".replace(f"|seed:{seed}|", "|seed:{seed}|")
    return {
        "id": group.first["group"],
        "name": group.name,
        "labels": group.labels,
        "corpus": group.corpus,
        "seeds": group.seeds,
        "tail": tails.setdefault(tail, len(tails)),
        "command": _command(group),
        "evaluate": _evaluate_command(group.first.get("request")),
    }


def _command(group: Shown) -> str:
    """The command that trains all of the group's seeds."""
    seeds = ",".join(map(str, group.seeds))
    several = f"--seeds {seeds}" if len(group.seeds) > 1 else f"--seed {seeds}"
    found, times = re.subn(r"--seed \d+", several, str(group.first["command"]))
    return found if times else f"{found} {several}"


def _evaluate_command(request: Mapping[str, Any] | None) -> str | None:
    """The command that makes the scores of a trained run."""
    if not request:
        return None
    words = ["nnrs", "evaluate", "RUN"]
    for option, name in (("metrics", "metrics"), ("split", "splits"), ("decode", "decodings")):
        words += [f"--{option}", ",".join(request[name])]
    for name in ("sentences", "prefix", "length", "seed"):
        words += [f"--{name}", str(request[name])]
    for name in FILES:
        words += [f"--{name}", request[name]] if request.get(name) else []
    return shlex.join(words)


def _detail(group: Shown) -> Json:
    """Curves, samples and a trajectory."""
    samples = group.first["samples"]
    return {
        "epochs": group.curves(),
        "exposure": group.exposure(),
        "deciles": [_point(group, f"ppl-decile{tenth}") for tenth in range(1, 11)],
        "noise": {kind: _noise(group, kind) for kind in NOISES},
        "samples": [" ".join(sample["generated"]) for sample in samples],
        "trajectory": group.first["trajectory"],
    }


def _point(group: Shown, metric: str) -> float | None:
    """The mean of a metric on the test split, or on the first that it was measured on."""
    found = [mean for key, mean in group.scores.items() if key.partition("|")[0] == metric]
    test = group.scores.get(f"{metric}|test")
    return test.mean if test else found[0].mean if found else None


def _noise(group: Shown, kind: str) -> list[list[float]]:
    """Percent replaced and perplexity, from none on."""
    names = {0: "ppl-noise0", **{rate: f"ppl-{kind}-noise{rate}" for rate in (10, 20, 30, 40, 50)}}
    points = [[float(rate), _point(group, name)] for rate, name in names.items()]
    found = [[rate, value] for rate, value in points if rate is not None and value is not None]
    return found if len(found) > 1 else []


def _prompts(group: Shown) -> list[Json]:
    """What was to be continued, and how the text really went on."""
    return [
        {"prefix": " ".join(sample["prefix"]), "gold": " ".join(sample["gold"]), "decode": sample["decode"]}
        for sample in group.first["samples"]
    ]
