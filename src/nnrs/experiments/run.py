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
from nnrs.corpus import open_corpus
from nnrs.errors import RunError
from nnrs.evaluation.evaluate import text_perplexity
from nnrs.experiments.config import RunConfig, settings_of
from nnrs.experiments.prepare import Parts, Text, prepare
from nnrs.metrics.score import Score
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
from nnrs.vocabulary import Vocabulary, token_ids


@dataclass(frozen=True)
class Estimate:
    """What a run will take, from a few windows tried before the first epoch."""

    seconds: float
    bytes: int
    parameters: int


class Recorder(Callback):
    """Writes metrics.jsonl and timing.jsonl."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def epoch_end(self, metrics: EpochMetrics, timing: EpochTiming) -> None:
        """One line each."""
        self._run.append("metrics", metrics.as_dict())
        self._run.append("timing", asdict(timing))


class Run:
    """A run that is ready to train: made by `start` or `resume`, carried out by `finish`."""

    def __init__(self, directory: RunDirectory, parts: Parts) -> None:
        self.directory, self.parts = directory, parts
        config = parts.config
        self.trainer = Trainer(
            model=parts.model,
            policy=parts.policy,
            windows=parts.windows,
            validate=self._validate,
            config=config.training,
            optimizer_config=config.optimizer,
            seed=config.seed,
            exact=config.policy.unroll == "exact",
            passes=config.policy.passes,
            save=lambda live: directory.write_checkpoint(*live.snapshot()),
            save_best=self._save_best,
        )

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
        parameters = sum(parameter.numel() for parameter in self.parts.model.parameters())
        adaptive = self.parts.config.optimizer.name == "adamw"
        moments = 8 * parameters if adaptive else 0  # made by the first step, so not yet in the peak
        return Estimate(seconds, _peak_bytes(self.parts.model) + moments, parameters)

    def differences(self) -> list[str]:
        """What keeps a resumed run from being bitwise the unbroken one: another device or number of threads."""
        began, now = (
            self.directory.config()["environment"],
            _environment(next(self.parts.model.parameters()).device),
        )
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
        self.trainer.callbacks = (Recorder(self.directory), *callbacks)
        self.trainer.should_stop = should_stop
        if not self.trainer.fit():
            return None
        tensors, best = self.directory.best()
        self.parts.model.load_state_dict(model_tensors(tensors))
        summary = {
            "valid_perplexity": self._reported("valid"),
            "test_perplexity": self._reported("test"),
            "best_epoch": best["best_epoch"],
            "signature": f"ppl|split:test|streams:1|{self.parts.signature}",
        }
        self.directory.write_summary(summary)
        return summary

    def _validate(self, model: SequenceModel) -> float:
        text, streams = self.parts.text, self.parts.config.training.valid_streams
        return text_perplexity(
            model, text.ids["valid"], eos_id=text.vocabulary.eos_id, streams=streams
        ).compute()

    def _reported(self, split: str) -> float:
        text = self.parts.text
        return text_perplexity(self.parts.model, text.ids[split], eos_id=text.vocabulary.eos_id).compute()

    def _save_best(self, live: Live) -> None:
        """The model and what the policy learned, without what only training needs."""
        tensors, _ = live.snapshot()
        kept = {name: tensor for name, tensor in tensors.items() if name.startswith(("model.", "policy."))}
        self.directory.write_best(kept, asdict(live.position))

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
    parts = prepare(config, device)
    beside = {
        "names": {
            "corpus": parts.text.corpus.name,
            "vectors": parts.vectors.source if parts.vectors else None,
        },
        "text_sha256": parts.text.fingerprint,
        "vectors_sha256": parts.vectors_fingerprint,
        "environment": _environment(device),
    }
    run = Run(directory, parts)  # may still refuse the settings
    RunDirectory.create(out, {**parts.config.as_dict(), **beside})
    _write_companions(directory, parts)
    return run


def resume(path: Path | str, device: torch.device, *, previous: bool = False) -> Run:
    """An existing run, from its newest checkpoint (or the one before), or from its start where it has none."""
    directory = RunDirectory.open(path)
    found = directory.checkpoint(previous=previous)  # refuses a damaged one before any work is done
    if previous and found is None:
        raise RunError(f"{path} has no previous checkpoint. Leave --previous out.")
    parts = prepare(_config_of(directory), device)
    _check_unchanged(directory, parts)
    run = Run(directory, parts)
    if found:
        with _fitting(directory):
            run.trainer.live.restore(*found)
    position = run.trainer.live.position
    directory.forget_after(position.step, position.epoch)
    return run


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
    config = _config_of(directory)
    vocabulary = Vocabulary.from_json(directory.vocabulary())
    tensors, state = directory.best()
    model = build_model(config.model, len(vocabulary), Random(config.seed, Stream.INITIALISATION))
    with _fitting(directory):
        model.load_state_dict(model_tensors(tensors))
    table = NeighborTable.load(directory.table_path) if directory.table_path.is_file() else None
    if table and "policy.neighbor_logits" in tensors:
        table = table.reweighted(tensors["policy.neighbor_logits"])
    return LoadedRun(model.to(device), vocabulary, table, config, state["best_epoch"])


def evaluate_run(path: Path | str, split: str, device: torch.device, data: str | None = None) -> Score:
    """The perplexity of a run's best model on a split of its own text, or of another."""
    loaded, record = load(path, device), RunDirectory.open(path).config()
    if data is None:
        text, source = Text.read(loaded.config.data), loaded.config.data.source
        if text.fingerprint != record["text_sha256"]:
            raise RunError(
                f"{source} has changed since {path} was trained. Restore it, or name it with --data."
            )
        corpus, ids = text.corpus, text.ids[split]
    else:
        corpus = open_corpus(data)
        ids = token_ids(corpus, split, loaded.vocabulary)
    metric = text_perplexity(loaded.model, ids, eos_id=loaded.vocabulary.eos_id)
    trained = record["names"]
    signature = loaded.config.signature(trained["corpus"], trained["vectors"])
    other = f"on:{corpus.name}|" if data else ""
    return Score("ppl", metric.compute(), f"{other}split:{split}|streams:1|{signature}")


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


def _config_of(directory: RunDirectory) -> RunConfig:
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


def _peak_bytes(model: SequenceModel) -> int:
    device = next(model.parameters()).device
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kilobytes on Linux
