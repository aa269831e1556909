"""Any causal language model seen the same way: ids in, logits out, and a memory that goes on from there."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.models.base import SequenceModel

# Ours, or anything that makes logits (batch, time, vocab) of ids (batch, time): as a tensor, or as `.logits`, as
# Hugging Face's models do.
CausalModel = SequenceModel | Callable[[Tensor], Any]
Memory = tuple[Tensor, ...]  # flat, rows first: some rows of a memory are those rows of its tensors


@torch.no_grad()
def read(
    model: CausalModel, ids: Int[Tensor, "batch time"], memory: Memory | None = None, *, last: bool = False
) -> tuple[Float[Tensor, "batch positions vocab"], Memory]:
    """The logits after each of the ids (or after the `last` alone), and what to pass when reading on.

    A model of ours carries its state. Any other reads everything again: nothing is asked of it but a forward pass.
    """
    if isinstance(model, SequenceModel):
        state = model.init_state(len(ids)) if memory is None else memory
        hidden, state = model.encode(model.embed(ids), state, None)
        return model.head(hidden[:, -1:] if last else hidden).float(), state
    seen = ids if memory is None else torch.cat([memory[0], ids], dim=1)
    given = model(seen)
    logits: Tensor = given if isinstance(given, Tensor) else given.logits
    return logits[:, -1 if last else -ids.shape[1] :].float(), (seen,)


def rows_of(memory: Memory, rows: Int[Tensor, " rows"]) -> Memory:
    """The memory of some rows, in any order and number."""
    return tuple(part[rows] for part in memory)


def device_of(model: CausalModel) -> torch.device:
    """Where a model wants its ids."""
    if isinstance(model, torch.nn.Module):
        return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    return torch.device("cpu")
