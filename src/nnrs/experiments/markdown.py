"""Results as a Markdown table: settings across, or downwards where they outnumber what is told of each."""

from collections.abc import Sequence

from nnrs.experiments.groups import grouped, names_of
from nnrs.experiments.store import Result
from nnrs.metrics.contrasts import t_interval
from nnrs.metrics.score import family_of

RATES = {
    "ε asked for": ("dose", "prediction"),
    "γ asked for": ("dose", "neighbor"),
    "replaced, up to the epoch scored": ("effective", "all"),
}


def as_markdown(results: Sequence[Result]) -> str:
    """Means over the seeds, each with half the width of its 95% t interval, and which end is the better one."""
    groups = grouped(results)
    names = [name.replace("|", "\\|") for name in names_of(groups)]
    lines = [["mean ± half of the 95 % interval over seeds", "better", *names]]
    lines.append(["seeds", "", *(_listed(group.seeds) for group in groups)])
    for label, (kind, source) in RATES.items():
        lines.append([label, "", *(f"{group.rate(kind, source):.3f}" for group in groups)])
    for split in ("valid", "test"):
        values = [[result.record[f"{split}_perplexity"] for result in group.results] for group in groups]
        lines.append([f"perplexity, {split}", "lower", *(_shown(each, 2) for each in values)])
    known = {f"ppl|{split}" for split in ("valid", "test")}  # said already, of every run
    for key in dict.fromkeys(key for group in groups for key in group.scores if key not in known):
        family = family_of(key.partition("|")[0])
        values = [list(group.scores.get(key, {}).values()) for group in groups]
        label = key.replace("|", " ")
        lines.append([label, family.better, *(_shown(each, family.digits) for each in values)])
    if len(groups) > len(lines):
        lines = [list(line) for line in zip(*lines, strict=True)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _listed(seeds: Sequence[int]) -> str:
    """Whole ranges as their ends.

    >>> _listed([1, 2, 3]), _listed([1, 4])
    ('1-3', '1, 4')
    """
    whole = len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1
    return f"{seeds[0]}-{seeds[-1]}" if whole else ", ".join(map(str, seeds))


def _shown(values: Sequence[float], digits: int) -> str:
    """A mean and how far its interval reaches.

    >>> _shown([1.0, 2.0, 3.0], 2), _shown([1.0], 2), _shown([], 2)
    ('2.00 ± 2.48', '1.00', '-')
    """
    if not values:
        return "-"
    mean, ends = sum(values) / len(values), t_interval(values)
    value = f"{mean:z.{digits}f}"  # z: no minus before nothing
    return value if ends is None else f"{value} ± {(ends[1] - ends[0]) / 2:.{digits}f}"
