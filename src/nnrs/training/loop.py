"""Algorithm 1: rates for the epoch, windows, loss, validation, temperature, best so far."""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from nnrs.batches import Batches, Window
from nnrs.errors import ConfigError, DivergenceError
from nnrs.models.base import SequenceModel
from nnrs.policies.base import InputPolicy, Rates
from nnrs.registry import look_up
from nnrs.schedules import progress
from nnrs.seeding import Random, Stream
from nnrs.temperature import perplexity_of
from nnrs.training.checkpoint import Live, Position, Tally
from nnrs.training.events import Beat, Callback, EpochMetrics, EpochStart, EpochTiming
from nnrs.training.group import ALONE, Group
from nnrs.training.optimize import OptimizerConfig
from nnrs.training.unroll import Carry, unroll, window_loss

BEAT = 20  # windows between two looks at the loss: on a GPU each look waits for it


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingConfig:
    """How long and in what pieces a model is trained."""

    epochs: int = 40
    batch_size: int = 20
    bptt: int = 35
    precision: str = "auto"  # auto: bf16 on a GPU, fp32 on the CPU
    valid_streams: int = 10  # validation during training reads the split as so many streams

    def __post_init__(self) -> None:
        look_up(dict.fromkeys(("auto", "fp32", "bf16")), self.precision, "precision")
        for name in ("epochs", "batch_size", "bptt", "valid_streams"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name.replace('_', ' ')} must be at least 1, got {getattr(self, name)}.")

    def resolved(self, device: torch.device) -> "TrainingConfig":
        """The same with the precision that `auto` stands for on this device."""
        if self.precision != "auto":
            return self
        return replace(self, precision="bf16" if device.type == "cuda" else "fp32")


def is_beat(index: int, count: int) -> bool:
    """Whether the loss is looked at after window `index` of `count`."""
    return index % BEAT == BEAT - 1 or index == count - 1


@dataclass
class Epoch:
    """One epoch under way: what it is trained with, and when it began."""

    rates: Rates
    learning_rate: float
    tokens_before: int  # of its tally: trained on in an earlier session
    started: float = field(default_factory=time.perf_counter)
    trained: float = 0.0  # when its last window was done


@dataclass(frozen=True)
class Trained:
    """What one window gave: in one process, or summed over all of a group."""

    loss: Tensor
    predictions: Tensor
    neighbors: Tensor
    passes: int


@dataclass
class Trainer:
    """Trains a model under a policy. What it needs from outside comes as callables, so that it imports no metric.

    `validate` gives ℓ_i; `save` stores a checkpoint (whether it is the best one is told apart); `should_stop` is
    asked between windows, and a true answer saves and leaves `fit` with False. The processes of a `group` train the
    rows of each window between them; the leader alone saves, and should_stop answers all of them alike.
    """

    model: SequenceModel
    policy: InputPolicy
    windows: Batches
    validate: Callable[[SequenceModel], float]
    config: TrainingConfig
    optimizer_config: OptimizerConfig
    seed: int
    exact: bool = False
    passes: int = 1
    save: Callable[[Live], None] = lambda live: None
    save_best: Callable[[Live], None] = lambda live: None
    should_stop: Callable[[], bool] = lambda: False
    callbacks: Iterable[Callback] = ()
    group: Group = ALONE
    live: Live = field(init=False)

    def __post_init__(self) -> None:
        learned = list(self.policy.learned.values())
        parameters = [*self.model.parameters(), *learned]
        optimizer = self.optimizer_config.build(self.model.parameters(), learned)
        self.live = Live(self.model, self.policy, optimizer, Position(), Tally())
        self._parameters = parameters
        self._device = parameters[0].device
        if self.group.size > 1:
            self.group.check_shares(self.config.batch_size, len(self.windows[len(self.windows) - 1].inputs))
        if self.config.precision == "bf16" and self._device.type == "cpu":
            raise ConfigError("bf16 is for GPUs. On the CPU use --precision fp32, or leave it out.")

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.live.position.epoch >= self.config.epochs

    def fit(self) -> bool:
        """Train from where the run stands to its last epoch; False where it was stopped before."""
        while not self.finished:
            epoch = self.open_epoch()
            if not self._train_epoch(epoch):
                return False
            epoch.trained = time.perf_counter()
            self.close_epoch(epoch, self.group.leaders(self.validate(self.model)))
        self.close_fit()
        return True

    def open_epoch(self) -> Epoch:
        """The rates and the learning rate of the epoch at hand, told to the callbacks."""
        position, num_epochs = self.live.position, self.config.epochs
        epoch = Epoch(
            rates=self.policy.rates(progress(position.epoch, num_epochs)),  # ε_i, γ_i
            learning_rate=self.optimizer_config.rate_for(position.epoch, num_epochs, position.drops),
            tokens_before=self.live.tally.tokens,
        )
        for group in self.live.optimizer.param_groups:
            group["lr"] = epoch.learning_rate
        self._announce(epoch.rates)
        return epoch

    def close_epoch(self, epoch: Epoch, valid_perplexity: float) -> None:
        """Record an epoch that ended at ℓ_i, move τ and the best so far, and save."""
        position = self.live.position
        self.check_finite(valid_perplexity, "validation perplexity")  # the last step may have ruined it
        metrics = self._metrics(epoch, valid_perplexity)
        timing = self._timing(epoch)
        self.policy.end_epoch(valid_perplexity)  # τ_{i+1}, against the best before this epoch
        improved = valid_perplexity < position.best_valid_perplexity
        position.best_valid_perplexity = min(position.best_valid_perplexity, valid_perplexity)
        position.best_epoch = position.epoch if improved else position.best_epoch
        position.drops += not improved
        position.epoch, position.window = position.epoch + 1, 0
        self.live.tally, self.live.carry = Tally(), None
        for callback in self.callbacks:
            callback.epoch_end(metrics, timing)
        if improved and self.group.leads:
            self.save_best(self.live)
        self._save()

    def close_fit(self) -> None:
        """Tell the callbacks that all epochs are done."""
        for callback in self.callbacks:
            callback.fit_end(self.config.epochs)

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what was saved, with the rows that are this process's own."""
        self.live.restore(tensors, values)
        if self.live.carry:
            self.live.carry = self.live.carry.of_rows(self.group.rows(self.config.batch_size))

    def train_window(self, window: Window, rates: Rates) -> None:
        """One window forward and backward, and one step of the optimiser."""
        own = self.backward(window, rates)
        loss, predictions, neighbors = self.group.add_up(
            self._parameters, (own.loss, own.predictions, own.neighbors)
        )
        passes = self.group.highest(own.passes) if self.exact else own.passes
        self._count(Trained(loss, predictions, neighbors, passes), window.num_tokens)
        nn.utils.clip_grad_norm_(self._parameters, self.optimizer_config.clip)
        self.live.optimizer.step()
        self.live.position.step += 1

    def backward(self, window: Window, rates: Rates) -> Trained:
        """What this process's rows of a window add to its loss; the gradient stays in the parameters.

        All that is random is drawn for the whole window, whoever trains which rows.
        """
        live, batch, span = self.live, *window.inputs.shape
        step, device = live.position.step, self._device
        choice = self.policy.choose(window, rates, Random(self.seed, Stream.DRAWS, step, device=device))
        dropout = Random(self.seed, Stream.DROPOUT, step, device=device)
        masks, rows = self.model.draw_masks(batch, span, dropout), self.group.rows(batch)
        model = self.model.dropped(Random(self.seed, Stream.WEIGHTS, step, device=device))
        with self._autocast():
            carry = live.carry or Carry(self.model.first_state(window, dropout, rows))
            unrolled = unroll(
                model,
                self.policy,
                choice.of_rows(rows),
                carry,
                None if masks is None else tuple(mask[rows] for mask in masks),
                predicts=rates.prediction > 0,
                exact=self.exact,
                passes=self.passes,
            )
            loss = window_loss(model, unrolled.hidden, unrolled.choice.targets)
        if self.group.size > 1:  # the mean over all rows is a sum of shares
            loss = loss * (window.scored[rows].sum() / window.num_tokens)
        live.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        live.carry = unrolled.carry.detached() if self.windows.continuous else None
        return Trained(loss.detach(), *unrolled.choice.replaced(), unrolled.passes)

    def _train_epoch(self, epoch: Epoch) -> bool:
        position = self.live.position
        # Step 0 of this stream orders a table: see `shuffled_neighbors`.
        windows = self.windows.shuffled(Random(self.seed, Stream.ORDER, position.epoch + 1))
        for index in range(position.window, len(windows)):
            self.train_window(windows[index], epoch.rates)
            position.window = index + 1
            if is_beat(index, len(windows)):
                self.beat(epoch)
            if position.window < len(windows) and self.should_stop():
                self.check_finite(float(self.live.tally.nats), "training loss")
                self._save()
                return False
        return True

    def _save(self) -> None:
        """Have the leader save the state of all rows."""
        carry = self.live.carry.each(self.group.whole) if self.live.carry else None
        if self.group.leads:
            self.save(replace(self.live, carry=carry))

    def _count(self, trained: Trained, tokens: int) -> None:
        tally = self.live.tally
        tally.nats = tally.nats + trained.loss.double() * tokens
        tally.predictions = tally.predictions + trained.predictions
        tally.neighbors = tally.neighbors + trained.neighbors
        tally.tokens += tokens
        tally.passes += trained.passes
        tally.windows += 1

    def _announce(self, rates: Rates) -> None:
        record = EpochStart(
            epoch=self.live.position.epoch,
            num_epochs=self.config.epochs,
            num_windows=len(self.windows),
            window=self.live.position.window,
            prediction_rate=rates.prediction,
            neighbor_rate=rates.neighbor,
            temperature=self.policy.temperature,
        )
        for callback in self.callbacks:
            callback.epoch_start(record)

    def beat(self, epoch: Epoch) -> None:
        """Look at the loss, and tell the callbacks."""
        position, tally = self.live.position, self.live.tally
        nats = float(tally.nats)
        self.check_finite(nats, "training loss")
        seconds = time.perf_counter() - epoch.started
        record = Beat(
            epoch=position.epoch,
            window=position.window,
            perplexity=perplexity_of(nats / tally.tokens),
            tokens_per_second=(tally.tokens - epoch.tokens_before) / seconds,
        )
        for callback in self.callbacks:
            callback.batch_end(record)

    def check_finite(self, value: float, name: str) -> None:
        """Refuse to go on with a loss that is none."""
        position = self.live.position
        if not math.isfinite(value):
            rates = ", or the rates," if self.policy.prediction_rate or self.policy.neighbor_rate else ""
            raise DivergenceError(
                f"the {name} is no longer finite in epoch {position.epoch}, near window {position.window}. "
                f"Lower --learning-rate{rates} and start again with another --out."
            )

    def _metrics(self, epoch: Epoch, valid_perplexity: float) -> EpochMetrics:
        tally, rates = self.live.tally.read(), epoch.rates
        predicted, replaced = float(tally.predictions) / tally.tokens, float(tally.neighbors) / tally.tokens
        return EpochMetrics(
            epoch=self.live.position.epoch,
            train_perplexity=perplexity_of(float(tally.nats) / tally.tokens),
            valid_perplexity=valid_perplexity,
            prediction_rate=rates.prediction,
            neighbor_rate=rates.neighbor,
            effective_rate=predicted + replaced,
            effective_prediction_rate=predicted,
            effective_neighbor_rate=replaced,
            temperature=self.policy.temperature,
            effective_neighbors=self.policy.effective_neighbors(),
            learning_rate=epoch.learning_rate,
            passes=tally.passes / tally.windows,
        )

    def _timing(self, epoch: Epoch) -> EpochTiming:
        seconds = epoch.trained - epoch.started
        tokens = self.live.tally.tokens - epoch.tokens_before  # without those of an earlier session
        return EpochTiming(
            epoch=self.live.position.epoch,
            train_seconds=seconds,
            valid_seconds=time.perf_counter() - epoch.trained,
            tokens_per_second=tokens / seconds,
        )

    def _autocast(self) -> AbstractContextManager[object]:
        bf16 = self.config.resolved(self._device).precision == "bf16"
        return torch.autocast(self._device.type, torch.bfloat16) if bf16 else nullcontext()
