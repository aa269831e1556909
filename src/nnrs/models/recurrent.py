"""LSTM and GRU language models.

Each layer is a module of its own, so that masks given from outside can act between layers while torch's fused
kernels still run whole windows. (A time-major layout inside was measured and gained nothing.)
"""

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nnrs.models.base import Masks, ModelConfig, SequenceModel, State, drop


class RecurrentModel(SequenceModel):
    """A stack of recurrent layers; dropout on the word vectors and after each layer."""

    layer_type: type[nn.LSTM] | type[nn.GRU]
    states_per_layer: int

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        layers = [self.layer_type(config.units, config.units, batch_first=True) for _ in range(config.layers)]
        self.layers = nn.ModuleList(layers)

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
                hidden, layer_state = self.run_layer(layer, hidden, before)
                hidden = drop(hidden, masks, index + 1)
                after += layer_state
        return hidden, after

    @abstractmethod
    def run_layer(self, layer: nn.Module, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """The outputs of one layer and its state after the last input; torch wants (1, batch, units)."""


class LSTM(RecurrentModel):
    """A stack of LSTM layers; the state is (h1, c1, h2, c2, ...)."""

    layer_type = nn.LSTM
    states_per_layer = 2

    def run_layer(self, layer: nn.Module, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """The outputs of one LSTM layer, and its (h, c)."""
        outputs, (hidden, cell) = layer(inputs, (state[0].unsqueeze(0), state[1].unsqueeze(0)))
        return outputs, (hidden.squeeze(0), cell.squeeze(0))


class GRU(RecurrentModel):
    """A stack of GRU layers; the state is (h1, h2, ...)."""

    layer_type = nn.GRU
    states_per_layer = 1

    def run_layer(self, layer: nn.Module, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """The outputs of one GRU layer, and its (h,)."""
        outputs, hidden = layer(inputs, state[0].unsqueeze(0))
        return outputs, (hidden.squeeze(0),)
