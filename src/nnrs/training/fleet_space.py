"""What a batched model holds of one window: the activations of every run."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large a batched model is."""

    runs: int
    units: int
    layers: int  # each with an input of its own: a stack's, or a highway network's one
    states: int  # of a time step: one for each layer of a stack, or for each micro-layer of a highway network
    gates: int  # vectors that an input is projected to
    apart: bool  # whether the gradients of the recurrent part are not those of the input projection
    head_rows: int
    device: torch.device


@dataclass
class Workspace:
    """The activations of a window of every run. A shorter window uses the first of its rows."""

    sizes: Sizes
    batch: int
    time: int
    dtype: torch.dtype
    trains: bool
    inputs: Tensor = field(init=False)
    layer_inputs: list[Tensor] = field(init=False)
    gates: list[Tensor] = field(init=False)  # a single one where nothing is kept
    extra: list[Tensor] = field(init=False)
    hidden: list[Tensor] = field(init=False)
    cell: list[Tensor] = field(init=False)
    outputs: Tensor = field(init=False)
    logits: Tensor = field(init=False)
    losses: Tensor = field(init=False)
    gradient: Tensor = field(init=False)  # of the rows on their way down; where it trains
    carried_gradient: Tensor = field(init=False)  # of the state, on its way back in time; where it trains
    recurrent: list[Tensor] = field(init=False)  # weights in place of the model's, where some are dropped

    def __post_init__(self) -> None:
        sizes, rows = self.sizes, self.batch * self.time
        units = sizes.units

        def make(*shape: int, dtype: torch.dtype = self.dtype) -> Tensor:
            return torch.zeros(sizes.runs, *shape, dtype=dtype, device=sizes.device)

        self.inputs = make(rows, dtype=torch.int64)
        self.layer_inputs = [make(rows, units) for _ in range(sizes.layers if self.trains else 1)]
        self.gates = [make(rows, sizes.gates * units) for _ in range(sizes.states if self.trains else 1)]
        self.extra = [torch.zeros_like(gates) for gates in self.gates] if sizes.apart else []
        after = rows + self.batch  # the state before the window stands first
        self.hidden = [make(after, units) for _ in range(sizes.states)]
        self.cell = [make(after, units, dtype=torch.float32) for _ in range(sizes.states)]
        self.outputs = make(after, units) if self.trains else self.hidden[-1]
        self.logits = make(rows, sizes.head_rows)
        self.losses = make(rows, dtype=torch.float32)
        self.recurrent = []
        if self.trains:
            self.gradient = make(rows, units)
            self.carried_gradient = make(self.batch, units, dtype=torch.float32)

    def carry(self, time: int) -> None:
        """Make the state after the window the state before the next."""
        last = slice(time * self.batch, (time + 1) * self.batch)
        for part in {id(part): part for part in (*self.hidden, *self.cell, self.outputs)}.values():
            part[:, : self.batch].copy_(part[:, last])

    def forget(self) -> None:
        """Begin a text."""
        for part in (*self.hidden, *self.cell, self.outputs):
            part[:, : self.batch].zero_()
