"""Letting a model speak: continuations of a prompt, sampled or greedy."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.errors import ConfigError
from nnrs.models.base import SequenceModel
from nnrs.neighbors.probabilities import pick
from nnrs.seeding import Random, Stream


def nucleus(probabilities: Float[Tensor, "batch vocab"], top_p: float) -> Float[Tensor, "batch vocab"]:
    """The smallest set of tokens that holds at least `top_p` of the mass, renormalised; the rest at 0.

    >>> nucleus(torch.tensor([[0.5, 0.2, 0.3]]), 0.7)
    tensor([[0.6250, 0.0000, 0.3750]])
    """
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(dim=-1) - ordered  # the mass of all that is likelier
    kept = ordered.masked_fill(before >= top_p, 0.0)
    return torch.zeros_like(probabilities).scatter(-1, order, kept / kept.sum(dim=-1, keepdim=True))


@torch.no_grad()
def continuations(
    model: SequenceModel,
    prompt: Int[Tensor, " time"],
    *,
    count: int,
    length: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
) -> Int[Tensor, "count length"]:
    """`count` continuations of `length` tokens after `prompt`; at temperature 0 the likeliest token each time."""
    if count < 1 or length < 1:
        raise ConfigError(f"count and length must be at least 1, got {count} and {length}.")
    if not temperature >= 0.0:
        raise ConfigError(f"temperature must be 0 (greedy) or more, got {temperature}.")
    if not 0.0 < top_p <= 1.0:
        raise ConfigError(f"top-p must be in (0, 1], got {top_p}.")
    device = next(model.parameters()).device
    ids = prompt.to(device).expand(count, -1)
    logits, state = model(ids)
    tokens: list[Tensor] = []
    for step in range(length):
        uniform = Random(seed, Stream.TEXT, step, device=device).uniform(count)
        tokens.append(_next(logits[:, -1].float(), temperature, top_p, uniform))
        if step + 1 < length:
            logits, state = model(tokens[-1].unsqueeze(1), state)
    return torch.stack(tokens, dim=1)


def _next(logits: Tensor, temperature: float, top_p: float, uniform: Tensor) -> Tensor:
    if temperature == 0.0:
        return logits.argmax(dim=-1)
    probabilities = F.softmax(logits / temperature, dim=-1)
    return pick(nucleus(probabilities, top_p) if top_p < 1.0 else probabilities, uniform)
