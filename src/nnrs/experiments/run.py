"""A configuration becomes a run directory; a run directory continues, or is loaded."""

import platform
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from nnrs import __version__
from nnrs.batches import Windows
from nnrs.errors import RunError
from nnrs.evaluation.evaluate import scoring_windows, text_perplexity
from nnrs.experiments.config import RunConfig, settings_of
from nnrs.experiments.prepare import Parts, Shelf, prepare
from nnrs.experiments.writer import Writer
from nnrs.models import build_model
from nnrs.models.base import SequenceModel
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.base import Rates
from nnrs.run_directory import Json, RunDirectory
from nnrs.schedules import progress
from nnrs.seeding import Random, Stream
from nnrs.training.checkpoint import Live, Tally
from nnrs.training.events import Callback, EpochMetrics, EpochTiming
from nnrs.training.loop import Trainer
from nnrs.vocabulary import Vocabulary


@dataclass(frozen=True)
class Estimate:
    """What a run will take, from a few windows tried before the first epoch."""

    seconds: float
    bytes: int


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of a run after a step."""

    step: int
    tensors: dict[str, Tensor]
    values: Json


class Recorder(Callback):
    """Writes metrics.jsonl and timing.jsonl."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def epoch_end(self, metrics: EpochMetrics, timing: EpochTiming) -> None:
        """One line each."""
        self._run.append("metrics", metrics.as_dict())
        self._run.append("timing", asdict(timing))


class Run:
    """A run that is ready to train: made by `start` or `resume`, carried out by `finish` or `finish_together`."""

    def __init__(self, directory: RunDirectory, parts: Parts) -> None:
        self.directory, self.parts = directory, parts
        self._writer = Writer(background=self.device.type == "cuda")
        self._taken: Snapshot | None = None
        config = parts.config
        self.trainer = Trainer(
            model=parts.model,
            policy=parts.policy,
            windows=parts.windows,
            validate=lambda _: self.perplexity("valid", config.training.valid_streams),
            config=config.training,
            optimizer_config=config.optimizer,
            seed=config.seed,
            exact=config.policy.unroll == "exact",
            passes=config.policy.passes,
            save=self._save,
            save_best=self._save_best,
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
        """Whether all epochs are done and the scores are written."""
        return self.trainer.finished and self.directory.summary() is not None

    def estimate(self) -> Estimate:
        """Time and memory of what is left of the run, from a few windows at no rate and at the highest."""
        trainer, epochs = self.trainer, self.parts.config.training.epochs
        policy, windows = self.parts.policy, len(self.parts.windows)
        rates = [
            policy.rates(progress(epoch, epochs)) for epoch in range(trainer.live.position.epoch, epochs)
        ]
        highest = max(rates, key=lambda rate: rate.prediction + rate.neighbor, default=Rates())
        plain, replacing = self._seconds_per_window(Rates()), self._seconds_per_window(highest)
        per_epoch = [plain if rate == Rates() else replacing for rate in rates]
        valid_share = len(self.parts.text.ids["valid"]) / len(self.parts.text.ids["train"])
        seconds = sum(per_epoch) * windows * (1 + valid_share / 3)  # validation is forward only
        adaptive = self.parts.config.optimizer.name == "adamw"
        moments = 8 * self.parameters if adaptive else 0  # made by the first step, so not yet in the peak
        return Estimate(seconds, _peak_bytes(self.device) + moments)

    def differences(self) -> list[str]:
        """What keeps a resumed run from being bitwise the unbroken one: another device or number of threads."""
        began, now = self.directory.config()["environment"], _environment(self.device)
        return [
            f"this run began with {name} {began[name]} and goes on with {now[name]}: the last digits may differ"
            for name in ("device", "threads", "torch")
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
            "environment": _environment(self.device),
        }
        _write_companions(RunDirectory.create(path, {**parts.config.as_dict(), **beside}), parts)

    def go_back(self, checkpoint: tuple[dict[str, Tensor], Json] | None) -> None:
        """Stand where the checkpoint stood, or at the start where there is none."""
        if checkpoint:
            with _fitting(self.directory):
                self.trainer.live.restore(*checkpoint)

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
        """A split as `perplexity` reads it, on the run's device."""
        text = self.parts.text
        return scoring_windows(text.ids[split], eos_id=text.vocabulary.eos_id, streams=streams).to(
            self.device
        )

    def perplexity(self, split: str, streams: int = 1) -> float:
        """The perplexity of the model as it stands; reported figures use one stream."""
        text = self.parts.text
        metric = text_perplexity(
            self.parts.model, text.ids[split], eos_id=text.vocabulary.eos_id, streams=streams
        )
        return metric.compute()

    def summarise(self, valid_perplexity: float, test_perplexity: float) -> Json:
        """Write the scores of the best model to summary.json."""
        summary = {
            "valid_perplexity": valid_perplexity,
            "test_perplexity": test_perplexity,
            "best_epoch": self.trainer.live.position.best_epoch,
            "signature": f"ppl|split:test|streams:1|{self.parts.signature}",
        }
        self.directory.write_summary(summary)
        return summary

    def wait(self) -> None:
        """Wait until everything that was saved is on disk."""
        self._writer.wait()

    def _save(self, live: Live) -> None:
        """A checkpoint; the run may go on before it is on disk."""
        taken = self._snapshot(live)
        self._writer.submit(lambda: self.directory.write_checkpoint(taken.tensors, taken.values))
        self._taken = None  # the checkpoint is the last to need it

    def _save_best(self, live: Live) -> None:
        """The model and what the policy learned, without what only training needs."""
        taken, position = self._snapshot(live), asdict(live.position)
        kept = {
            name: tensor for name, tensor in taken.tensors.items() if name.startswith(("model.", "policy."))
        }
        self._writer.submit(lambda: self.directory.write_best(kept, position))

    def _snapshot(self, live: Live) -> Snapshot:
        """The state of the moment in main memory; an epoch's best and its checkpoint share one."""
        if self._taken is None or self._taken.step != live.position.step:
            tensors, values = live.snapshot()
            copies = {
                name: tensor.to("cpu", copy=self._writer.background) for name, tensor in tensors.items()
            }
            self._taken = Snapshot(live.position.step, copies, values)
        return self._taken

    def _seconds_per_window(self, rates: Rates) -> float:
        """Median of three tries; the gradient is thrown away and no parameter moves."""
        live, window = self.trainer.live, self.parts.windows[0]
        carry, tally = live.carry, live.tally
        seconds = []
        for _ in range(4):  # the first warms up
            live.carry, live.tally = carry, Tally()
            started = time.perf_counter()
            float(self.trainer.backward(window, rates))
            seconds.append(time.perf_counter() - started)
        live.carry, live.tally = carry, tally
        live.optimizer.zero_grad(set_to_none=True)
        return sorted(seconds[1:])[1]


def start(config: RunConfig, out: Path | str, device: torch.device) -> Run:
    """A new run in a new directory; everything is read and built before the directory is made."""
    directory = RunDirectory(out)
    directory.check_free()  # before any work is done
    run = Run(directory, prepare(config, device, Shelf()))
    run.write_beginning(directory.path)
    return run


def resume(path: Path | str, device: torch.device, *, previous: bool = False) -> Run:
    """An existing run, from its newest checkpoint (or the one before), or from its start where it has none."""
    directory = RunDirectory.open(path)
    steps = steps_to_continue(directory, previous=previous)
    found = (
        directory.checkpoint(steps[-1]) if steps else None
    )  # refuses a damaged one before any work is done
    run = reopened(directory, device, Shelf())
    run.go_back(found)
    run.forget_later()
    return run


def steps_to_continue(directory: RunDirectory, *, previous: bool) -> list[int]:
    """The steps a run can go on from, the one it would choose last; none where it starts afresh."""
    steps = directory.steps()
    if previous and len(steps) < 2:
        raise RunError(f"{directory.path} has no previous checkpoint. Leave --previous out.")
    return steps[:-1] if previous else steps


def reopened(directory: RunDirectory, device: torch.device, shelf: Shelf) -> Run:
    """The run of a directory at its start, on the text and the vectors it began with."""
    parts = prepare(config_of(directory), device, shelf)
    _check_unchanged(directory, parts)
    return Run(directory, parts)


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """What `nnrs.load` gives: the best model of a run, its vocabulary and its neighbor table.

    Of a gsns run the similarities are the learned logits: its probabilities are those at temperature 1.
    """

    model: SequenceModel
    vocabulary: Vocabulary
    table: NeighborTable | None
    config: RunConfig
    best_epoch: int


def load(path: Path | str, device: torch.device | str = "cpu") -> LoadedRun:
    """The best model of a run directory, ready for evaluation."""
    directory = RunDirectory.open(path)
    config = config_of(directory)
    vocabulary = Vocabulary.from_json(directory.vocabulary())
    tensors, state = directory.best()
    model = build_model(config.model, len(vocabulary), Random(config.seed, Stream.INITIALISATION))
    with _fitting(directory):
        model.load_state_dict(model_tensors(tensors))
    table = NeighborTable.load(directory.table_path) if directory.table_path.is_file() else None
    if table and "policy.neighbor_logits" in tensors:
        table = table.reweighted(tensors["policy.neighbor_logits"])
    return LoadedRun(model.to(device), vocabulary, table, config, state["best_epoch"])


@contextmanager
def _fitting(directory: RunDirectory) -> Iterator[None]:
    """Say in one line that tensors are not those of the model that config.json describes."""
    try:
        yield
    except RuntimeError:
        raise RunError(
            f"the weights in {directory.path} do not fit the model in its config.json. Was it edited?"
        ) from None


def model_tensors(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The model's own among the tensors of a checkpoint."""
    return {
        name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")
    }


def config_of(directory: RunDirectory) -> RunConfig:
    """The configuration that a run directory holds."""
    return RunConfig.from_dict(settings_of(directory.config()))


def _check_unchanged(directory: RunDirectory, parts: Parts) -> None:
    """A run continues on the text and the vectors it began with, or not at all."""
    if directory.config().get("text_sha256") != parts.text.fingerprint:
        source = parts.config.data.source
        raise RunError(f"{source} has changed since {directory.path} began. Restore it, or start a new run.")
    if directory.config().get("vectors_sha256") != parts.vectors_fingerprint:
        source = parts.config.vectors.source
        raise RunError(f"{source} has changed since {directory.path} began. Restore it, or start a new run.")
    _write_companions(directory, parts)  # where a kill came before they were written


def _write_companions(directory: RunDirectory, parts: Parts) -> None:
    """The vocabulary and the table that `load` needs; what is there stays."""
    if not directory.has_vocabulary:
        directory.write_vocabulary(parts.text.vocabulary.to_json())
    if parts.policy.table is not None and not directory.table_path.is_file():
        parts.policy.table.to("cpu").save(directory.table_path)


def _environment(device: torch.device) -> Json:
    return {
        "nnrs": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": device.type,  # whichever of several GPUs it was
        "threads": torch.get_num_threads(),
    }


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kilobytes on Linux
