"""The recurrent highway network (Zilly et al. 2017, arXiv 1607.03474): one layer, deep within a time step."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from nnrs.models.base import Masks, ModelConfig, SequenceModel, State, drop
from nnrs.seeding import Random

GATE_BIAS = -2.0  # the transform gates start nearly closed, so that the state is carried at first


class Highway(SequenceModel):
    """Within a time step the state passes `layers` highway micro-layers; the state is (s,).

    Micro-layer l proposes h = tanh(R_h s + b_h) and takes the share t = σ(R_t s + b_t) of it:
    s ← h·t + s·(1 - t), the paper's coupled carry gate. The first one also sees the input, W_h x and W_t x.
    Dropout acts on the word vectors and on the output.
    """

    squares_per_layer = 2  # R_h and R_t
    dropout_places = 2

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        units = config.units
        self.input = nn.Linear(units, 2 * units, bias=False)  # rows: W_h, then W_t
        self.layers = nn.ModuleList(
            nn.Linear(units, 2 * units) for _ in range(config.layers)
        )  # R_h, then R_t

    def initialise(self, random: Random) -> None:
        """Draw every parameter from `random`, but start the biases at 0 and at GATE_BIAS."""
        super().initialise(random)
        for layer in self.layers:
            proposal, gate = layer.get_parameter("bias").detach().chunk(2)
            proposal.zero_()
            gate.fill_(GATE_BIAS)

    @property
    def recurrent_weights(self) -> tuple[nn.Parameter, ...]:
        """One for each micro-layer."""
        return tuple(layer.get_parameter("weight") for layer in self.layers)

    def init_state(self, batch_size: int) -> State:
        """Zeros, (batch, units)."""
        return (self.output_bias.new_zeros(batch_size, self.config.units),)

    def encode(
        self, vectors: Float[Tensor, "batch time hidden"], state: State, masks: Masks | None
    ) -> tuple[Float[Tensor, "batch time hidden"], State]:
        """The state after each input, with dropout; and the last one, without."""
        projected = self.input(drop(vectors, masks, 0))  # all time steps at once: the loop is left with R s
        biases = [layer.get_parameter("bias") for layer in self.layers]
        parameters = list(zip(self._dropped or self.recurrent_weights, biases, strict=True))
        (current,) = state
        states = []
        for projection in projected.unbind(1):
            for depth, (weight, bias) in enumerate(parameters):
                mixed = F.linear(current, weight, bias)
                mixed = mixed + projection if depth == 0 else mixed
                proposal, gate = mixed.to(current.dtype).chunk(2, dim=-1)  # autocast multiplies in bfloat16
                current = torch.lerp(current, proposal.tanh(), gate.sigmoid())  # s + t (h - s)
            states.append(current)
        return drop(torch.stack(states, dim=1), masks, 1), (current,)
