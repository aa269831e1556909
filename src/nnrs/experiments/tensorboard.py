"""The epoch's metrics as TensorBoard scalars (extra `tensorboard`)."""

from pathlib import Path

from nnrs.errors import ConfigError
from nnrs.training.events import Callback, EpochMetrics, EpochTiming


class TensorBoard(Callback):
    """Writes what metrics.jsonl and timing.jsonl hold."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("--tensorboard needs TensorBoard: pip install 'nnrs[tensorboard]'.") from None
        self._writer = SummaryWriter(str(folder))

    def epoch_end(self, metrics: EpochMetrics, timing: EpochTiming) -> None:
        """One point for each number."""
        values = {**metrics.as_dict(), "tokens_per_second": timing.tokens_per_second}
        for name, value in values.items():
            if name != "epoch" and value is not None:
                self._writer.add_scalar(name, value, metrics.epoch)
        self._writer.flush()

    def fit_end(self, epochs: int) -> None:
        """Closes the file."""
        self._writer.close()
