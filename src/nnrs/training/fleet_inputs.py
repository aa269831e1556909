"""The inputs of every run of a fleet: random numbers, Eq. 6 and predictions, each under its run's own policy."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.batches import Window
from nnrs.neighbors.table import NeighborTable
from nnrs.philox import fill
from nnrs.policies.base import Choice, InputPolicy, Rates
from nnrs.policies.functional import GRANULARITIES, capacity_for
from nnrs.policies.gumbel import GumbelPolicy
from nnrs.seeding import Drawn, Stream
from nnrs.training.fleet_model import FleetModel
from nnrs.training.fleet_space import Workspace
from nnrs.training.kernels import choice as choosing
from nnrs.training.kernels import softmax
from nnrs.training.kernels.rows import copy_rows

CAPACITY_STEP = 64  # predictions are made in multiples of so many: a graph serves until the rate outgrows it


@dataclass(eq=False)
class FleetInputs:
    """What the windows of all runs are made of.

    A run whose proposals come from a table (or that has none) is served by one kernel for all; the others by their
    policy itself, one by one. `mixing` runs feed vectors of their own making (centroids, learned mixtures).
    """

    policies: Sequence[InputPolicy]
    seeds: Int[Tensor, " runs"]
    batch: int
    time: int

    def __post_init__(self) -> None:
        device, runs, rows = self.seeds.device, len(self.policies), self.batch * self.time
        self._served = [_from_table(policy) for policy in self.policies]
        self.mixing = [run for run, policy in enumerate(self.policies) if _mixes(policy)]
        self.plain = _flags([run not in self.mixing for run in range(runs)], device)
        self._settings = torch.tensor(
            [_settings(policy, served) for policy, served in zip(self.policies, self._served, strict=True)],
            dtype=torch.int32,
            device=device,
        )
        self._table = _stacked(self.policies, self._served)
        self._greedy = _flags([policy.reading.predict == "greedy" for policy in self.policies], device)
        self.rates = torch.zeros(runs, 2, device=device)
        self.temperatures = torch.ones(runs, device=device)
        numbers = max(rows * _numbers_per_token(policy) for policy in self.policies)
        self._words = torch.zeros(runs, numbers // 2 + 8, dtype=torch.int64, device=device)
        self.targets = torch.zeros(runs, rows, dtype=torch.int64, device=device)
        self.claims = torch.zeros(runs, rows, dtype=torch.int8, device=device)
        self.replaced = torch.zeros_like(self.claims)
        self._uniforms = torch.zeros(runs, rows, device=device)
        self._choices: dict[int, Choice] = {}
        self._epoch_rates: list[Rates] = [Rates()] * runs

    def set_epoch(self, rates: Sequence[Rates]) -> None:
        """The rates of an epoch; each policy's temperature is looked up."""
        self._epoch_rates = list(rates)
        self.rates.copy_(torch.tensor([(rate.prediction, rate.neighbor) for rate in rates]))
        self.temperatures.copy_(torch.tensor([policy.temperature for policy in self.policies]))

    def fixed(self) -> tuple[object, ...]:
        """What a captured graph has built in: it is captured anew when this changes."""
        own = [run for run, served in enumerate(self._served) if not served]
        return tuple((self._epoch_rates[run], self.policies[run].temperature) for run in own)

    def capacity(self) -> int:
        """Room for each run's predictions in this epoch; 0 where none predicts."""
        rates = zip(self.policies, self._epoch_rates, strict=True)
        rooms = [
            capacity_for(rate.prediction, policy.reading.granularity, self.batch, self.time)
            for policy, rate in rates
            if rate.prediction > 0
        ]
        return min(-(-max(rooms, default=0) // CAPACITY_STEP) * CAPACITY_STEP, self.batch * self.time)

    def choose(
        self, window: Window, step: Int[Tensor, ""], fresh: Int[Tensor, ""], inputs: Int[Tensor, "runs rows"]
    ) -> None:
        """Settle everything random about a window, and write its inputs, gold where a prediction is to come.

        `fresh` is 1 where a text begins: its first input is gold.
        """
        fill(self._words, self.seeds, step, Stream.DRAWS)
        batch, time = window.inputs.shape
        rows = batch * time
        ids = (window.inputs, window.targets, window.previous)
        out = (inputs, self.targets, self.claims, self._uniforms, self.replaced)
        choosing.choose(
            ids, self._words, fresh, self._settings, self.rates, self.temperatures, self._table, out
        )
        for run, served in enumerate(self._served):
            if not served:
                self._choose_alone(run, window, fresh, inputs[run, :rows])

    def _choose_alone(self, run: int, window: Window, fresh: Tensor, inputs: Tensor) -> None:
        choice = self.policies[run].choose(window, self._epoch_rates[run], Drawn(self._words[run]))
        self._choices[run] = choice
        batch, time = window.inputs.shape
        rows = batch * time
        takes = choice.takes_prediction.clone()
        takes[:, 0] &= fresh == 0
        inputs.copy_(choice.inputs(choice.gold).T.flatten())
        self.targets[run, :rows].copy_(choice.targets.T.flatten())
        self.claims[run, :rows].copy_(takes.T.flatten())
        self._uniforms[run, :rows].copy_(choice.prediction_uniform.T.flatten())
        replaced = choice.takes_neighbor & (choice.neighbors != choice.gold)
        changed = replaced if choice.changed_targets is None else choice.changed_targets
        self.replaced[run, :rows].copy_(changed.T.flatten())

    def mix(
        self, run: int, words: Float[Tensor, "vocab units"], inputs: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows units"]:
        """The input vectors of a `mixing` run; `inputs` are its rows, `words` its word vectors."""
        choice = self._choices[run]
        batch, time = choice.gold.shape

        def embed(ids: Tensor) -> Tensor:
            return torch.nn.functional.embedding(ids, words)

        vectors = self.policies[run].vectors(embed, inputs.view(time, batch).T, choice)
        return vectors.transpose(0, 1).flatten(0, 1)

    def predict(
        self,
        model: FleetModel,
        space: Workspace,
        time: int,
        capacity: int,
        wanted: Int[Tensor, " runs"],
        changed: Int[Tensor, " runs"],
    ) -> None:
        """Write the predictions of the `wanted` runs into `space.inputs`; the output layer sees no other position."""
        rows = time * self.batch
        positions = self.seeds.new_empty(len(self.policies), capacity)
        choosing.claimed_positions(self.claims[:, :rows], positions)
        before = space.outputs.new_empty(len(self.policies), capacity, model.sizes.units)
        copy_rows(before, space.outputs, positions)  # row i of the outputs precedes input i
        logits = torch.bmm(before, model.head(model.parameters.rounded).transpose(1, 2))
        softmax.predict(
            logits,
            model.head_bias,
            positions,
            self._uniforms,
            self._greedy,
            wanted,
            space.inputs[:, :rows],
            changed,
        )


def _flags(flags: Sequence[bool], device: torch.device) -> Int[Tensor, " runs"]:
    return torch.tensor(flags, dtype=torch.int8, device=device)


def _from_table(policy: InputPolicy) -> bool:
    """Whether the kernel for all can serve this policy."""
    simple = type(policy) is InputPolicy and policy.reading.draw == "sample"
    return simple and isinstance(policy.proposal, NeighborTable | None)


def _mixes(policy: InputPolicy) -> bool:
    has_table = policy.table is not None and policy.table.k > 0
    return has_table and (isinstance(policy, GumbelPolicy) or policy.reading.draw == "centroid")


def _numbers_per_token(policy: InputPolicy) -> int:
    """An upper bound of the random numbers that `choose` draws."""
    return 5 + (policy.proposal.k if isinstance(policy, GumbelPolicy) else 1)


def _settings(policy: InputPolicy, served: bool) -> tuple[int, ...]:
    rows_share, steps_share = GRANULARITIES[policy.reading.granularity]
    in_targets = policy.reading.replace == "targets"
    return tuple(int(flag) for flag in (rows_share, steps_share, in_targets, policy.by_previous, served))


def _stacked(
    policies: Sequence[InputPolicy], served: Sequence[bool]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Similarities and ids of every run's table, (runs, vocab, k), and which words each replaces and proposes for."""
    tables = [policy.table if used else None for policy, used in zip(policies, served, strict=True)]
    replaceable = torch.stack([policy.replaceable for policy in policies]).to(torch.int8)
    proposing = torch.zeros_like(replaceable)
    k = max([table.k for table in tables if table], default=0) or 1
    shape = (*replaceable.shape, k)
    similarities = torch.full(shape, -torch.inf, dtype=torch.float32, device=replaceable.device)
    ids = torch.zeros(shape, dtype=torch.int64, device=replaceable.device)
    for run, table in enumerate(tables):
        if table:
            similarities[run, :, : table.k], ids[run, :, : table.k] = table.similarities, table.ids
            proposing[run] = table.replaceable
    return similarities, ids, replaceable, proposing
