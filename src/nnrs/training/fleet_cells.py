"""The recurrent layers of every run at once, by the kind of model: forward, backward and what they carry on."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from nnrs.training.fleet_parameters import Parameters
from nnrs.training.fleet_space import Workspace
from nnrs.training.kernels.gru import gru_backward, gru_forward
from nnrs.training.kernels.highway import highway_backward, highway_forward, states_before
from nnrs.training.kernels.lstm import lstm_backward, lstm_forward


class Cell(ABC):
    """What one kind of recurrent layer computes, with the parameters of every run."""

    gates: ClassVar[int]  # vectors that an input is projected to
    recurrent_name: ClassVar[str]  # of the weights of a state, by its number
    apart: ClassVar[bool] = False  # whether the recurrent part has gradients of its own

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters

    @abstractmethod
    def forward(self, space: Workspace, weights: Tensor, layer: int, given: Tensor, time: int) -> Tensor:
        """Run a layer on its inputs, and give its states: before the window, then after each step."""

    @abstractmethod
    def backward(self, space: Workspace, layer: int, d: Tensor, time: int) -> None:
        """From the gradient `d` of a layer's outputs to those of its parameters, and of its inputs, in `d`."""

    def state(self, space: Workspace) -> list[Tensor]:
        """What is carried from window to window, in the order of the model's own state, not rounded."""
        return space.cell

    def round_state(self, space: Workspace) -> None:
        """Have the hidden vectors follow the state, where that was written from outside."""
        for hidden, cell in zip(space.hidden, space.cell, strict=True):
            hidden[:, : space.batch].copy_(cell[:, : space.batch])

    def _project(
        self, space: Workspace, weights: Tensor, name: str, layer: int, given: Tensor, time: int
    ) -> Tensor:
        """The input projections of a window, where the activations will be."""
        gates = space.gates[layer if space.trains else 0][:, : space.batch * time]
        torch.bmm(given, self.parameters.of(weights, name).transpose(1, 2), out=gates)
        return gates

    def _project_backward(self, space: Workspace, name: str, layer: int, dgates: Tensor, d: Tensor) -> None:
        held, rows = self.parameters, dgates.shape[1]
        given = space.layer_inputs[layer][:, :rows]
        torch.bmm(dgates.transpose(1, 2), given, out=held.of(held.gradients, name))
        torch.bmm(dgates, held.of(held.rounded, name), out=d)

    def recurrent(self, buffer: Tensor, state: int) -> Tensor:
        """The recurrent weights of a state, of every run, in one of the parameters' buffers."""
        return self.parameters.of(buffer, self.recurrent_name.format(state))

    def _used(self, space: Workspace, weights: Tensor, state: int) -> Tensor:
        """The same as a window uses them."""
        return space.recurrent[state] if space.recurrent else self.recurrent(weights, state)

    def _recurrent_gradients(self, state: int, bias: str, dgates: Tensor, before: Tensor) -> None:
        held, rows = self.parameters, dgates.shape[1]
        torch.bmm(dgates.transpose(1, 2), before[:, :rows], out=self.recurrent(held.gradients, state))
        held.of(held.gradients, bias).copy_(dgates.sum(1))


class Stacked(Cell):
    """A stack of layers as torch has them, with two biases each."""

    recurrent_name = "layers.{}.weight_hh_l0"

    def _weights(self, space: Workspace, weights: Tensor, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """The recurrent weights, and both biases in float32."""
        values = self.parameters.values
        b_in, b_rec = (self.parameters.of(values, _name(layer, part)) for part in ("bias_ih", "bias_hh"))
        return self._used(space, weights, layer), b_in, b_rec

    def _gradients(self, space: Workspace, layer: int, dgates: Tensor, drecurrent: Tensor, d: Tensor) -> None:
        self._recurrent_gradients(layer, _name(layer, "bias_hh"), drecurrent, space.hidden[layer])
        gradients = self.parameters.gradients
        self.parameters.of(gradients, _name(layer, "bias_ih")).copy_(dgates.sum(1))
        self._project_backward(space, _name(layer, "weight_ih"), layer, dgates, d)


class LSTMCell(Stacked):
    """Gates i, f, g, o; the state is (h1, c1, h2, c2, ...)."""

    gates = 4

    def forward(self, space: Workspace, weights: Tensor, layer: int, given: Tensor, time: int) -> Tensor:
        """Run a layer on its inputs."""
        gates = self._project(space, weights, _name(layer, "weight_ih"), layer, given, time)
        hidden, cell = space.hidden[layer], space.cell[layer]
        held = self._weights(space, weights, layer)
        lstm_forward(gates, hidden, cell, *held, batch=space.batch, time=time, keep=space.trains)
        return hidden

    def backward(self, space: Workspace, layer: int, d: Tensor, time: int) -> None:
        """From the gradient of a layer's outputs to those of its parameters and inputs."""
        dgates, cell = space.gates[layer][:, : space.batch * time], space.cell[layer]
        w_rec, _, _ = self._weights(space, self.parameters.rounded, layer)
        lstm_backward(dgates, cell, d, space.carried_gradient, w_rec, batch=space.batch, time=time)
        self._gradients(space, layer, dgates, dgates, d)

    def state(self, space: Workspace) -> list[Tensor]:
        """Hidden vectors, which the products have read rounded, and cells."""
        return [part for layer in zip(space.hidden, space.cell, strict=True) for part in layer]

    def round_state(self, space: Workspace) -> None:
        """Nothing: both parts are written as they are."""


class GRUCell(Stacked):
    """Gates r, z, n; the state is (h1, h2, ...)."""

    gates = 3
    apart = True

    def forward(self, space: Workspace, weights: Tensor, layer: int, given: Tensor, time: int) -> Tensor:
        """Run a layer on its inputs."""
        gates = self._project(space, weights, _name(layer, "weight_ih"), layer, given, time)
        hidden, cell, extra = (
            space.hidden[layer],
            space.cell[layer],
            space.extra[layer if space.trains else 0],
        )
        held = self._weights(space, weights, layer)
        gru_forward(gates, extra, hidden, cell, *held, batch=space.batch, time=time, keep=space.trains)
        return hidden

    def backward(self, space: Workspace, layer: int, d: Tensor, time: int) -> None:
        """From the gradient of a layer's outputs to those of its parameters and inputs."""
        rows, cell = space.batch * time, space.cell[layer]
        dgates, drecurrent = space.gates[layer][:, :rows], space.extra[layer][:, :rows]
        w_rec, _, _ = self._weights(space, self.parameters.rounded, layer)
        carried = space.carried_gradient
        gru_backward(dgates, drecurrent, cell, d, carried, w_rec, batch=space.batch, time=time)
        self._gradients(space, layer, dgates, drecurrent, d)


class HighwayCell(Cell):
    """One layer, whose micro-layers each propose h and take the share t of it; the state is (s,)."""

    gates = 2
    recurrent_name = "layers.{}.weight"

    def forward(self, space: Workspace, weights: Tensor, layer: int, given: Tensor, time: int) -> Tensor:
        """Run the network on its inputs."""
        self._project(space, weights, "input.weight", layer, given, time)
        recurrent, biases = self._weights(space, weights), self._biases(space)
        shape = {"batch": space.batch, "time": time}
        highway_forward(space.gates, space.hidden, space.cell, recurrent, biases, keep=space.trains, **shape)
        return space.hidden[-1]

    def backward(self, space: Workspace, layer: int, d: Tensor, time: int) -> None:
        """From the gradient of the network's outputs to those of its parameters and inputs."""
        batch, weights = space.batch, self._weights(space, self.parameters.rounded)
        dgates = [gates[:, : batch * time] for gates in space.gates]
        highway_backward(dgates, space.cell, d, space.carried_gradient, weights, batch=batch, time=time)
        for depth, before in enumerate(states_before(space.hidden, batch)):
            self._recurrent_gradients(depth, f"layers.{depth}.bias", dgates[depth], before)
        self._project_backward(space, "input.weight", layer, dgates[0], d)

    def state(self, space: Workspace) -> list[Tensor]:
        """The state after the last micro-layer."""
        return space.cell[-1:]

    def _weights(self, space: Workspace, weights: Tensor) -> list[Tensor]:
        return [self._used(space, weights, depth) for depth in range(space.sizes.states)]

    def _biases(self, space: Workspace) -> list[Tensor]:
        values = self.parameters.values
        return [self.parameters.of(values, f"layers.{depth}.bias") for depth in range(space.sizes.states)]


def _name(layer: int, part: str) -> str:
    return f"layers.{layer}.{part}_l0"


CELLS: dict[str, type[Cell]] = {"lstm": LSTMCell, "gru": GRUCell, "highway": HighwayCell}
