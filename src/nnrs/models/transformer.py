"""A small causal transformer decoder with a cache of keys and values, so that one more step stays cheap."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nnrs.models.base import Masks, ModelConfig, SequenceModel, State, drop
from nnrs.seeding import Random

ROTARY_BASE = 10_000.0


def rotate(vectors: Float[Tensor, "*shape time dim"], first: int) -> Float[Tensor, "*shape time dim"]:
    """The vectors turned by their positions first, first + 1, ... (rotary embedding, Su et al. 2021).

    Coordinates i and i + dim/2 are turned together, by position * 10000^(-2i/dim): the product of two turned
    vectors depends on the distance between their positions, not on where the counting began.

    >>> rotate(torch.tensor([[1.0, 0.0]]), first=1)  # (cos 1, sin 1)
    tensor([[0.5403, 0.8415]])
    """
    time, dim = vectors.shape[-2:]
    exact = torch.promote_types(vectors.dtype, torch.float32)  # bfloat16 cannot count past 256
    positions = torch.arange(first, first + time, device=vectors.device, dtype=exact)
    exponents = torch.arange(0, dim, 2, device=vectors.device, dtype=exact) / dim
    angles = torch.outer(positions, ROTARY_BASE**-exponents)
    cos, sin = angles.cos(), angles.sin()
    left, right = vectors.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, left * sin + right * cos), dim=-1).to(vectors.dtype)


def visible_keys(past: int, time: int, context: int, device: torch.device) -> Bool[Tensor, "time keys"]:
    """Which of past + time keys each of the last `time` positions may see: itself and `context` before it.

    >>> visible_keys(past=1, time=2, context=1, device=torch.device("cpu")).int()
    tensor([[1, 1, 0],
            [0, 1, 1]], dtype=torch.int32)
    """
    queries = torch.arange(past, past + time, device=device).unsqueeze(1)
    distance = queries - torch.arange(past + time, device=device)
    return (distance >= 0) & (distance <= context)


class Block(nn.Module):
    """Attention and a two-layer network, each on the normalised stream and added to it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        units = config.units
        self.heads = config.heads
        self.attention_norm = nn.LayerNorm(units)
        self.projection = nn.Linear(units, 3 * units, bias=False)  # rows: queries, keys, values
        self.attended = nn.Linear(units, units, bias=False)
        self.network_norm = nn.LayerNorm(units)
        self.widen = nn.Linear(units, 4 * units, bias=False)
        self.narrow = nn.Linear(4 * units, units, bias=False)

    def attend(
        self, stream: Tensor, keys: Tensor, values: Tensor, visible: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What attention adds to the stream, and the keys and values with the new ones behind the cached."""
        projected = self.projection(self.attention_norm(stream))
        # (batch, time, 3 * units) -> three of (batch, heads, time, dim)
        queries, new_keys, new_values = projected.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        past = keys.shape[2]
        keys = torch.cat(
            (keys, new_keys), dim=2
        )  # not yet rotated: their positions shift as the cache moves on
        values = torch.cat((values, new_values), dim=2)
        mixed = F.scaled_dot_product_attention(
            rotate(queries, past), rotate(keys, 0), values, attn_mask=visible
        )
        return self.attended(mixed.transpose(1, 2).flatten(2)), keys, values

    def forward(
        self, stream: Tensor, keys: Tensor, values: Tensor, visible: Tensor, masks: Masks | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The stream after both halves, and the keys and values with the new ones behind the cached."""
        added, keys, values = self.attend(stream, keys, values, visible)
        stream = stream + drop(added, masks, 0)
        added = self.narrow(F.gelu(self.widen(self.network_norm(stream))))
        return stream + drop(added, masks, 1), keys, values


class Transformer(SequenceModel):
    """A pre-norm decoder; the state is (keys1, values1, keys2, ...), each (batch, heads, past, dim).

    In every layer a token sees itself and `context` tokens before it, wherever windows begin: feeding one
    token at a time gives what the whole text gives, at any length. Dropout acts on the word vectors, on what
    each half of a block adds, and on the output.
    """

    squares_per_layer = 12  # queries, keys, values, what is attended to; four wide and four back

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(config.units)

    @property
    def dropout_places(self) -> int:
        """Word vectors, two for each block, output."""
        return 2 + 2 * self.config.layers

    def initialise(self, random: Random) -> None:
        """Draw every parameter from `random`, but start the norms as plain norms."""
        super().initialise(random)
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()  # ones and zeros, nothing drawn

    def init_state(self, batch_size: int) -> State:
        """An empty cache."""
        heads, dim = self.config.heads, self.config.units // self.config.heads
        return (self.output_bias.new_zeros(batch_size, heads, 0, dim),) * (2 * self.config.layers)

    def encode(
        self, vectors: Float[Tensor, "batch time hidden"], state: State, masks: Masks | None
    ) -> tuple[Float[Tensor, "batch time hidden"], State]:
        """The normalised stream after each input, and the keys and values of the last `context` positions."""
        context = self.config.context
        visible = visible_keys(state[0].shape[2], vectors.shape[1], context, vectors.device)
        stream = drop(vectors, masks, 0)
        cache: State = ()
        for index, block in enumerate(self.blocks):
            past = state[2 * index : 2 * index + 2]
            inside = None if masks is None else masks[2 * index + 1 : 2 * index + 3]
            stream, keys, values = block(stream, *past, visible, inside)
            cache += (keys[:, :, -context:], values[:, :, -context:])
        return drop(self.final_norm(stream), masks, -1), cache
