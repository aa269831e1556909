"""The epoch's metrics as TensorBoard scalars (extra `tensorboard`)."""

from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from nnrs.errors import ConfigError
from nnrs.training.events import Callback, EpochMetrics, EpochTiming

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard(Callback):
    """Writes what metrics.jsonl and timing.jsonl hold."""

    def __init__(self, folder: Path) -> None:
        if not find_spec("tensorboard"):
            raise ConfigError("--tensorboard needs TensorBoard: pip install 'nnrs[tensorboard]'.")
        self._folder = folder

    @cached_property
    def _writer(self) -> "SummaryWriter":
        """Made with the first point, for it makes the folder: a run that is refused leaves none."""
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self._folder))

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
