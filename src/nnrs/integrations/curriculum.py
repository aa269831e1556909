"""The curriculum in anyone's training loop: a hook that changes what a model reads, never what it is taught.

Draws depend on (seed, data-parallel rank, step, micro-step) alone and consume none of torch's random numbers. Whether
a second pass runs depends on the rate alone, so ranks that draw differently still meet in every collective.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, cast
from weakref import WeakSet

import torch
import torch.distributed as dist
from jaxtyping import Int
from torch import Tensor, nn

from nnrs.arguments import whole
from nnrs.errors import ConfigError, RunError
from nnrs.integrations.batch import Batch, read_batch, read_ids
from nnrs.integrations.choice import Key, choose
from nnrs.integrations.module import (
    Compiler,
    check_inputs,
    check_kind,
    compiler_of,
    embedded_ids,
    fitted,
    unwrapped,
)
from nnrs.integrations.second_pass import SecondPass
from nnrs.integrations.settings import Settings
from nnrs.neighbors.probabilities import check_temperature
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.base import Rates
from nnrs.schedules import progress
from nnrs.temperature import TemperatureState
from nnrs.wording import counted

MICRO_STEPS = 1 << 16  # room for the forwards of one step in the number that a draw is keyed by

NOT_CALLED = "the model was not called with gradient. Call the one that the curriculum was given."
NOT_TRAINING = "the model is in eval mode. Call model.train() before."
NO_LABELS = (
    "the model was given no labels. Pass them to the model itself, as `labels` (no label smoothing or loss function "
    "beside it). Where all inputs count, name the argument that holds their ids: inputs='input_ids'."
)
NO_INPUTS = "the model was called without {0}, which inputs= names. Pass it by name: model({0}=...)."
TAKEN_OVER = "another curriculum has taken the model over. Use one of them."
CHECKPOINTED = (
    "the whole model was run again within backward, as a step of its own: it would be given other inputs than those "
    "of its loss. Checkpoint the activations of its layers instead (model.gradient_checkpointing_enable())."
)
ALL_STEPS = "Give steps= all optimizer steps of the training, and accumulation= the forwards of each."


class Curriculum:
    """The policy, the step it is at, and the hook through which a model reads what the policy chose.

    The hook acts while the model is in training mode and is given labels (or what `inputs` names), with gradient;
    evaluation and `generate()` never see it.
    A `compiler` is what the model is compiled with where that cannot be seen on `model` itself. What trains the model
    may say whether it still does: an interrupted run is `running` no more, and its hook goes at the next forward.
    Where it goes on after the last step, `all_steps` says how to count them all.
    """

    def __init__(
        self,
        model: nn.Module,
        table: NeighborTable | None,
        settings: Settings,
        compiler: Compiler | None = None,
        running: Callable[[], bool] = lambda: True,
        all_steps: str = ALL_STEPS,
    ) -> None:
        _check_arguments(model, table)
        self.model = unwrapped(model)
        check_kind(self.model)
        if settings.inputs:
            check_inputs(self.model, settings.inputs)
        self.settings, self._running = settings, running
        self.policy = settings.policy(None if table is None else fitted(table, self.model))
        self._second_pass: SecondPass | None = None
        if settings.prediction_rate:
            found = (lambda: compiler) if compiler else partial(compiler_of, model)
            self._second_pass = SecondPass(self.model, settings, found)
        self._names = list(inspect.signature(self.model.forward).parameters)
        self._document_ends = cast(tuple[int, ...], settings.document_end)  # as Settings keeps it
        self._rank = data_parallel_rank() if settings.rank is None else settings.rank
        self._hook: Any = None
        # Of inputs that might change, predictions, neighbors; it goes to where the inputs are.
        self._counts = torch.zeros(3, dtype=torch.int64)
        self.step, self.steps, self.accumulation = 0, 1, 0
        self.micro_step = 0  # forwards seen in this step
        self._acted = self._in_block = self._resumed = False
        self._in_eval_mode = 0  # forwards with gradient that might have been of training
        self._idle = NOT_CALLED  # why it did not yet
        self._all_steps = all_steps
        schedules = (self.policy.prediction_rate, self.policy.neighbor_rate)
        self._moves = any(each and each.start != each.end for each in schedules)
        self._tells_end = self._moves  # until it did

    @property
    def rates(self) -> Rates:
        """ε and γ of this step; beyond the last step, the last step's."""
        return self.policy.rates(progress(min(self.step, self.steps - 1), self.steps))

    @property
    def moves_temperature(self) -> bool:
        """Whether evaluations have a temperature to move."""
        return self.policy.controller is not None and self.settings.rule != "constant"

    def attach(self) -> None:
        """Begin to act."""
        for other in [each for each in _ATTACHED if each is not self and _overlap(each.model, self.model)]:
            other._give_way()
        self._hook = self._hook or self.model.register_forward_pre_hook(Hook(self), with_kwargs=True)
        _ATTACHED.add(self)

    def detach(self) -> None:
        """Leave the model as it was."""
        if self._hook:
            self._hook.remove()
        self._hook = None
        _ATTACHED.discard(self)

    def begin_step(self, step: int, steps: int, accumulation: int = 0) -> None:
        """Say which optimizer step of how many comes next, counted from 0.

        With an `accumulation` the curriculum goes on by itself, a step every so many training forwards.
        """
        self.step, self.steps = whole("step", step, at_least=0), whole("steps", steps, at_least=1)
        self.accumulation, self.micro_step = whole("accumulation", accumulation, at_least=0), 0
        self._idle = NOT_CALLED

    def check_it_acts(self, *, may_skip: bool = False) -> None:
        """Refuse to go on after a first step in which no input could be replaced: none ever would be.

        Where steps `may_skip` the model, one in which it is not called tells nothing.
        """
        idle = not self._acted and not (may_skip and self._idle == NOT_CALLED)
        if idle or not self._hook:
            raise RunError(
                f"in a training step no input was replaced: {self._idle if self._hook else TAKEN_OVER}"
            )

    def end_evaluation(self, valid_perplexity: Any) -> None:
        """Move τ (Eq. 5). A number that is no perplexity is warned of, and leaves τ where it is."""
        try:
            perplexity = float(valid_perplexity)
        except (TypeError, ValueError):
            raise ConfigError(f"a perplexity must be a number, got {valid_perplexity!r:.60}.") from None
        if perplexity >= 1:
            self.policy.end_epoch(perplexity)
            return
        warnings.warn(
            f"a perplexity is at least 1, got {perplexity:g}: the temperature stays where it is. Of a loss in nats "
            "per word give math.exp(loss).",
            stacklevel=2,
        )

    def report(self) -> dict[str, float]:
        """Rates, the shares of inputs that became predictions or neighbors since the last report, and τ.

        A prediction counts even where it equals the gold token, a neighbor only where it differs. Waits for the
        device.
        """
        changeable, predicted, neighbors = self._counts.tolist()
        self._counts.zero_()
        return {
            "prediction_rate": self.rates.prediction,
            "neighbor_rate": self.rates.neighbor,
            "effective_prediction_rate": predicted / max(changeable, 1),
            "effective_neighbor_rate": neighbors / max(changeable, 1),
            "neighbor_temperature": self.policy.temperature,
        }

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs, as plain numbers."""
        return {
            "step": self.step,
            "micro_step": self.micro_step,
            "temperature": asdict(self.policy.temperature_state),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        try:
            step, micro_step = (whole(name, state[name], at_least=0) for name in ("step", "micro_step"))
            numbers = dict(state["temperature"]).items()
            temperature = TemperatureState(**{name: float(number) for name, number in numbers})
            check_temperature(temperature.temperature)
        except (ConfigError, KeyError, TypeError, ValueError):
            raise ConfigError(
                f"a curriculum's state has step, micro_step and temperature, got {state!r:.60}. "
                "Give it what state_dict() gave."
            ) from None
        self.step, self.micro_step, self.policy.temperature_state = step, micro_step, temperature
        self._resumed = True

    def _give_way(self) -> None:
        """Let another curriculum have the model, unless this one is in use.

        A `with` block always takes its hook along when it is left, so one that is there is in use: two would be mixed
        up. A trainer's callback hears nothing of an interruption: what it left behind goes.
        """
        if self._in_block:
            raise ConfigError(
                "a curriculum is active on this model already, or on a part of it or one around it. "
                "Leave its `with` block before another begins."
            )
        self.detach()

    def before_forward(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments of a training forward, its input ids replaced; those of any other forward as they are."""
        if getattr(model, "_is_replica", False):
            raise ConfigError(
                "nn.DataParallel runs copies of the model in threads. Start one process per GPU instead (torchrun)."
            )
        if unwrapped(model) is not self.model:
            return None  # a copy of the model (a moving average, say) is not what is trained
        if not self._running():
            self.detach()
            return None
        if not torch.is_grad_enabled():
            return None  # it generates or evaluates, also where it was left in training mode
        named = dict(zip(self._names, args, strict=False)) | kwargs
        if idle := self._why_idle(model, named):
            self._idle = idle
            self._in_eval_mode += idle == NOT_TRAINING
            if self._in_block and model.training:
                self.check_it_acts()
            return None
        if torch._C._current_graph_task_id() != -1:  # within backward, which torch.utils.checkpoint asks so
            raise RunError(CHECKPOINTED)
        if self.accumulation and self.micro_step == self.accumulation:
            self.step, self.micro_step = self.step + 1, 0
        if self._tells_end and self.step >= self.steps:
            self._tell_end()
        batch = self._read(model, named)
        if not self._acted:
            self._check_ids(batch)
        inputs = self._inputs(batch, named)
        inputs = inputs if self.settings.batch_first else inputs.t().contiguous()
        self.micro_step += 1
        self._acted = True
        if batch.name in self._names[: len(args)]:
            place = self._names.index(batch.name)
            return (*args[:place], inputs, *args[place + 1 :]), kwargs
        return args, kwargs | {batch.name: inputs}

    def _why_idle(self, model: nn.Module, named: Mapping[str, Any]) -> str | None:
        """Why a forward with gradient is none of training, if it is none."""
        if not model.training:
            return NOT_TRAINING
        name = self.settings.inputs
        if named.get(name or "labels") is not None:
            return None
        return NO_INPUTS.format(name) if name else NO_LABELS

    def _read(self, model: nn.Module, named: Mapping[str, Any]) -> Batch:
        name, batch_first, ends = self.settings.inputs, self.settings.batch_first, self._document_ends
        if name is None:
            return read_batch(model, named, ends)
        return read_ids(named, name, batch_first=batch_first, document_ends=ends)

    def _check_ids(self, batch: Batch) -> None:
        """Refuse ids beyond a table that could not be held against its model: they would never be replaced.

        Looked at once, in the first training forward: on a GPU it waits.
        """
        rows = len(self.policy.replaceable)
        if self.policy.proposal is None or not batch.ids.numel() or embedded_ids(self.model) is not None:
            return
        if (highest := int(batch.ids.max())) >= rows:
            raise ConfigError(
                f"{batch.name} has the id {highest}, and the table {counted(rows, 'row')}. Make it with a row for "
                "each id that the model embeds."
            )

    def _tell_end(self) -> None:
        """Say once that training goes on after the last step: a forgotten `accumulation` would end a pulse early."""
        self._tells_end = False
        made_for, came = f"steps={self.steps}", f"step {self.step + 1:,}"
        if self.accumulation:
            made_for += f" and accumulation={self.accumulation}"
            came = f"training forward {self.step * self.accumulation + self.micro_step + 1:,}"
        warnings.warn(
            f"the curriculum was made for {made_for}, and {came} is beyond its end: the last rates stay. "
            f"{self._all_steps}",
            stacklevel=2,
        )

    def warn_if_hardly_begun(self) -> None:
        """Say where a training ends in which at most half of the steps were made, so that rates rose to little.

        Where rates stand still no step needs to be counted, but for those that a model in eval mode has missed.
        """
        made = self.step + (self.micro_step > 0)
        missed = self._in_eval_mode >= (self.steps - made) * max(self.accumulation, 1)
        if 2 * made > self.steps or not (self._moves or missed):
            return
        asked, came, rates = counted(self.steps, "step"), counted(made, "step"), self.rates
        advice = (
            f"{self._all_steps} A training that was stopped early, or that goes on later, is as it should be."
        )
        if missed:
            came += f" (and {counted(self._in_eval_mode, 'forward')} with gradient in eval mode)"
            advice = "Call model.train() after each evaluation."
        warnings.warn(
            f"the curriculum was made for {asked}, and saw {came}: "
            f"its rates ended at {rates.prediction:.3g} (predictions) and {rates.neighbor:.3g} (neighbors). {advice}",
            stacklevel=4,
        )

    @torch.no_grad()
    def _inputs(self, batch: Batch, named: Mapping[str, Any]) -> Int[Tensor, "batch time"]:
        """x, from the draws of this micro-step (Eq. 6).

        A tensor of its own, contiguous and no view, at every rate, also where the labels are the very same tensor: a
        compiler looks at all of that.
        """
        rates = self.rates
        # Where there is no kernel for our random numbers, they are drawn and used on the CPU.
        where = batch.ids.device if batch.ids.is_cuda else torch.device("cpu")
        self._move_to(where)
        may_change = batch.may_change.to(where).contiguous()
        if not (rates.prediction or rates.neighbor) or not batch.ids.numel():
            self._counts[0].add_(may_change.sum())
            return batch.ids.clone(memory_format=torch.contiguous_format)
        gold = batch.ids.to(where, torch.int64).contiguous()
        key = Key(self.settings.seed, self.step * MICRO_STEPS + self.micro_step, self._rank)
        inputs, choice = choose(self.policy, gold, may_change, rates, key, self._counts)
        if self._second_pass and rates.prediction:
            inputs = self._second_pass.predictions(named, batch.name, choice).clone()
        return inputs.to(batch.ids)

    def _move_to(self, device: torch.device) -> None:
        policy = self.policy
        policy.proposal = policy.proposal.to(device) if policy.proposal else None
        policy.replaceable = policy.replaceable.to(device)
        self._counts = self._counts.to(device)


def _check_arguments(model: Any, table: Any) -> None:
    if not isinstance(model, nn.Module):
        raise ConfigError(f"a curriculum's model must be a torch.nn.Module, got {type(model).__name__}.")
    if not isinstance(table, NeighborTable | None):
        raise ConfigError(
            "a curriculum's table must be a NeighborTable (NeighborTable.from_model), got "
            f"{type(table).__name__}."
        )


def _overlap(one: nn.Module, other: nn.Module) -> bool:
    """Whether a forward of one is, or holds, a forward of the other."""
    return any(part is other for part in one.modules()) or any(part is one for part in other.modules())


class Hook:
    """What a model asks before its forward. Copied or saved with the model, it becomes one that does nothing."""

    def __init__(self, curriculum: Curriculum) -> None:
        self.curriculum = curriculum

    # Disabled for the compiler: draws are made outside of what it compiles, so rates never recompile it.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments that the curriculum chose, or none to leave them as they are."""
        return self.curriculum.before_forward(model, args, kwargs)

    def __reduce__(self) -> tuple[type["IdleHook"], tuple[()]]:
        return IdleHook, ()


class IdleHook:
    """What is left of a `Hook` in a copy of its model: nothing that a compiler would stop at."""

    def __call__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Leave the arguments as they are."""


_ATTACHED: WeakSet[Curriculum] = WeakSet()  # a model has at most one; its hook keeps it alive


@contextmanager
def curriculum(
    model: nn.Module,
    table: NeighborTable | None = None,
    *,
    steps: int,
    accumulation: int = 1,
    **settings: Any,
) -> Iterator[Curriculum]:
    """A curriculum over the next `steps` optimizer steps of a loop of your own.

    A step is `accumulation` forwards of `model` in training mode with labels and gradient; where its loss is made
    elsewhere, `inputs` names the argument of the forward that holds the ids, and labels are not looked at. Give the
    model compiled if you call it so: the pass that makes predictions is then compiled too, where the model names the
    part below its output layer (`base_model`). The settings are those of `Settings`.
    Tell it of each evaluation with `end_evaluation(perplexity)`, and save its `state_dict()` with your checkpoint.
    A first forward in training mode without ids and labels, though with gradient, is refused. After the last step
    the last rates stay, and a warning says so where they had moved.
    """
    accumulation = whole("accumulation", accumulation, at_least=1)
    ours = Curriculum(model, table, Settings.named(settings, beside=("steps", "accumulation")))
    ours.begin_step(0, steps, accumulation)
    ours.attach()
    ours._in_block = True
    try:
        yield ours
        ours.check_it_acts(may_skip=ours._resumed)  # a run that had ended has no step left to make
        ours.warn_if_hardly_begun()
    finally:
        ours.detach()


def data_parallel_rank() -> int:
    """The number of this process among those that train on different rows, where all do."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
