"""The curriculum inside transformers' `Trainer`, causal and sequence to sequence: one callback (extra `hf`)."""

import inspect
import sys
import warnings
from collections.abc import Callable
from functools import partial
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch import nn

from nnrs.errors import ConfigError
from nnrs.integrations.curriculum import Curriculum
from nnrs.integrations.module import Compiler
from nnrs.integrations.settings import Settings
from nnrs.neighbors.table import NeighborTable
from nnrs.temperature import perplexity_of

try:
    from accelerate.state import AcceleratorState
    from accelerate.utils import DynamoBackend
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError:
    raise ConfigError(
        "nnrs.integrations.huggingface needs transformers and accelerate. "
        "Install them with: pip install 'nnrs[hf]'"
    ) from None

# Under this name the state travels in the trainer's own trainer_state.json. A callback that declares itself
# exportable would be made anew from JSON on request, and a neighbor table is no JSON.
STATE = "nnrs.curriculum"
TRAIN = inspect.unwrap(Trainer.train).__code__


class InputCurriculum(TrainerCallback):
    """Replaces training inputs at rates that follow the trainer's steps; the settings are those of `Settings`.

    Evaluation perplexity, exp of `metric`, moves the temperature. The state is saved with the trainer's checkpoints,
    and a resumed run continues as an unbroken one. The rates in the trainer's log are seen by callbacks that come
    later in its list: the console's, and those that are given after this one.
    """

    def __init__(
        self, table: NeighborTable | None = None, *, metric: str = "eval_loss", **settings: Any
    ) -> None:
        self.table, self.metric = table, metric
        self.settings = Settings.named(settings)
        self.settings.policy(table)  # what does not fit together is refused here, not after the data is read
        self.curriculum: Curriculum | None = None
        self._run: TrainerState | None = None
        self._first_step = 0  # of this training, resumed or not
        self._evaluated: set[str] | None = None  # the first evaluation's metrics, until they are looked at

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Attach the hook, and continue where a checkpoint left off."""
        if self.curriculum and self._run is state:
            raise ConfigError("the trainer was given the same InputCurriculum twice. Give it once.")
        self._detach()  # of a run that ended in an error
        self._run, self._first_step = state, state.global_step  # a new state for each training
        model: nn.Module = kwargs["model"]
        self.curriculum = Curriculum(model, self.table, self.settings, _compiler(), _running(state))
        self._evaluated = set()
        kept = _states(state).get(STATE)
        if state.global_step > 0 and kept:
            self.curriculum.load_state_dict(kept)
            if self.curriculum.moves_temperature and _lacks_evaluation(args, state):
                self._make_up_evaluation(args, state)
        self.curriculum.attach()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Set the rates of this optimizer step."""
        self._check_metric()
        if self.curriculum:
            self.curriculum.begin_step(state.global_step, state.max_steps)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """See that the step was one of ours, and hand the state to the trainer before it saves its own."""
        if self.curriculum:
            self.curriculum.check_it_acts()
            self._hand_over(state)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Move the temperature; an evaluation before this training's first step, or outside of it, is no news."""
        metrics = kwargs.get("metrics", {})
        if self._evaluated is not None:
            self._evaluated |= set(metrics)
        loss = metrics.get(self.metric)
        if self.curriculum and state.global_step > self._first_step and loss is not None:
            self.curriculum.end_evaluation(perplexity_of(loss))
            self._hand_over(state)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Add rates and temperature to the trainer's log of the training loss."""
        logs = kwargs.get("logs")
        if self.curriculum and logs and "loss" in logs and state.log_history:
            report = self.curriculum.report()
            logs.update(report)
            state.log_history[-1].update(report)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave the model as it was."""
        self._check_metric()
        self._detach()

    def _make_up_evaluation(self, args: TrainingArguments, state: TrainerState) -> None:
        """Take the evaluation at the start for the one that this checkpoint lacks, or say that there is none."""
        if args.eval_on_start:
            self._first_step -= 1
            return
        warnings.warn(
            f"the checkpoint of step {state.global_step} was saved before the evaluation that ends its epoch, which "
            "is not made up for: the temperature of neighbors stays where an unbroken run would move it. "
            "Resume with eval_on_start=True, or save with save_strategy='epoch'.",
            stacklevel=3,
        )

    def _check_metric(self) -> None:
        """Say so if the first evaluation had nothing to move the temperature by.

        Each of several datasets is an event of its own, so this is asked when all of them are through.
        """
        if not self.curriculum or not self._evaluated:
            return
        seen, self._evaluated = self._evaluated, None
        if self.metric not in seen and self.curriculum.moves_temperature:
            losses = [name for name in seen if name.endswith("loss")]
            warnings.warn(
                f"the evaluation has no '{self.metric}', so the temperature of neighbors stays. Pass metric=, "
                f"one of: {', '.join(sorted(losses or seen))}; or rule='constant'.",
                stacklevel=2,
            )

    def _hand_over(self, state: TrainerState) -> None:
        if self.curriculum:
            _states(state)[STATE] = self.curriculum.state_dict()

    def _detach(self) -> None:
        if self.curriculum:
            self.curriculum.detach()
        self.curriculum = None


def _lacks_evaluation(args: TrainingArguments, state: TrainerState) -> bool:
    """Whether what is resumed was saved at the end of an epoch (by its steps), and before it was evaluated."""
    is_due = args.eval_strategy == "epoch" and args.eval_delay <= (state.epoch or 0)
    at_an_end = state.epoch == round(state.epoch or 0) and state.global_step < state.max_steps
    made = any(
        name.startswith("eval_")
        for entry in state.log_history
        if entry.get("step") == state.global_step
        for name in entry
    )
    return is_due and at_an_end and not made


def _running(state: TrainerState) -> Callable[[], bool]:
    """Whether the training of this state, under way as this is called, still is.

    Callbacks do not hear of an interruption. Its hook must not outlive it all the same, or a plain run that follows
    would be trained on replaced inputs; so a forward looks for that training among its callers. (Only `train`'s own
    frame is looked into: before Python 3.13 a frame that was keeps what it held until its function returns.)
    """
    if not _is_called_in(state):
        return lambda: True  # who calls back is none of transformers' trainers
    thread = get_ident()  # in another one, the callers are not to be seen
    return lambda: get_ident() != thread or _is_called_in(state)


def _is_called_in(state: TrainerState) -> bool:
    frame: FrameType | None = sys._getframe()
    while frame:
        if frame.f_code is TRAIN and frame.f_locals["self"].state is state:
            return True
        frame = frame.f_back
    return False


def _compiler() -> Compiler | None:
    """What the trainer compiles with, asked for in its arguments or from `accelerate launch`.

    Accelerate knows; the model that it compiled is one that callbacks are not shown.
    """
    plugin = AcceleratorState().dynamo_plugin
    if plugin.backend == DynamoBackend.NO:
        return None
    return partial(torch.compile, **plugin.to_kwargs())


def _states(state: TrainerState) -> dict[str, Any]:
    """What the trainer saves for callbacks, by name: annotated as a list, and a dict once it is made."""
    states: Any = state.stateful_callbacks
    assert isinstance(states, dict)
    return states
