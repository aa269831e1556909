"""Results as the page's script reads them: by column and by group, the details of a few, nothing twice."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nnrs.experiments.config import TRANSLATE
from nnrs.experiments.explorer import table_settings
from nnrs.experiments.perplexity_scores import NOISE_RATES
from nnrs.experiments.settings import setting_numbers
from nnrs.experiments.store import FILES, Result
from nnrs.metrics.contrasts import Contrast
from nnrs.metrics.frequency import DECILES
from nnrs.report.columns import Published, column_values, columns_of, paper_columns
from nnrs.report.figures import NOISES, figures
from nnrs.report.shown import Shown, common_key, detailed, rounded, shown_at_first, shown_groups
from nnrs.run_directory import Json

COSINE = ("nnrs", "ss-nnrs")  # the methods that draw from the table of nearest neighbors
VOCABULARY = ("corpus", "min_count", "max_vocabulary")


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
    plotted = _Plotted.of([groups[index] for index in chosen])
    beginnings: dict[str, int] = {}
    settings = setting_numbers([group.group for group in groups])
    return {
        "groups": [_group(group, number, tails) for group, number in zip(groups, settings, strict=True)],
        "columns": [column for column in told if any(mean is not None for mean in column["mean"])],
        "paper": rounded(paper_columns(columns, groups, published)),
        "bests": [record["best_epoch"] for group in groups for record in group.records],
        "heads": list(heads),
        "tails": list(tails),
        "shown": shown_at_first(groups, chosen),
        "details": {str(index): rounded(_detail(groups[index], plotted, beginnings)) for index in chosen},
        "explorable": [index for index in chosen if explorer and _is_explorable(groups[index], explorer)],
        "prompts": [json.loads(told) for told in beginnings],
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


def _group(group: Shown, setting: int, tails: dict[str, int]) -> Json:
    """What tells a group apart; groups of one setting may be compared, and `{seed}` stands for the seed."""
    return {
        "name": group.name,
        "labels": group.labels,
        "corpus": group.corpus,
        "setting": setting,
        "seeds": group.seeds,
        "tail": tails.setdefault(group.run, len(tails)),
        "command": _command(group),
        "evaluate": _evaluate_command(group.first.get("request")),
    }


def _command(group: Shown) -> str:
    """The command that trains all of the group's seeds."""
    command, seeds = str(group.first["command"]), f"--seed {group.seeds[0]}"
    if len(group.seeds) > 1:
        # One folder for all, which has one for each.
        command = command.removesuffix(f"_seed-{group.seeds[0]}")
        seeds = f"--seeds {','.join(map(str, group.seeds))}"
    found, times = re.subn(r"--seed \d+", seeds, command)
    return found if times else f"{found} {seeds}"


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


def _is_explorable(group: Shown, explorer: Json) -> bool:
    """Whether the explorer's words are a group's: of the same table, or of the same vocabulary where it has none.

    Of a translation they are not: what was predicted there had no source.
    """
    if _translates(group):
        return False
    config = group.first["config"]
    method, theirs = config["policy"]["method"], explorer["table"]
    ours = table_settings(config, group.first["names"])
    if method == "ss":
        return all(ours[name] == theirs[name] for name in VOCABULARY)
    alike = method == explorer["method"] or {method, explorer["method"]} <= {*COSINE}
    return alike and ours == theirs


@dataclass(frozen=True)
class _Plotted:
    """The keys of the scores that the plots show, the same for all groups."""

    exposure: str | None
    points: dict[str, str | None]  # by metric

    @staticmethod
    def of(groups: Sequence[Shown]) -> "_Plotted":
        """Those that most groups have."""
        curves: set[str] = set()
        by_metric: dict[str, set[str]] = {}
        for group in groups:
            for key, by_seed in group.group.scored.items():
                by_metric.setdefault(key.partition("|")[0], set()).add(key)
                if key.startswith("excess-nats") and any(score.get("curve") for score in by_seed.values()):
                    curves.add(key)
        points = {metric: common_key(groups, keys) for metric, keys in by_metric.items()}
        return _Plotted(common_key(groups, curves), points)

    def point(self, group: Shown, metric: str) -> float | None:
        """The mean of a metric, where the group has it."""
        mean = group.scores.get(self.points.get(metric) or "")
        return mean.mean if mean else None


def _detail(group: Shown, plotted: _Plotted, beginnings: dict[str, int]) -> Json:
    """Curves, samples and a trajectory; `beginnings` numbers the lists of what was to be continued or translated."""
    samples = group.first["samples"]
    told = json.dumps(_prompts(group))
    return {
        "epochs": group.curves(),
        "exposure": group.exposure(plotted.exposure),
        "deciles": [plotted.point(group, f"ppl-decile{tenth}") for tenth in range(1, DECILES + 1)],
        "noise": {kind: _noise(group, kind, plotted) for kind in NOISES},
        "samples": [" ".join(sample["generated"]) for sample in samples],
        "prompts": beginnings.setdefault(told, len(beginnings)) if samples else None,
        "trajectory": group.first["trajectory"],
    }


def _translates(group: Shown) -> bool:
    return bool(group.first["config"]["data"].get("task") == TRANSLATE)


def _noise(group: Shown, kind: str, plotted: _Plotted) -> list[list[float]]:
    """Percent replaced and perplexity, from none on."""
    names = {0: "ppl-noise0", **{rate: f"ppl-{kind}-noise{rate}" for rate in NOISE_RATES}}
    points = [(float(rate), plotted.point(group, name)) for rate, name in names.items()]
    found = [[rate, value] for rate, value in points if value is not None]
    return found if len(found) > 1 else []


def _prompts(group: Shown) -> list[Json]:
    """What was to be continued, and how the text really goes on; or what was to be translated, and the gold of it."""
    translates = _translates(group)
    return [
        {
            "prefix": " ".join(sample["prefix"]),
            "gold": " ".join(sample["gold"]),
            "decode": sample["decode"],
            "translates": translates,
        }
        for sample in group.first["samples"]
    ]
