"""What a curriculum is asked to do in anyone's training loop."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nnrs.arguments import whole
from nnrs.errors import ConfigError
from nnrs.neighbors.probabilities import check_temperature
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.base import InputPolicy, Reading
from nnrs.policies.functional import GRANULARITIES
from nnrs.registry import look_up
from nnrs.schedules import Schedule, checked_rate
from nnrs.seeding import check_seed
from nnrs.temperature import RULES, START, TemperatureController, check_start


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    """The ids of one token or of several, or of none; a token's text is refused."""
    one = (
        not isinstance(value, Iterable) or isinstance(value, str | bytes) or not getattr(value, "shape", True)
    )
    try:
        return (
            ()
            if value is None
            else tuple(whole(name, each, at_least=0) for each in ([value] if one else value))
        )
    except (ConfigError, TypeError):
        raise ConfigError(
            f"{name} must be the id of a token or several ids, such as config.eos_token_id, got {value!r:.60}."
        ) from None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a curriculum does; a rate is a `Schedule`, or a number for the same rate throughout."""

    neighbor_rate: Schedule | float | None = None  # γ
    prediction_rate: Schedule | float | None = None  # ε
    rule: str = "prose"  # of the temperature: prose | equation | effective | constant
    temperature: float = START  # τ at the start
    granularity: str = "token"  # token | position | sequence
    predict: str = "sample"  # sample | greedy
    seed: int = 0
    rank: int | None = None  # data-parallel; by default torch.distributed's, wrong under tensor parallelism
    document_end: int | Iterable[int] | None = None  # id or ids between packed documents without position_ids
    output_layer: nn.Module | None = None  # makes logits; by default get_output_embeddings()'s, if any
    inputs: str | None = None  # the argument with the ids where no labels are given: all of them count
    batch_first: bool = True  # False: the ids that `inputs` names are (time, batch)

    def __post_init__(self) -> None:
        for name in ("neighbor_rate", "prediction_rate"):
            rate = getattr(self, name)
            if rate is None or isinstance(rate, Schedule):
                continue
            rate = checked_rate(rate, f"{name}, where it is no Schedule,")
            object.__setattr__(self, name, Schedule("static", rate, rate))
        if self.neighbor_rate is None and self.prediction_rate is None:
            raise ConfigError("a curriculum needs a rate: give neighbor_rate, prediction_rate or both.")
        look_up(RULES, self.rule, "temperature rule")
        look_up(GRANULARITIES, self.granularity, "granularity")
        look_up({"sample": None, "greedy": None}, self.predict, "way to predict")
        check_temperature(self.temperature)
        if self.neighbor_rate is not None:
            check_start(self.rule, self.temperature)
        if not isinstance(self.output_layer, nn.Module | None):
            raise ConfigError(
                f"output_layer must be the module that makes the logits, not its name, got {self.output_layer!r:.60}."
            )
        if not isinstance(self.inputs, str | None) or self.inputs == "":
            raise ConfigError(
                "inputs must be the name of the argument of the model's forward that holds token ids, such as 'x', "
                f"got {self.inputs!r:.60}."
            )
        if not isinstance(self.batch_first, bool):
            raise ConfigError(f"batch_first must be True or False, got {self.batch_first!r:.60}.")
        if not self.batch_first and self.inputs is None:
            raise ConfigError(
                "batch_first=False goes with inputs=, the name of the argument that holds (time, batch)."
            )
        object.__setattr__(self, "seed", whole("seed", self.seed))
        check_seed(self.seed)
        if self.rank is not None:
            object.__setattr__(self, "rank", whole("rank", self.rank, at_least=0))
        object.__setattr__(self, "document_end", token_ids("document_end", self.document_end))

    @classmethod
    def named(cls, options: Mapping[str, Any], beside: Iterable[str] = ()) -> "Settings":
        """From arguments by name, one of which may be misspelt; `beside` are names that stand next to them."""
        known = {**cls.__dataclass_fields__, **dict.fromkeys(beside)}
        for name in options:
            look_up(known, name, "setting of a curriculum")
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
