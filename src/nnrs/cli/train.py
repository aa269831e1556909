"""`nnrs train`: from text to a trained, resumable model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnrs.cli.output import DeviceOption, JsonOption, duration, note, print_json, print_table
from nnrs.errors import ConfigError, DivergenceError
from nnrs.schedules import SHAPES

if TYPE_CHECKING:
    from nnrs.experiments.run import Run
    from nnrs.experiments.together import Outcome
    from nnrs.training.events import Callback

KEPT_ON_RESUME = {"out", "resume", "previous", "device", "tensorboard", "json"}
PERPLEXITIES = ("valid_perplexity", "test_perplexity")


def train(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="The run directory to make (or to --resume).")],
    data: Annotated[str | None, typer.Option(help="Folder, file, sotu or synthetic. [default: sotu]")] = None,
    vectors: Annotated[str | None, typer.Option(help="A vector file, or corpus. [default: corpus]")] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="mle, ss, nnrs, tprs, ss-nnrs, gsns, word-dropout, unigram, shuffled. [default: ss-nnrs]"
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="lstm, gru, highway, transformer. [default: lstm]")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="tiny, small, medium, large. [default: small]")] = None,
    epochs: Annotated[int | None, typer.Option(help="[default: 40]")] = None,
    schedule: Annotated[
        str | None, typer.Option(help=f"Shape of both rates: {', '.join(SHAPES)}. [default: exponential]")
    ] = None,
    prediction_rate: Annotated[
        str | None, typer.Option(metavar="START:END", help="ε of scheduled sampling. [default: 0:0.2]")
    ] = None,
    neighbor_rate: Annotated[
        str | None, typer.Option(metavar="START:END", help="γ of neighbor replacement. [default: 0:0.2]")
    ] = None,
    k: Annotated[int | None, typer.Option(help="Neighbors per word. [default: round(log2 V)]")] = None,
    seed: Annotated[int | None, typer.Option(help="[default: 1]")] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="1-8|1,3,7", help="A run for each, in OUT/seed-N; together on a GPU."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run or the runs in --out.")] = False,
    previous: Annotated[
        bool, typer.Option("--previous", help="With --resume: from the checkpoint before the newest.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(help="Settings from a TOML or JSON file; options override.")
    ] = None,
    device: DeviceOption = "auto",
    min_count: Annotated[int | None, typer.Option(help="Rarer words become <unk>. [default: 1]")] = None,
    max_vocabulary: Annotated[int | None, typer.Option(help="Size of the vocabulary in all.")] = None,
    protect: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="Never replaced; repeatable.")
    ] = None,
    initialise: Annotated[
        bool | None, typer.Option("--initialise", help="Input embeddings start from the vectors.")
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="How τ moves: prose, equation, constant, effective. [default: prose]")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="τ at the start. [default: 0.5]")] = None,
    granularity: Annotated[
        str | None, typer.Option(help="token, position, sequence. [default: token]")
    ] = None,
    replace: Annotated[str | None, typer.Option(help="inputs or targets. [default: inputs]")] = None,
    draw: Annotated[str | None, typer.Option(help="sample or centroid. [default: sample]")] = None,
    predict: Annotated[str | None, typer.Option(help="sample or greedy. [default: sample]")] = None,
    unroll: Annotated[
        str | None, typer.Option(help="Scheduled sampling: parallel or exact. [default: parallel]")
    ] = None,
    passes: Annotated[int | None, typer.Option(help="Prediction passes when parallel. [default: 1]")] = None,
    search: Annotated[
        str | None, typer.Option(help="Neighbor search: exact or faiss. [default: exact]")
    ] = None,
    transition_row: Annotated[str | None, typer.Option(help="tprs: own or previous. [default: own]")] = None,
    transition_whole: Annotated[
        bool | None, typer.Option("--transition-whole", help="tprs: the whole row, not its top k.")
    ] = None,
    units: Annotated[int | None, typer.Option(help="Width of the model, instead of the preset's.")] = None,
    layers: Annotated[int | None, typer.Option(help="[default: 2]")] = None,
    dropout: Annotated[float | None, typer.Option(help="Instead of the preset's.")] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="sgd or adamw. [default: sgd; adamw for a transformer]")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="[default: 20 for sgd, 0.001 for adamw]")
    ] = None,
    annealing: Annotated[
        str | None, typer.Option(help="cosine, plateau, constant. [default: cosine]")
    ] = None,
    clip: Annotated[float | None, typer.Option(help="Gradient norm. [default: 0.25]")] = None,
    batch_size: Annotated[int | None, typer.Option(help="[default: 20]")] = None,
    bptt: Annotated[int | None, typer.Option(help="Window length. [default: 35]")] = None,
    precision: Annotated[
        str | None, typer.Option(help="auto, fp32, bf16. [default: auto: bf16 on GPUs]")
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard events too.")] = False,
    json: JsonOption = False,
) -> None:
    """Train a model and write a run directory; `--resume` continues one that was stopped or killed."""
    given = {name: value for name, value in context.params.items() if value not in (None, [], ())}
    if tensorboard:
        _tensorboard(out)  # refuses, where it must, before anything is made
    runs = _open_runs(given, out, device, resume, previous)
    several = runs[0].directory.path != out
    outcomes = _carry_out(runs, [run.directory.path.name if several else "" for run in runs], tensorboard)
    _explain_stop(outcomes, out)
    summaries = {item.run.directory.path.name: item.summary for item in outcomes if item.summary is not None}
    if summaries and several:
        _report_several(summaries, out, json)
    elif outcomes[0].summary:
        _report(outcomes[0].summary, out, json)
    _explain_divergence(outcomes, several)


def _open_runs(given: dict[str, Any], out: Path, device: str, resume: bool, previous: bool) -> "list[Run]":
    from nnrs.experiments import run as one
    from nnrs.experiments import together
    from nnrs.experiments.options import configure, configure_seeds
    from nnrs.experiments.prepare import choose_device
    from nnrs.run_directory import RunDirectory

    chosen = choose_device(device)
    if previous and not resume:
        raise ConfigError("--previous goes with --resume.")
    if not resume and "seeds" in given:
        configs = configure_seeds(given)
        return together.start_together(configs, out, [f"seed-{config.seed}" for config in configs], chosen)
    if not resume:
        return [one.start(configure(given), out, chosen)]
    extra = sorted(name for name, value in given.items() if name not in KEPT_ON_RESUME and value is not False)
    if extra:
        option = extra[0].replace("_", "-")
        raise ConfigError(f"--resume continues with the settings of {out}: leave --{option} out.")
    if RunDirectory.within(out):
        return together.resume_together(out, chosen, previous=previous)
    return [one.resume(out, chosen, previous=previous)]


def _tensorboard(run: Path) -> "Callback":
    from nnrs.experiments.tensorboard import TensorBoard
    from nnrs.run_directory import RunDirectory

    return TensorBoard(RunDirectory(run).tensorboard_path)


def _carry_out(runs: "list[Run]", names: list[str], tensorboard: bool) -> "list[Outcome]":
    from nnrs.cli.interrupt import Interruptible
    from nnrs.cli.progress import ProgressBar
    from nnrs.experiments.together import finish_together

    with Interruptible() as interruption, ProgressBar() as bar:
        _describe(runs, names)
        boards = [[_tensorboard(run.directory.path)] if tensorboard else [] for run in runs]
        callbacks = [[bar.of(name), *board] for name, board in zip(names, boards, strict=True)]
        return finish_together(runs, callbacks, interruption.asked)


def _explain_stop(outcomes: "list[Outcome]", out: Path) -> None:
    stopped = [outcome for outcome in outcomes if outcome.summary is None and outcome.error is None]
    if not stopped:
        return
    position = stopped[0].run.trainer.live.position
    where = f"in epoch {position.epoch} after window {position.window}"
    if len(outcomes) > 1:
        where = f"with {len(outcomes) - len(stopped)} of {len(outcomes)} runs at their end"
    note(f"stopped {where}; saved. Continue with: nnrs train --out {out} --resume")
    raise typer.Exit(130)


def _explain_divergence(outcomes: "list[Outcome]", several: bool) -> None:
    """The error of the first run that diverged, and the names of all that did."""
    diverged = [outcome for outcome in outcomes if outcome.error is not None]
    if not diverged:
        return
    names = ", ".join(outcome.run.directory.path.name for outcome in diverged)
    first = diverged[0].error
    raise DivergenceError(f"{names}: {first}" if several else str(first)) from first


def _report(summary: dict[str, Any], out: Path, json: bool) -> None:
    if json:
        print_json(summary)
        return
    rows = [(name, f"{summary[name]:.2f}") for name in PERPLEXITIES]
    print_table("lower is better", ("score", "value"), [*rows, ("best_epoch", str(summary["best_epoch"]))])
    typer.echo(f"{summary['signature']} = {summary['test_perplexity']:.2f}")
    note(f"run directory: {out}")


def _report_several(summaries: dict[str, dict[str, Any]], out: Path, json: bool) -> None:
    """A row for each run, and mean and standard deviation where there are several."""
    from statistics import mean, stdev

    over = {"mean": mean, "sd": stdev} if len(summaries) > 1 else {}
    scores = {name: [summary[name] for summary in summaries.values()] for name in PERPLEXITIES}
    spread = {word: {name: of(values) for name, values in scores.items()} for word, of in over.items()}
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


def _describe(runs: "list[Run]", names: list[str]) -> None:
    parts = runs[0].parts
    sizes = ", ".join(f"{split} {len(ids):,}" for split, ids in parts.text.ids.items())
    note(f"text: {parts.text.corpus.name}, {sizes} tokens, vocabulary {len(parts.text.vocabulary):,}")
    if parts.coverage:
        note(str(parts.coverage))
    if parts.vectors and parts.vectors.rejected:
        note(f"{parts.vectors.rejected} vectors were left out: they hold a number that is not finite")
    if parts.policy.table and parts.policy.table.recall < 1.0:
        note(f"the neighbor search found {parts.policy.table.recall:.1%} of the true neighbors")
    left = {name: run for name, run in zip(names, runs, strict=True) if not run.trainer.finished}
    if not left:
        note(
            "these runs are finished; their scores again:"
            if names[0]
            else "this run is finished; its scores again:"
        )
        return
    if len(left) < len(runs):
        note(f"{len(runs) - len(left)} of {len(runs)} runs are finished")
    _describe_positions(left)
    for difference in dict.fromkeys(line for run in left.values() for line in run.differences()):
        note(difference)
    _describe_work(list(left.values()))


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
    from nnrs.experiments.together import can_batch

    first, config = runs[0], runs[0].parts.config
    size = f"{config.model.label()}, {first.parameters:,} parameters"
    count = f"{len(runs)} runs " if len(runs) > 1 else ""
    if can_batch(config, first.device):
        how = "; {}side by side, as many as fit: an epoch's line has their means, and the range of valid"
        note(size + (how.format(count) if count else ""))
        return
    taken = estimate(first)
    epochs = [run.parts.config.training.epochs - run.trainer.live.position.epoch for run in runs]
    seconds = taken.seconds * sum(epochs) / epochs[0]
    how = f"{count}one after the other, " if count else ""
    note(f"{size}; {how}about {duration(seconds)} and {taken.bytes / 2**20:,.0f} MiB")
