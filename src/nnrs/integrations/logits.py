"""The logits in whatever a model's forward gives back."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from nnrs.errors import ConfigError
from nnrs.wording import counted

GIVE_THEM = (
    "Have its forward give back the logits, a tuple whose first tensor they are, or an object with `logits`"
)


def logits_in(outputs: Any) -> Tensor | None:
    """The logits of a Hugging Face output or a dictionary, a tuple's first tensor but for scalars, or the output."""
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", outputs)
    if isinstance(found, tuple | list):
        found = next((part for part in found if isinstance(part, Tensor) and part.ndim > 0), None)
    return found if isinstance(found, Tensor) else None


def logits_of_rows(outputs: Any, rows: int, *, or_else: str = "") -> Float[Tensor, "n vocab"]:
    """All logits of an output, a row for each word that was asked for; `or_else` is what else helps."""
    found = logits_in(outputs)
    if found is None or not has_rows(found, rows):
        shape = (
            "" if found is None else f" that has the shape {tuple(found.shape)} for {counted(rows, 'word')}"
        )
        raise ConfigError(
            f"no logits were found in the model's output, a {type(outputs).__name__}{shape}. {GIVE_THEM}{or_else}."
        )
    return torch.flatten(found, 0, -2)


def has_rows(found: Tensor | None, rows: int) -> bool:
    """Whether a tensor may be the logits of so many words."""
    return found is not None and found.ndim > 1 and found.shape[:-1].numel() == rows


def all_logits(outputs: Any, shape: tuple[int, int]) -> Float[Tensor, "n vocab"]:
    """The logits of inputs of this shape, flattened or not; those of a shape the other way round are refused."""
    or_else, found = "; or pass output_layer=, the module that makes them", logits_in(outputs)
    if found is None or found.ndim < 3 or found.shape[:-1] == shape:
        return logits_of_rows(outputs, shape[0] * shape[1], or_else=or_else)
    raise ConfigError(
        f"the model's inputs are {shape}, and what is taken for its logits {tuple(found.shape)}. Have its forward "
        f"give back ({shape[0]}, {shape[1]}, words){or_else}."
    )
