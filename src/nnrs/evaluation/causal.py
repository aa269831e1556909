"""Any causal language model seen the same way: ids in, logits out, and a memory that goes on from there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nnrs.errors import ConfigError
from nnrs.integrations.logits import logits_in
from nnrs.models.base import SequenceModel

# Ours, or anything that makes logits (batch, time, vocab) of ids (batch, time): as a tensor, as the first of a tuple
# (but for a loss in one number), in a dictionary, or as `.logits`, as Hugging Face's models do.
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
    return _logits(model(seen), seen, positions=1 if last else ids.shape[1]).float(), (seen,)


def _logits(
    given: Any, ids: Int[Tensor, "batch time"], positions: int
) -> Float[Tensor, "batch positions vocab"]:
    """The last positions of what a model gave for the ids."""
    found = logits_in(given)
    if found is None or found.ndim != 3 or len(found) != len(ids) or found.shape[1] < positions:
        what = f"a {type(given).__name__}" if found is None else tuple(found.shape)
        raise ConfigError(
            f"of ids {tuple(ids.shape)} the model made {what}. Have it give logits (batch, time, vocab): "
            "a tensor, a tuple that begins with it, or something with `logits`."
        )
    return found[:, -positions:]


@contextmanager
def evaluating(*models: CausalModel) -> Iterator[None]:
    """Have modules in eval mode, and then every part of them in the mode that it had."""
    modules = [model for model in models if isinstance(model, nn.Module)]
    modes = {part: part.training for module in modules for part in module.modules()}
    try:
        for module in modules:
            module.eval()
        yield
    finally:
        for module in modules:
            module.train(modes[module])  # for those that do more than take a note (merge adapters, say)
        for part, training in modes.items():
            part.training = training


def rows_of(memory: Memory, rows: Int[Tensor, " rows"]) -> Memory:
    """The memory of some rows, in any order and number."""
    return tuple(part[rows] for part in memory)


def device_of(model: CausalModel) -> torch.device:
    """Where a model wants its ids."""
    if isinstance(model, nn.Module):
        return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    return torch.device("cpu")
