"""InputPolicy: what a window's inputs are made of, at the rates and the temperature of the moment."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nnrs.batches import Window
from nnrs.neighbors.probabilities import centroid, effective_neighbors, neighbor_probabilities
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.functional import (
    capacity_for,
    draw_shape,
    mix_inputs,
    positions_of,
    settle_claims,
)
from nnrs.schedules import Schedule
from nnrs.seeding import Random
from nnrs.temperature import TemperatureController, TemperatureState

Embed = Callable[[Tensor], Tensor]

NO_TEMPERATURE = TemperatureState(1.0, 0.0)  # where nothing moves τ; no model's perplexity is 0


@runtime_checkable  # for the shape checks in the tests
class Proposal(Protocol):
    """Where replacements come from: a neighbor table, a row of bigrams, or one of the controls."""

    @property
    def replaceable(self) -> Bool[Tensor, " vocab"]:
        """Which rows have something to propose."""

    def draw(
        self, tokens: Int[Tensor, "*shape"], uniform: Float[Tensor, "*shape"], temperature: float
    ) -> Int[Tensor, "*shape"]:
        """One proposal for each token, from its row."""

    def to(self, device: torch.device | str) -> "Proposal":
        """The same, on another device."""


@dataclass(frozen=True)
class Rates:
    """ε and γ of one epoch."""

    prediction: float = 0.0
    neighbor: float = 0.0


@dataclass(frozen=True, eq=False)
class Choice:
    """What one window's inputs will be made of. Nothing random is left to be drawn after it."""

    gold: Int[Tensor, "batch time"]
    targets: Int[Tensor, "batch time"]
    neighbors: Int[Tensor, "batch time"]
    takes_neighbor: Bool[Tensor, "batch time"]
    takes_prediction: Bool[Tensor, "batch time"]
    prediction_uniform: Float[Tensor, "batch time"]
    mixture_uniform: Float[Tensor, "batch time k"] | None = None  # for a learned mixture of neighbors
    changed_targets: Bool[Tensor, "batch time"] | None = None  # under `replace="targets"`
    prediction_capacity: int | None = None  # static shapes, where a GPU should not be waited for
    neighbor_capacity: int | None = None

    def inputs(self, predictions: Int[Tensor, "batch time"]) -> Int[Tensor, "batch time"]:
        """x, given the model's predictions of each input (Eq. 6)."""
        return mix_inputs(self.gold, predictions, self.neighbors, self.takes_prediction, self.takes_neighbor)

    def replaced(self) -> tuple[Int[Tensor, ""], Int[Tensor, ""]]:
        """How many tokens are predictions, and how many a neighbor other than themselves; counted on the device."""
        if self.changed_targets is not None:
            return self.takes_prediction.sum(), self.changed_targets.sum()
        return self.takes_prediction.sum(), (self.takes_neighbor & (self.neighbors != self.gold)).sum()

    def of_rows(self, rows: Int[Tensor, " rows"] | slice) -> "Choice":
        """The choice for some of the rows.

        Room for the claims of all rows is enough for those of a slice. Other rows are chosen by the data: shapes
        depend on it then, and no capacity is kept.
        """
        parts = {item.name: getattr(self, item.name) for item in fields(self)}
        chosen: dict[str, Any] = {
            name: part[rows] for name, part in parts.items() if isinstance(part, Tensor)
        }
        if not isinstance(rows, slice):
            chosen |= {"prediction_capacity": None, "neighbor_capacity": None}
        return replace(self, **chosen)

    def with_gold_start(self) -> "Choice":
        """The same with no prediction in the first column, where the text starts and nothing precedes it."""
        takes_prediction = self.takes_prediction.clone()
        takes_prediction[:, 0] = False
        return replace(self, takes_prediction=takes_prediction)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which of the paper's readings a policy follows: docs/paper.md#granularity, #replace, #eq-4, #predictions."""

    granularity: str = "token"  # token | position | sequence
    replace: str = "inputs"  # inputs | targets
    draw: str = "sample"  # sample | centroid
    predict: str = "sample"  # sample | greedy


@dataclass(eq=False, kw_only=True)
class InputPolicy:
    """Chooses each window's inputs and targets among gold tokens, proposals and the model's predictions.

    All methods of the paper are this one with parts left out: no proposal and no predictions is teacher forcing,
    a neighbor table is NNRS, predictions are scheduled sampling, both are SS-NNRS.
    """

    proposal: Proposal | None = None
    prediction_rate: Schedule | None = None
    neighbor_rate: Schedule | None = None
    controller: TemperatureController | None = None
    replaceable: Bool[Tensor, " vocab"]  # which tokens any proposal may replace
    token_weights: Float[Tensor, " vocab"]  # how often each of those is met in training
    reading: Reading = field(default_factory=Reading)
    by_previous: bool = False  # propose from the row of the token *before* the one replaced

    def __post_init__(self) -> None:
        self.temperature_state = NO_TEMPERATURE
        self.learned: dict[str, nn.Parameter] = {}  # what the training loss teaches beside the model

    @property
    def temperature_state(self) -> TemperatureState:
        """τ of this epoch and what moves it.

        Set to what a run without neighbors saved, it is that of a start: nothing would improve on a best of 0.
        """
        return self._temperature_state

    @temperature_state.setter
    def temperature_state(self, state: TemperatureState) -> None:
        if self.controller and state == NO_TEMPERATURE:
            state = self.controller.start()
        self._temperature_state = state

    @property
    def temperature(self) -> float:
        """τ of this epoch."""
        return self.temperature_state.temperature

    @property
    def table(self) -> NeighborTable | None:
        """The neighbor table, where the proposals come from one."""
        return self.proposal if isinstance(self.proposal, NeighborTable) else None

    def rates(self, progress: float) -> Rates:
        """ε and γ at this progress; 0 for what the method does not use."""
        return Rates(
            prediction=self.prediction_rate(progress) if self.prediction_rate else 0.0,
            neighbor=self.neighbor_rate(progress) if self.neighbor_rate and self.proposal else 0.0,
        )

    def choose(self, window: Window, rates: Rates, random: Random) -> Choice:
        """All that is random about this window's inputs, drawn and settled."""
        batch, time = window.inputs.shape
        shared = draw_shape(self.reading.granularity, batch, time)
        prediction_draw, neighbor_draw, coin = random.uniform(3, *shared)
        prediction_uniform = random.uniform(batch, time)
        in_targets = self.reading.replace == "targets"
        scored = window.scored  # where nothing is learned, nothing is replaced
        originals = torch.where(scored, window.targets, window.inputs) if in_targets else window.inputs
        neighbors, possible, mixture_uniform = self._propose(window, originals, rates, random)
        wants_neighbor = (neighbor_draw < rates.neighbor) & possible & scored
        targets = torch.where(wants_neighbor, neighbors, window.targets) if in_targets else window.targets
        takes_prediction, takes_neighbor = settle_claims(
            (prediction_draw < rates.prediction) & scored,
            torch.zeros_like(wants_neighbor) if in_targets else wants_neighbor,
            (coin < 0.5).expand(batch, time),
        )
        return Choice(
            gold=window.inputs,
            targets=targets,
            neighbors=neighbors,
            takes_neighbor=takes_neighbor,
            takes_prediction=takes_prediction,
            prediction_uniform=prediction_uniform,
            mixture_uniform=mixture_uniform,
            changed_targets=targets != window.targets if in_targets else None,
            prediction_capacity=self._capacity(window, rates.prediction),
            neighbor_capacity=self._capacity(window, rates.neighbor),
        )

    def vectors(
        self, embed: Embed, inputs: Int[Tensor, "batch time"], choice: Choice
    ) -> Float[Tensor, "batch time dim"]:
        """The input vectors: embeddings of `inputs`, or a mixture of the neighbors' where one is asked for."""
        vectors = embed(inputs)
        if self.reading.draw == "sample" or self.table is None or self.table.k == 0:
            return vectors
        positions = positions_of(choice.takes_neighbor, choice.neighbor_capacity)
        rows = take(choice.gold, positions)
        weights = neighbor_probabilities(self.table.similarities[rows], self.temperature)
        return put(vectors, positions, centroid(weights, embed(self.table.ids[rows])))

    def end_epoch(self, valid_perplexity: float) -> None:
        """Moves τ (Eq. 5)."""
        if self.controller:
            self.temperature_state = self.controller.update(self.temperature_state, valid_perplexity)

    def effective_neighbors(self) -> float | None:
        """exp(entropy) of Ñ, token-weighted; None where proposals come from no table."""
        if self.table is None:
            return None
        return effective_neighbors(self.table.similarities, self.temperature, self.token_weights)

    def _propose(
        self, window: Window, originals: Tensor, rates: Rates, random: Random
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Proposals, where there is one, and the random numbers that a mixture is to be made with later."""
        if self.proposal is None or rates.neighbor == 0.0:
            return originals, torch.zeros_like(originals, dtype=torch.bool), None
        before = window.inputs if self.reading.replace == "targets" else window.previous
        rows = before if self.by_previous else originals
        possible = self.replaceable[originals] & self.proposal.replaceable[rows]
        return self.proposal.draw(rows, random.uniform(*rows.shape), self.temperature), possible, None

    def _capacity(self, window: Window, rate: float) -> int | None:
        if not window.inputs.is_cuda:
            return None
        return capacity_for(rate, self.reading.granularity, *window.inputs.shape)


def take(values: Tensor, positions: Tensor) -> Tensor:
    """Flat values at positions; padding positions read the last one, and their result is never used."""
    return values.flatten()[positions.clamp(max=values.numel() - 1)]


def put(vectors: Tensor, positions: Tensor, new: Tensor) -> Tensor:
    """`vectors` with `new` at the flat positions; padding positions fall into a row that is cut off."""
    flat = vectors.flatten(0, -2)
    room = torch.cat([flat, flat.new_zeros(1, flat.shape[-1])])
    return room.index_copy(0, positions, new.to(flat.dtype))[:-1].view_as(vectors)
