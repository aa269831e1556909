"""The curriculum in anyone's training loop: a hook that changes what a model reads, never what it is taught.

Draws depend on (seed, data-parallel rank, step, micro-step) alone and consume none of torch's random numbers. Whether
a second pass runs depends on the rate alone, so ranks that draw differently still meet in every collective.
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
import torch.distributed as dist
from jaxtyping import Int
from torch import Tensor, nn

from nnrs.errors import ConfigError, RunError
from nnrs.integrations.batch import Batch, read_batch
from nnrs.integrations.choice import Key, choose
from nnrs.integrations.second_pass import Compiler, SecondPass
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.base import InputPolicy, Rates, Reading
from nnrs.policies.functional import GRANULARITIES
from nnrs.registry import look_up
from nnrs.schedules import Schedule, progress
from nnrs.temperature import RULES, TemperatureController, TemperatureState

MICRO_STEPS = 1 << 16  # room for the forwards of one step in the number that a draw is keyed by
PADDING = 128  # ids that a model may embed beyond its tokenizer's, or a tenth of all

NOT_CALLED = "the model was not called. Call the one that the curriculum was given."
NOT_TRAINING = "the model is in eval mode. Call model.train() before."
NO_LABELS = (
    "the model was given no labels. Pass them to the model itself, as `labels` "
    "(no label smoothing or loss function beside it)."
)
TAKEN_OVER = "another curriculum has taken the model over. Use one of them."


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a curriculum does; a rate is a `Schedule`, or a number for the same rate throughout."""

    neighbor_rate: Schedule | float | None = None  # γ
    prediction_rate: Schedule | float | None = None  # ε
    rule: str = "prose"  # of the temperature: prose | equation | effective | constant
    temperature: float = 0.5  # τ at the start
    granularity: str = "token"  # token | position | sequence
    predict: str = "sample"  # sample | greedy
    seed: int = 0
    rank: int | None = None  # data-parallel; by default torch.distributed's, wrong under tensor parallelism
    document_end: int | None = None  # the id that separates packed documents, where position_ids do not
    output_layer: nn.Module | None = None  # makes logits; by default what get_output_embeddings() gives

    def __post_init__(self) -> None:
        for name in ("neighbor_rate", "prediction_rate"):
            rate = getattr(self, name)
            if rate is None or isinstance(rate, Schedule):
                continue
            if not isinstance(rate, float | int) or not 0 <= rate <= 1:
                raise ConfigError(f"{name} must be a Schedule or a probability in [0, 1], got {rate!r}.")
            object.__setattr__(self, name, Schedule("static", float(rate), float(rate)))
        if self.neighbor_rate is None and self.prediction_rate is None:
            raise ConfigError("a curriculum needs a rate: give neighbor_rate, prediction_rate or both.")
        look_up(RULES, self.rule, "temperature rule")
        look_up(GRANULARITIES, self.granularity, "granularity")
        look_up({"sample": None, "greedy": None}, self.predict, "way to predict")
        if not 0 < self.temperature < float("inf"):
            raise ConfigError(
                f"temperature must be positive and finite, got {self.temperature}. "
                "For the closest neighbor every time, use k=1."
            )

    @classmethod
    def named(cls, options: Mapping[str, Any]) -> "Settings":
        """From arguments by name, one of which may be misspelt."""
        for name in options:
            look_up(cls.__dataclass_fields__, name, "setting of a curriculum")
        return cls(**options)

    def policy(self, table: NeighborTable | None) -> InputPolicy:
        """The policy that chooses each input among gold tokens, neighbors and predictions."""
        if (table is None) != (self.neighbor_rate is None):
            raise ConfigError(
                "neighbor_rate and a neighbor table go together: give both (NeighborTable.from_model), or neither."
            )
        controller, replaceable = None, torch.zeros(0, dtype=torch.bool)
        if table is not None:
            table, replaceable = table.to("cpu"), table.replaceable.cpu()
            controller = TemperatureController(
                self.rule, self.temperature, table.similarities, replaceable.float()
            )
        neighbor_rate, prediction_rate = (
            rate if isinstance(rate, Schedule) else None
            for rate in (self.neighbor_rate, self.prediction_rate)
        )
        return InputPolicy(
            proposal=table if table is not None and table.k else None,
            neighbor_rate=neighbor_rate,
            prediction_rate=prediction_rate,
            controller=controller if replaceable.any() else None,
            replaceable=replaceable,
            token_weights=replaceable.float(),
            reading=Reading(granularity=self.granularity, predict=self.predict),
        )


class Curriculum:
    """The policy, the step it is at, and the hook through which a model reads what the policy chose.

    The hook acts while the model is in training mode and is given labels; evaluation and `generate()` never see it.
    A `compiler` is what the model is compiled with where that cannot be seen on `model` itself.
    """

    def __init__(
        self,
        model: nn.Module,
        table: NeighborTable | None,
        settings: Settings,
        compiler: Compiler | None = None,
    ) -> None:
        self.model = unwrapped(model)
        if type(self.model).__name__.endswith("ForMaskedLM"):
            raise ConfigError(
                f"{type(self.model).__name__} fills in masked words and never reads its own: "
                "a curriculum is for causal and encoder-decoder models."
            )
        self.settings = settings
        self.policy = settings.policy(None if table is None else fitted(table, self.model))
        self._second_pass: SecondPass | None = None
        if settings.prediction_rate:
            layer = _output_layer(self.model, settings)
            found = (lambda: compiler) if compiler else partial(compiler_of, model)
            self._second_pass = SecondPass(self.model, layer, settings.predict, found)
        self._names = list(inspect.signature(self.model.forward).parameters)
        self._rank = data_parallel_rank() if settings.rank is None else settings.rank
        self._hook: Any = None
        # Of inputs that might change, predictions, neighbors; it goes to where the inputs are.
        self._counts = torch.zeros(3, dtype=torch.int64)
        self.step, self.steps, self.accumulation = 0, 1, 0
        self.micro_step = 0  # forwards seen in this step
        self._idle = NOT_CALLED  # why there is none yet

    @property
    def rates(self) -> Rates:
        """ε and γ of this step; beyond the last step, the last step's."""
        return self.policy.rates(progress(min(self.step, self.steps - 1), self.steps))

    def attach(self) -> None:
        """Begin to act."""
        for other in [each for each in _ATTACHED if each.model is self.model and each is not self]:
            other._give_way()
        # Disabled for the compiler: draws are made outside of what it compiles, so rates never recompile it.
        hook = torch.compiler.disable(self._before_forward)
        self._hook = self._hook or self.model.register_forward_pre_hook(hook, with_kwargs=True)
        _ATTACHED.add(self)

    def detach(self) -> None:
        """Leave the model as it was."""
        if self._hook:
            self._hook.remove()
        self._hook = None
        _ATTACHED.discard(self)

    def begin_step(self, step: int, steps: int, accumulation: int = 0) -> None:
        """Say which optimizer step of how many comes next.

        With an `accumulation` the curriculum goes on by itself, a step every so many training forwards.
        """
        self.step, self.steps, self.accumulation, self.micro_step = step, steps, accumulation, 0
        self._idle = NOT_CALLED

    def check_it_acts(self) -> None:
        """Refuse to go on after a step in which no input could be replaced: none ever would be."""
        if self.micro_step == 0:
            raise RunError(
                f"in a training step no input was replaced: {self._idle if self._hook else TAKEN_OVER}"
            )

    def end_evaluation(self, valid_perplexity: float) -> None:
        """Move τ (Eq. 5)."""
        self.policy.end_epoch(valid_perplexity)

    def report(self) -> dict[str, float]:
        """Rates, the shares of inputs really replaced since the last report, and τ; waits for the device."""
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
        self.step, self.micro_step = state["step"], state["micro_step"]
        self.policy.temperature_state = TemperatureState(**state["temperature"])

    def _give_way(self) -> None:
        """Let another curriculum have the model, unless this one is in use.

        A `with` block always takes its hook along when it is left, so one that is there is in use: two would be mixed
        up. A trainer's callback hears nothing of an interruption: what it left behind goes.
        """
        if self.accumulation:
            raise ConfigError(
                "a curriculum is active on this model already. Leave its `with` block before another begins."
            )
        self.detach()

    def _before_forward(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments of a training forward, its input ids replaced; those of any other forward as they are."""
        if getattr(model, "_is_replica", False):
            raise ConfigError(
                "nn.DataParallel runs copies of the model in threads. Start one process per GPU instead (torchrun)."
            )
        named = dict(zip(self._names, args, strict=False)) | kwargs
        if unwrapped(model) is not self.model:
            return None  # a copy of the model (a moving average, say) is not what is trained
        if not model.training or named.get("labels") is None:
            self._idle = NO_LABELS if model.training else NOT_TRAINING
            return None
        if self.accumulation and self.micro_step == self.accumulation:
            self.step, self.micro_step = self.step + 1, 0
        batch = read_batch(model, named, self.settings.document_end)
        inputs = self._inputs(batch, named)
        self.micro_step += 1
        return (), named | {batch.name: inputs}

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

    A step is `accumulation` forwards of `model` in training mode with labels. Give it compiled if you call it so: the
    pass that makes predictions is then compiled too. The settings are those of `Settings`.
    Tell it of each evaluation with `end_evaluation(perplexity)`, and save its `state_dict()` with your checkpoint.
    """
    if steps < 1 or accumulation < 1:
        raise ConfigError(f"steps and accumulation must be at least 1, got {steps} and {accumulation}.")
    ours = Curriculum(model, table, Settings.named(settings))
    ours.begin_step(0, steps, accumulation)
    ours.attach()
    try:
        yield ours
        ours.check_it_acts()
    finally:
        ours.detach()


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside torch.compile's, DDP's and FSDP's wrappers, in whose forward its weights are whole."""
    *_, inner = _unwrapping(model)
    return inner


def compiler_of(model: nn.Module) -> Compiler | None:
    """What compiles this model, wrapped in whatever; none where nothing does.

    Of `torch.compile(model)` it is what was made of the options. `model.compile()` does not show them: torch's
    defaults if it says that it is Inductor, else nothing.
    """
    *_, inner = wrapped = list(_unwrapping(model))
    found: Any = next((each.dynamo_ctx for each in wrapped if hasattr(each, "dynamo_ctx")), None)
    call = getattr(inner, "_compiled_call_impl", None)
    return torch.compile if found is None and call and call.get_compiler_config() else found


def _unwrapping(model: nn.Module) -> Iterator[nn.Module]:
    """The model as it was given, and all that is found wrapped in it, down to the model itself."""
    yield model
    inner = getattr(model, "_orig_mod", getattr(model, "_fsdp_wrapped_module", None))
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        inner = model.module
    if inner is not None:
        yield from _unwrapping(inner)


def data_parallel_rank() -> int:
    """The number of this process among those that train on different rows, where all do."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def fitted(table: NeighborTable, model: nn.Module) -> NeighborTable:
    """The table with a row for every id that the model embeds; ids that the table does not know have no neighbors."""
    rows = _embedded_ids(model) or table.vocab_size
    if not rows - max(PADDING, rows // 10) <= table.vocab_size <= rows:
        raise ConfigError(
            f"the table has {table.vocab_size:,} rows, but the model embeds {rows:,} ids. "
            "Make it with this model's tokenizer: NeighborTable.from_model(model, tokenizer)."
        )
    if table.vocab_size == rows:
        return table
    extra = torch.arange(table.vocab_size, rows, device=table.ids.device)[:, None].expand(-1, table.k)
    empty = table.similarities.new_full(extra.shape, -torch.inf)
    return replace(
        table, ids=torch.cat([table.ids, extra]), similarities=torch.cat([table.similarities, empty])
    )


def _embedded_ids(model: nn.Module) -> int | None:
    """How many ids the model embeds, where it says so; an adapter (LoRA's) holds the layer that knows."""
    find = getattr(model, "get_input_embeddings", None)
    layer: Any = find() if find else nn.Module()
    known = [part.num_embeddings for part in layer.modules() if hasattr(part, "num_embeddings")]
    weight = getattr(layer, "weight", None)
    return int(known[0]) if known else None if weight is None else len(weight)


def _output_layer(model: nn.Module, settings: Settings) -> nn.Module:
    find = getattr(model, "get_output_embeddings", None)
    layer = settings.output_layer or (find() if find else None)
    if layer is None:
        raise ConfigError(
            f"{type(model).__name__} does not say which module makes its logits. "
            "Pass output_layer=, for the model's own predictions (prediction_rate)."
        )
    return layer
