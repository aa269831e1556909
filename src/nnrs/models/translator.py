"""An encoder and a decoder with attention: what a source says is part of the state that a target begins with.

So a translator is a sequence model like any other. Its attention does not feed back into the layer that asks (no
"input feeding", Luong et al. 2015), so that a whole target is still read in one pass.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nnrs.batches import IGNORED, Window
from nnrs.errors import ConfigError
from nnrs.models.base import ALL, Masks, ModelConfig, State, drop
from nnrs.models.recurrent import GRU, LSTM, RecurrentModel
from nnrs.seeding import Random


def attend(
    queries: Float[Tensor, "batch time hidden"],
    memory: Float[Tensor, "batch source_time hidden"],
    words: Bool[Tensor, "batch source_time"],
) -> Float[Tensor, "batch time hidden"]:
    """For each query the mean of the memory where there are words, weighted by the softmax of their products.

    >>> memory = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]]])
    >>> attend(torch.zeros(1, 1, 2), memory, torch.tensor([[True, True, False]]))
    tensor([[[0.5000, 0.5000]]])
    """
    scores = queries @ memory.transpose(1, 2)
    return F.softmax(scores.masked_fill(~words.unsqueeze(1), -torch.inf), dim=-1) @ memory


def reversal(words: Bool[Tensor, "batch time"]) -> Int[Tensor, "batch time"]:
    """Where each position's counterpart is when every row's words are read backwards; what fills it up stays.

    >>> reversal(torch.tensor([[True, True, True, False]]))
    tensor([[2, 1, 0, 3]])
    """
    places = torch.arange(words.shape[1], device=words.device)
    return torch.where(words, words.sum(dim=1, keepdim=True) - 1 - places, places)


class Translator(RecurrentModel):
    """A stack of recurrent layers, of which the first asks what a bidirectional encoder made of the source.

    What it is told joins its output and goes through the other layers, each of which adds to it (Wu et al. 2016).
    The state is that of the layers, then the encoder's vectors, then which of them are words.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, source_vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        if config.weight_dropout:
            raise ConfigError("a translator drops no weights: leave --weight-dropout out.")
        if config.units % 2:
            raise ConfigError(
                f"a translator's units must be even: half for each direction, got {config.units}."
            )
        units, half = config.units, config.units // 2
        self.source_embedding = nn.Embedding(source_vocab_size, units)
        kind, layers = self.layer_type, range(config.layers)
        self.ahead = nn.ModuleList(kind(units, half, batch_first=True) for _ in layers)
        self.behind = nn.ModuleList(kind(units, half, batch_first=True) for _ in layers)
        self.bridge = nn.Linear(units, units * self.states_per_layer * config.layers)
        self.query = nn.Linear(units, units, bias=False)
        self.join = nn.Linear(2 * units, units)

    def init_state(self, batch_size: int) -> State:
        """The state of one who has read nothing."""
        memory = self.output_bias.new_zeros(batch_size, 0, self.config.units)
        return (*super().init_state(batch_size), memory, memory.new_zeros(batch_size, 0, dtype=torch.bool))

    def first_state(self, window: Window, random: Random | None, rows: slice = ALL) -> State:
        """The state of one who has read the sources of the window's rows."""
        if window.source is None:
            return self.init_state(len(window.inputs[rows]))
        batch, time = window.source.shape
        masks = self.draw_masks(batch, time, random) if random else None
        return self.read(window.source[rows], masks and tuple(mask[rows] for mask in masks))

    def read(self, source: Int[Tensor, "batch source_time"], masks: Masks | None = None) -> State:
        """The state of one who has read these sources, filled up with IGNORED; dropout as in `encode`."""
        words = source != IGNORED
        hidden = drop(F.embedding(source.clamp(min=0), self.source_embedding.weight), masks, 0)
        hidden = hidden.to(self.output_bias.dtype)
        last = words.sum(dim=1) - 1
        with torch.autocast(source.device.type, enabled=False):
            for index in range(self.config.layers):
                ahead, behind = self._read_layer(index, hidden, words)
                hidden = drop(torch.cat([ahead, behind], dim=-1), masks, index + 1)
            rows = torch.arange(len(source), device=source.device)
            ends = torch.cat([ahead[rows, last], behind[:, 0]], dim=-1)
            first = self.bridge(ends).tanh().chunk(self.states_per_layer * self.config.layers, dim=-1)
        return (*(part.contiguous() for part in first), hidden, words)

    def encode(
        self, vectors: Float[Tensor, "batch time hidden"], state: State, masks: Masks | None
    ) -> tuple[Float[Tensor, "batch time hidden"], State]:
        """The last layer's outputs, and the state after the last input; what was read stays as it is."""
        *before, memory, words = state
        hidden = drop(vectors, masks, 0).to(self.output_bias.dtype)
        after: State = ()
        with torch.autocast(vectors.device.type, enabled=False):  # see RecurrentModel
            for index, layer in enumerate(self.layers):
                own = tuple(before[index * self.states_per_layer : (index + 1) * self.states_per_layer])
                outputs, layer_state = self.run_layer(layer, hidden, own)
                if index == 0:
                    told = attend(self.query(outputs), memory, words)
                    hidden = drop(self.join(torch.cat([outputs, told], dim=-1)).tanh(), masks, 1)
                else:
                    hidden = hidden + drop(outputs, masks, index + 1)
                after += layer_state
        return hidden, (*after, memory, words)

    def _read_layer(self, index: int, hidden: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of one layer in both directions. What fills a row up comes last in either: no word hears it."""
        nothing = (hidden.new_zeros(len(hidden), self.config.units // 2),) * self.states_per_layer
        turned = reversal(words).unsqueeze(-1)
        ahead, _ = self.run_layer(self.ahead[index], hidden, nothing)
        backwards = hidden.gather(1, turned.expand_as(hidden))
        behind, _ = self.run_layer(self.behind[index], backwards, nothing)
        return ahead, behind.gather(1, turned.expand_as(behind))


class LSTMTranslator(Translator, LSTM):
    """Encoder and decoder of LSTM layers."""


class GRUTranslator(Translator, GRU):
    """Encoder and decoder of GRU layers."""
