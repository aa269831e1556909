"""The curriculum as a Lightning callback (extra `lightning`)."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from nnrs.errors import ConfigError
from nnrs.integrations.curriculum import Curriculum
from nnrs.integrations.settings import Settings
from nnrs.neighbors.table import NeighborTable
from nnrs.temperature import perplexity_of

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    raise ConfigError(
        "nnrs.integrations.lightning needs lightning. Install it with: pip install 'nnrs[lightning]'"
    ) from None


ALL_STEPS = (
    "Lightning estimated too few: each of several optimizers counts. Give the Trainer max_epochs=-1 and max_steps=, "
    "the steps of all of them."
)
SKIPPED = 20  # batches without a call of the model, at the most, before there is one


class InputCurriculum(Callback):
    """Replaces training inputs of a module's language model; the settings are those of `Settings`.

    `model` names the attribute of your LightningModule that is called with `input_ids` and `labels`, or with what
    `inputs` names. The validation loss that you log as `monitor` moves the temperature; of several processes it is
    the mean of theirs, so that all have the same. The state is part of Lightning's checkpoints, those made after
    training or an error too.
    """

    def __init__(
        self,
        table: NeighborTable | None = None,
        *,
        model: str = "model",
        monitor: str = "val_loss",
        **settings: Any,
    ) -> None:
        self.table, self.model, self.monitor = table, model, monitor
        self.settings = Settings.named(settings)
        self.settings.policy(table)  # what does not fit together is refused here
        self.curriculum: Curriculum | None = None
        self._steps, self._warned = 1, False
        self._restored: dict[str, Any] = {}
        self._left: dict[str, Any] = {}  # by the training that ended last

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach the hook, and continue where a checkpoint left off."""
        self._detach()  # of a run that ended in an error
        self._warned = False
        model = getattr(pl_module, self.model, None)
        if not isinstance(model, nn.Module):
            raise ConfigError(
                f"{type(pl_module).__name__} has no module '{self.model}'. "
                "Pass model=, the name of the attribute that is called with input_ids and labels (or what inputs= "
                "names)."
            )
        steps = trainer.estimated_stepping_batches
        if steps == math.inf:
            raise ConfigError("a curriculum needs an end: give the Trainer max_steps or max_epochs.")
        self._steps = int(steps)
        # Of a module that was compiled as a whole, Lightning keeps the compiler, not the wrapper.
        compiled = getattr(pl_module, "_compiler_ctx", None)
        compiler = compiled["dynamo_ctx"] if compiled else None
        self.curriculum = Curriculum(model, self.table, self.settings, compiler, all_steps=ALL_STEPS)
        self.curriculum.steps = self._steps  # for a step that was under way when its state was saved
        if self._restored:
            self.curriculum.load_state_dict(self._restored)
        self._restored = {}
        self.curriculum.attach()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Set the rates of this optimizer step; the batches that it accumulates share them."""
        ours, step = self.curriculum, trainer.global_step
        if ours and (step != ours.step or ours.micro_step == 0):
            ours.begin_step(step, self._steps)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """See that the batch was one of ours; a module may skip some."""
        if self.curriculum:
            self.curriculum.check_it_acts(may_skip=batch_idx < SKIPPED)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move the temperature; Lightning's trial of the validation loop comes before there is one."""
        if not self.curriculum:
            return
        loss = _mean_over_processes(trainer, trainer.callback_metrics.get(self.monitor))
        if loss is not None:
            self.curriculum.end_evaluation(perplexity_of(loss))
        elif not self._warned and self.curriculum.moves_temperature:
            self._warned = True
            warnings.warn(
                f"the validation logged no '{self.monitor}', so the temperature of neighbors stays. Pass monitor= "
                f"(logged: {', '.join(sorted(trainer.callback_metrics)) or 'nothing'}), or rule='constant'.",
                stacklevel=2,
            )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the model as it was."""
        self._detach()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the model as it was."""
        self._detach()

    def state_dict(self) -> dict[str, Any]:
        """For Lightning's checkpoint."""
        return self.curriculum.state_dict() if self.curriculum else self._restored or self._left

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """From Lightning's checkpoint, before training starts."""
        self._restored = state_dict

    def _detach(self) -> None:
        if self.curriculum:
            self.curriculum.detach()
            self._left = self.curriculum.state_dict()
        self.curriculum = None


def _mean_over_processes(trainer: Trainer, value: Tensor | None) -> float | None:
    """The mean of the values that were logged, on every process; none where no process logged one."""
    logged = torch.tensor([0.0 if value is None else float(value), float(value is not None)])
    total, count = trainer.strategy.reduce(logged.to(trainer.strategy.root_device), reduce_op="sum").tolist()
    return total / count if count else None
