"""LSTM and GRU language models.

Each layer is a module of its own, so that masks given from outside can act between layers while torch's fused
kernels still run whole windows. (A time-major layout inside was measured and gained nothing.)
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nnrs.models.base import Masks, ModelConfig, SequenceModel, State, drop

# How torch's functions run a layer: with biases, one of them, no dropout, differentiable, one direction, batch first.
HOW = (True, 1, 0.0, True, False, True)


class RecurrentModel(SequenceModel):
    """A stack of recurrent layers; dropout on the word vectors and after each layer."""

    layer_type: type[nn.LSTM] | type[nn.GRU]
    states_per_layer: int

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        layers = [self.layer_type(config.units, config.units, batch_first=True) for _ in range(config.layers)]
        self.layers = nn.ModuleList(layers)

    @property
    def recurrent_weights(self) -> tuple[nn.Parameter, ...]:
        """One for each layer."""
        return tuple(layer.get_parameter("weight_hh_l0") for layer in self.layers)

    @property
    def dropout_places(self) -> int:
        """One for the word vectors and one for each layer."""
        return 1 + self.config.layers

    def init_state(self, batch_size: int) -> State:
        """Zeros, (batch, units) each."""
        zeros = self.output_bias.new_zeros(batch_size, self.config.units)
        return (zeros,) * (self.states_per_layer * self.config.layers)

    def encode(
        self, vectors: Float[Tensor, "batch time hidden"], state: State, masks: Masks | None
    ) -> tuple[Float[Tensor, "batch time hidden"], State]:
        """The last layer's outputs, and each layer's state after the last input, first layer first."""
        hidden = drop(vectors, masks, 0).to(self.output_bias.dtype)
        after: State = ()
        # Under autocast cuDNN's recurrent kernels run in float16 even where bfloat16 was asked for, and the
        # gradients of a mean loss can underflow there. They stay in the parameters' own precision instead.
        with torch.autocast(vectors.device.type, enabled=False):
            for index, layer in enumerate(self.layers):
                before = state[index * self.states_per_layer : (index + 1) * self.states_per_layer]
                dropped = self._dropped[index] if self._dropped else None
                hidden, layer_state = self.run_layer(layer, hidden, before, dropped)
                hidden = drop(hidden, masks, index + 1)
                after += layer_state
        return hidden, after

    @abstractmethod
    def run_layer(
        self, layer: nn.Module, inputs: Tensor, state: State, dropped: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """The outputs of one layer and its state after the last input; torch wants (1, batch, units).

        `dropped` are recurrent weights in place of its own.
        """


class LSTM(RecurrentModel):
    """A stack of LSTM layers; the state is (h1, c1, h2, c2, ...)."""

    squares_per_layer = 8  # four gates, of input and of state
    layer_type = nn.LSTM
    states_per_layer = 2

    def run_layer(
        self, layer: nn.Module, inputs: Tensor, state: State, dropped: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """The outputs of one LSTM layer, and its (h, c)."""
        before = state[0].unsqueeze(0), state[1].unsqueeze(0)
        if dropped is None:
            outputs, (hidden, cell) = layer(inputs, before)
        else:
            outputs, hidden, cell = _run(torch.lstm, layer, inputs, before, dropped)
        return outputs, (hidden.squeeze(0), cell.squeeze(0))


class GRU(RecurrentModel):
    """A stack of GRU layers; the state is (h1, h2, ...)."""

    squares_per_layer = 6  # three gates, of input and of state
    layer_type = nn.GRU
    states_per_layer = 1

    def run_layer(
        self, layer: nn.Module, inputs: Tensor, state: State, dropped: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """The outputs of one GRU layer, and its (h,)."""
        before = state[0].unsqueeze(0)
        if dropped is None:
            outputs, hidden = layer(inputs, before)
        else:
            outputs, hidden = _run(torch.gru, layer, inputs, before, dropped)
        return outputs, (hidden.squeeze(0),)


def _run(
    function: Callable[..., tuple[Tensor, ...]],
    layer: nn.Module,
    inputs: Tensor,
    before: Tensor | tuple[Tensor, Tensor],
    dropped: Tensor,
) -> tuple[Tensor, ...]:
    """A layer by torch's function for it, with other recurrent weights than its own."""
    w_in, b_in, b_rec = (layer.get_parameter(f"{name}_l0") for name in ("weight_ih", "bias_ih", "bias_hh"))
    with warnings.catch_warnings() if inputs.is_cuda else nullcontext():
        if inputs.is_cuda:
            warnings.filterwarnings("ignore", "RNN module weights")  # which cuDNN copies together, as it must
        return function(inputs, before, [w_in, dropped, b_in, b_rec], *HOW)
