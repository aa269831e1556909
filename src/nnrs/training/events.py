"""The few moments a callback may hear of. Callbacks receive a record and return nothing."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EpochStart:
    """Before the first window of an epoch (or the first one left, after a resume)."""

    epoch: int
    num_epochs: int
    num_windows: int
    window: int
    prediction_rate: float
    neighbor_rate: float
    temperature: float


@dataclass(frozen=True, kw_only=True)
class Beat:
    """Every few windows: where the run stands. `perplexity` is the epoch's so far."""

    epoch: int
    window: int
    perplexity: float
    tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class EpochMetrics:
    """What an epoch gave: a line of metrics.jsonl. Nothing in it depends on the clock."""

    epoch: int
    train_perplexity: float  # on the inputs as trained on, the targets as trained on
    valid_perplexity: float  # teacher-forced
    prediction_rate: float
    neighbor_rate: float
    effective_rate: float  # share of inputs (or targets) really replaced, by either source
    effective_prediction_rate: float
    effective_neighbor_rate: float
    temperature: float
    effective_neighbors: float | None
    learning_rate: float
    passes: float  # through the model, per window

    def as_dict(self) -> dict[str, Any]:
        """The record as plain values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class EpochTiming:
    """How long an epoch took: a line of timing.jsonl."""

    epoch: int
    train_seconds: float
    valid_seconds: float
    tokens_per_second: float


class Callback:
    """Hears of a run; override what you need."""

    def epoch_start(self, record: EpochStart) -> None:
        """An epoch begins."""

    def batch_end(self, record: Beat) -> None:
        """Some windows are done."""

    def epoch_end(self, metrics: EpochMetrics, timing: EpochTiming) -> None:
        """An epoch is done and validated."""

    def fit_end(self, epochs: int) -> None:
        """All epochs are done."""
