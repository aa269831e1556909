"""`nnrs train`: from text to a trained, resumable model."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nnrs.cli import train_options as options
from nnrs.cli.interrupt import Interruptible
from nnrs.cli.output import DeviceOption, JsonOption, note
from nnrs.cli.torchrun import joined, refuse_several
from nnrs.cli.train_output import describe, report, report_several
from nnrs.errors import ConfigError, DivergenceError, RunError

if TYPE_CHECKING:
    import torch

    from nnrs.experiments.run import Run
    from nnrs.experiments.together import Outcome
    from nnrs.training.events import Callback
    from nnrs.training.group import Group

KEPT_ON_RESUME = {"out", "resume", "previous", "device", "tensorboard", "json"}


def train(
    context: typer.Context,
    out: options.Out,
    data: options.Data = None,
    task: options.Task = None,
    from_language: options.FromLanguage = None,
    to_language: options.ToLanguage = None,
    vectors: options.Vectors = None,
    method: options.Method = None,
    model: options.Model = None,
    preset: options.Preset = None,
    epochs: options.Epochs = None,
    schedule: options.Schedule = None,
    prediction_rate: options.PredictionRate = None,
    neighbor_rate: options.NeighborRate = None,
    k: options.K = None,
    seed: options.Seed = None,
    seeds: options.Seeds = None,
    resume: options.Resume = False,
    previous: options.Previous = False,
    config: options.Config = None,
    device: DeviceOption = "auto",
    min_count: options.MinCount = None,
    max_vocabulary: options.MaxVocabulary = None,
    protect: options.Protect = None,
    initialise: options.Initialise = None,
    rule: options.Rule = None,
    temperature: options.Temperature = None,
    granularity: options.Granularity = None,
    replace: options.Replace = None,
    draw: options.Draw = None,
    predict: options.Predict = None,
    unroll: options.Unroll = None,
    passes: options.Passes = None,
    search: options.Search = None,
    transition_row: options.TransitionRow = None,
    transition_whole: options.TransitionWhole = None,
    units: options.Units = None,
    layers: options.Layers = None,
    dropout: options.Dropout = None,
    weight_dropout: options.WeightDropout = None,
    optimizer: options.Optimizer = None,
    learning_rate: options.LearningRate = None,
    annealing: options.Annealing = None,
    clip: options.Clip = None,
    batch_size: options.BatchSize = None,
    bptt: options.Bptt = None,
    precision: options.Precision = None,
    tensorboard: options.Tensorboard = False,
    json: JsonOption = False,
) -> None:
    """Train a model and write a run directory; `--resume` continues one that was stopped or killed."""
    if seeds is not None:
        refuse_several("--seeds")
    with joined(device) as (group, place):
        if tensorboard:
            _tensorboard(out)  # refuses, where it must, before anything is made
        given = options.given_options(context.params)
        runs = (_resumed if resume else _started)(given, out, place, group)
        several = runs[0].directory.path != out
        interruption = Interruptible(several=group.size > 1, speaks=group.leads)
        outcomes = _carry_out(runs, several, tensorboard, interruption)
        _explain_stop(outcomes, out, interruption.exit_code)
        _tell(outcomes, several, out, json)


def _started(given: dict[str, Any], out: Path, device: "torch.device", group: "Group") -> "list[Run]":
    from nnrs.experiments.options import configure, configure_seeds
    from nnrs.experiments.run import start_or_go_on
    from nnrs.experiments.together import start_together

    if given["previous"]:
        raise ConfigError("--previous goes with --resume.")
    if "seeds" not in given:
        return [start_or_go_on(configure(given), out, device, group)]
    configs = configure_seeds(given)
    return start_together(configs, out, [f"seed-{config.seed}" for config in configs], device)


def _resumed(given: dict[str, Any], out: Path, device: "torch.device", group: "Group") -> "list[Run]":
    from nnrs.experiments.options import spelled
    from nnrs.experiments.run import resume
    from nnrs.experiments.together import resume_together
    from nnrs.run_directory import RunDirectory

    extra = sorted(name for name, value in given.items() if name not in KEPT_ON_RESUME and value is not False)
    if extra:
        more = _another_seed(out) if {"seed", "seeds"}.intersection(extra) else ""
        raise ConfigError(
            f"--resume continues with the settings of {out}: leave {spelled(extra[0])} out.{more}"
        )
    if RunDirectory.within(out):
        refuse_several(f"{out}, which holds several runs,")
        return resume_together(out, device, previous=given["previous"])
    return [resume(out, device, previous=given["previous"], group=group)]


def _another_seed(out: Path) -> str:
    """How the settings of a run, or of several in a folder, are trained with a seed more."""
    from nnrs.run_directory import RunDirectory

    runs = RunDirectory.within(out)
    config = (runs[0].path if runs else out) / "config.json"
    if not config.is_file():
        return ""
    place = shlex.quote(str(out / "seed-N")) if runs else "NEW"
    again = f"nnrs train --config {shlex.quote(str(config))} --seed N --out {place}"
    return f" A seed more is a run of its own: {again}."


def _tensorboard(run: Path) -> "Callback":
    from nnrs.experiments.tensorboard import TensorBoard
    from nnrs.run_directory import RunDirectory

    return TensorBoard(RunDirectory(run).tensorboard_path)


def _carry_out(
    runs: "list[Run]", several: bool, tensorboard: bool, interruption: Interruptible
) -> "list[Outcome]":
    from nnrs.cli.progress import ProgressBar
    from nnrs.experiments.together import finish_together
    from nnrs.files import WriteError

    group, names = runs[0].group, [run.directory.path.name if several else "" for run in runs]
    with interruption, ProgressBar() as bar:
        if not group.leads:
            return finish_together(runs, [[]], interruption.asked)
        describe(runs, names)
        boards = [[_tensorboard(run.directory.path)] if tensorboard else [] for run in runs]
        callbacks = [[bar.of(name), *board] for name, board in zip(names, boards, strict=True)]
        try:
            return finish_together(runs, callbacks, interruption.asked)
        except WriteError as error:
            raise RunError(f"{error} What was trained goes on with --resume.") from None


def _tell(outcomes: "list[Outcome]", several: bool, out: Path, json: bool) -> None:
    """The scores of what came to its end, which of that came apart, and why the rest did not."""
    if several and any(item.summary for item in outcomes):
        report_several(outcomes, out, json)
    elif outcomes[0].summary and outcomes[0].run.group.leads:
        report(outcomes[0].summary, out, json)
    _warn([item.run for item in outcomes if item.summary and item.run.group.leads])
    _explain_divergence(outcomes, several)


def _warn(finished: "list[Run]") -> None:
    """Name the runs whose training came apart before its end."""
    from nnrs.experiments.findings import training_warnings
    from nnrs.experiments.store import build_result

    known = [
        run.directory for run in finished if run.directory.records("metrics")
    ]  # of a copy they may be gone
    for warning in training_warnings([build_result(directory) for directory in known]):
        note(warning)


def _explain_stop(outcomes: "list[Outcome]", out: Path, code: int) -> None:
    """Leave with this code where runs were asked to stop."""
    stopped = [outcome for outcome in outcomes if outcome.summary is None and outcome.error is None]
    if not stopped:
        return
    if not stopped[0].run.group.leads:
        raise typer.Exit(code)
    position = stopped[0].run.trainer.live.position
    where = f"in epoch {position.epoch} after window {position.window}"
    if len(outcomes) > 1:
        done = sum(outcome.summary is not None for outcome in outcomes)
        where = f"with {done} of {len(outcomes)} runs at their end"
    for outcome in outcomes:
        if outcome.error:
            note(f"{outcome.run.directory.path.name}: {outcome.error}")
    note(f"stopped {where}; saved. Continue with: nnrs train --out {out} --resume")
    raise typer.Exit(code)


def _explain_divergence(outcomes: "list[Outcome]", several: bool) -> None:
    """The error of the first run that diverged, and the names of all that did."""
    diverged = [outcome for outcome in outcomes if outcome.error is not None]
    if not diverged:
        return
    names = ", ".join(outcome.run.directory.path.name for outcome in diverged)
    first = diverged[0].error
    raise DivergenceError(f"{names}: {first}" if several else str(first)) from first
