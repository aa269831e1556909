"""A configuration becomes a run directory, and a run directory continues."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from nnrs import __version__
from nnrs.batches import Windows
from nnrs.errors import RunError
from nnrs.evaluation.evaluate import scoring_windows
from nnrs.experiments.config import RunConfig
from nnrs.experiments.load import config_of, fitting, model_tensors
from nnrs.experiments.prepare import Parts, Shelf, located, prepare
from nnrs.experiments.text import ParallelText, check_still_there
from nnrs.experiments.writer import Saver
from nnrs.run_directory import Json, RunDirectory
from nnrs.training.events import Callback
from nnrs.training.group import ALONE, Group
from nnrs.training.loop import Trainer

SCORED = ("valid", "test")  # the splits that a run is scored on when it ends


class Run:
    """A run that is ready to train: made by `start` or `resume`, carried out by `finish` or `finish_together`."""

    def __init__(self, directory: RunDirectory, parts: Parts, group: Group = ALONE) -> None:
        self.directory, self.parts, self.group = directory, parts, group
        self.saver = Saver(directory, background=self.device.type == "cuda")
        config, text = parts.config, parts.text  # not the parts themselves: `start_over` lets their model go
        streams = config.training.valid_streams
        self.trainer = Trainer(
            model=parts.model,
            policy=parts.policy,
            windows=parts.windows,
            validate=lambda model: text.perplexity(model, "valid", streams).compute(),
            config=config.training,
            optimizer_config=config.optimizer,
            seed=config.seed,
            exact=config.policy.unroll == "exact",
            passes=config.policy.passes,
            save=self.saver.save,
            save_best=self.saver.save_best,
            group=group,
        )

    @property
    def device(self) -> torch.device:
        """Where it trains."""
        return next(self.parts.model.parameters()).device

    @property
    def parameters(self) -> int:
        """How many numbers the model learns."""
        return sum(parameter.numel() for parameter in self.parts.model.parameters())

    @property
    def finished(self) -> bool:
        """Whether all epochs are done and the scores are written; its checkpoints may have been removed since."""
        at_its_end = self.trainer.finished or not self.directory.steps()
        return at_its_end and self.directory.summary() is not None

    def differences(self) -> list[str]:
        """What keeps a resumed run from being bitwise the unbroken one: another device or number of threads."""
        began, now = self.directory.config()["environment"], self._environment()
        return [
            f"this run began with {name} {began[name]} and goes on with {now[name]}: the last digits may differ"
            for name in ("device", "threads", "processes", "torch")
            if began[name] != now[name]
        ]

    def finish(
        self,
        callbacks: Sequence[Callback] = (),
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Json | None:
        """Train to the end and write summary.json; None where it was asked to stop before."""
        from nnrs.experiments.together import finish_together  # which itself needs a Run

        [outcome] = finish_together([self], [callbacks], should_stop)
        if outcome.error:
            raise outcome.error
        return outcome.summary

    def write_beginning(self, path: Path) -> None:
        """Make the run directory at `path`, which need not be where it will stand: config, vocabulary, table."""
        parts = self.parts
        beside = {
            "names": {
                "corpus": parts.text.corpus.name,
                "vectors": parts.vectors.source if parts.vectors else None,
            },
            "text_sha256": parts.text.fingerprint,
            "vectors_sha256": parts.vectors_fingerprint,
            "environment": self._environment(),
        }
        _write_companions(RunDirectory.create(path, {**parts.config.as_dict(), **beside}), parts)

    def go_back(self, checkpoint: tuple[dict[str, Tensor], Json] | None) -> None:
        """Stand where the checkpoint stood, or at the start where there is none."""
        if checkpoint:
            with fitting(self.directory):
                self.trainer.restore(*checkpoint)
            if not self.finished:
                self.directory.check_told(self.trainer.live.position.epoch)

    def forget_later(self) -> None:
        """Forget what the directory holds of a time after the one where the run stands."""
        position = self.trainer.live.position
        self.directory.forget_after(position.step, position.epoch)

    def load_best(self) -> None:
        """Give the model the weights of its best epoch."""
        self.wait()
        tensors, _ = self.directory.best()
        self.parts.model.load_state_dict(model_tensors(tensors))

    def windows_of(self, split: str, streams: int = 1) -> Windows:
        """A split as it is scored, on the run's device."""
        text = self.parts.text
        return scoring_windows(text.ids[split], eos_id=text.vocabulary.eos_id, streams=streams).to(
            self.device
        )

    def losses(self, split: str) -> Float[Tensor, " pieces"]:
        """What reported figures of the model as it stands are made of."""
        return self.parts.text.losses(self.parts.model, split)

    def summarise(self, losses: Mapping[str, Tensor]) -> Json:
        """Write summary.json from the losses of the best model, which are kept as well: computing them takes long."""
        self.directory.write_losses(losses)
        text = self.parts.text
        summary = {
            **{f"{split}_perplexity": text.perplexity_from(losses[split], split) for split in SCORED},
            "best_epoch": self.trainer.live.position.best_epoch,
            "signature": "|".join(["ppl", "split:test", *text.how_scored, self.parts.signature]),
        }
        self.directory.write_summary(summary)
        return summary

    def start_over(self, shelf: Shelf) -> None:
        """Stand at the start again, whatever training did to the model; who listened goes on listening."""
        self.parts = self.parts.anew(shelf)
        self.trainer = replace(self.trainer, model=self.parts.model, policy=self.parts.policy)

    def wait(self) -> None:
        """Wait until everything that was saved is on disk."""
        self.saver.wait()

    def check_agreement(self) -> None:
        """Meet the other processes that train this run, and see that it is the same run at the same step."""
        facts = {
            "configuration": self.parts.signature,
            "text": self.parts.text.fingerprint,
            "vectors file": self.parts.vectors_fingerprint,
            "checkpoint": self.trainer.live.position.step,
        }
        self.group.check_agreement(facts)

    def _environment(self) -> Json:
        launch = _launch()
        return {
            "nnrs": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "device": self.device.type,  # whichever of several GPUs it was
            "threads": torch.get_num_threads(),
            "processes": self.group.size,
            **({"launch": launch} if launch else {}),
        }


def start(config: RunConfig, out: Path | str, device: torch.device, group: Group = ALONE) -> Run:
    """A new run in a new directory; everything is read and built before the directory is made."""
    directory = RunDirectory(out)
    directory.check_free()  # before any work is done
    run = Run(directory, prepare(config, device, Shelf(), group), group)
    run.check_agreement()  # all have seen by now that the place is free
    if group.leads:
        run.write_beginning(directory.path)
    return run


def resume(path: Path | str, device: torch.device, *, previous: bool = False, group: Group = ALONE) -> Run:
    """An existing run, from its newest checkpoint (or the one before), or from its start where it has none."""
    directory = RunDirectory.open(path)
    claim_unfinished([directory], group)
    steps = steps_to_continue(directory, previous=previous)
    found = directory.checkpoint(steps[-1]) if steps else None  # a damaged one is refused before any work
    run = reopened(directory, device, Shelf(), group)
    run.go_back(found)
    run.check_agreement()  # all have read by now what is to be forgotten
    if group.leads and not run.finished:
        run.forget_later()
    return run


def start_or_go_on(config: RunConfig, out: Path | str, device: torch.device, group: Group = ALONE) -> Run:
    """A new run; the one at `out` where torchrun, having begun it, has started its processes once more."""
    if begun_by_this_launch(config, out, device):
        return resume(out, device, group=group)
    return start(config, out, device, group)


def begun_by_this_launch(config: RunConfig, out: Path | str, device: torch.device) -> bool:
    """Whether an earlier life of these processes, under the same torchrun, has made this very run."""
    directory, launch = RunDirectory(out), _launch()
    if not launch or os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" or not directory.is_run:
        return False
    if directory.config().get("environment", {}).get("launch") != launch:
        return False
    made = config_of(directory)
    policy = config.policy if made.policy.k is None else config.policy.resolved(made.policy.k)
    return made == replace(located(config), policy=policy, training=config.training.resolved(device))


def _launch() -> str | None:
    """The name torchrun has given to this launch, where it has one of its own."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return None if name == "none" else name


def steps_to_continue(directory: RunDirectory, *, previous: bool) -> list[int]:
    """The steps a run can go on from, the one it would choose last; none where it starts afresh."""
    steps = directory.steps()
    if previous and len(steps) < 2:
        raise RunError(f"{directory.path} has no previous checkpoint. Leave --previous out.")
    return steps[:-1] if previous else steps


def claim_unfinished(directories: Sequence[RunDirectory], group: Group = ALONE) -> None:
    """Let no other process go on with these runs: before anything of them is read, which it would change."""
    for directory in directories:
        if group.leads and directory.summary() is None:
            directory.claim()


def reopened(directory: RunDirectory, device: torch.device, shelf: Shelf, group: Group = ALONE) -> Run:
    """The run of a directory at its start, on the text and the vectors it began with."""
    config = config_of(directory)
    check_still_there(
        config.data, directory.path, "Put it back, or let data.source in config.json say where it is."
    )
    parts = prepare(config, device, shelf, group)
    _check_unchanged(directory, parts)
    if group.leads:
        _write_companions(directory, parts)  # where a kill came before they were written
    return Run(directory, parts, group)


def _check_unchanged(directory: RunDirectory, parts: Parts) -> None:
    """A run continues on the text and the vectors it began with, or not at all."""
    if directory.config().get("text_sha256") != parts.text.fingerprint:
        raise changed(parts.config.data.source, directory)
    if directory.config().get("vectors_sha256") != parts.vectors_fingerprint:
        raise changed(parts.config.vectors.source, directory)


def changed(source: str, directory: RunDirectory, instead: str = "start a new run") -> RunError:
    """What is said of a text or of vectors that are no longer those a run began with."""
    return RunError(f"{source} has changed since {directory.path} began. Restore it, or {instead}.")


def _write_companions(directory: RunDirectory, parts: Parts) -> None:
    """The vocabularies and the table that `load` needs; what is there stays."""
    if not directory.has_vocabulary:
        directory.write_vocabulary(parts.text.vocabulary.to_json())
    if isinstance(parts.text, ParallelText) and not directory.has_source_vocabulary:
        directory.write_source_vocabulary(parts.text.source_vocabulary.to_json())
    if parts.policy.table is not None and not directory.table_path.is_file():
        parts.policy.table.to("cpu").save(directory.table_path)
