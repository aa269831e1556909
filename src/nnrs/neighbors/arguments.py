"""What a table is made from, as users give it: checked, and brought to one form."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nnrs.arguments import is_whole, whole
from nnrs.errors import ConfigError
from nnrs.wording import counted

PADDING = 128  # ids that a model may embed beyond its tokenizer's, up to half of them, or a tenth of all


def may_be_padded(known: int, embedded: int) -> bool:
    """Whether a model that embeds so many ids may be of a tokenizer with so many, and the rest be padding.

    >>> may_be_padded(151_665, 152_064), may_be_padded(259, 384), may_be_padded(178, 534)
    (True, True, False)
    """
    return embedded - max(min(PADDING, embedded // 2), embedded // 10) <= known <= embedded


def as_matrix(vectors: Any) -> Float[Tensor, "vocab dim"]:
    """Vectors as a tensor, a row for each word, without a gradient."""
    kind = type(vectors).__name__
    for name in ("weight", "vectors"):
        if hasattr(vectors, name):
            raise ConfigError(f"vectors must be a matrix, got {kind}. Use its .{name}.")
    try:
        rows = torch.as_tensor(vectors).detach()
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(
            f"vectors must be a tensor or an array with a row for each word, got {kind}."
        ) from None
    if rows.ndim != 2:
        raise ConfigError(
            f"vectors must be a matrix with a row for each word, got the shape {tuple(rows.shape)}."
        )
    check_numbers("vectors", rows)
    return rows


def check_numbers(name: str, rows: Tensor) -> None:
    """Refuse a matrix that no cosine can be taken of."""
    parts = hasattr(rows, "__tensor_flatten__")  # of several tensors: torchao's, FSDP's
    for refused, got, advice in (
        (parts, type(rows).__name__, "Make the table before the model is quantised or sharded."),
        (rows.layout != torch.strided, rows.layout, "Use its .to_dense()."),
        (rows.is_complex(), rows.dtype, "Use its .real."),
        (rows.is_meta, "one on the meta device, which has none", "Load the weights first."),
    ):
        if refused:
            raise ConfigError(f"{name} must be a dense matrix of real numbers, got {got}. {advice}")


def candidates_among(rows: Float[Tensor, "vocab dim"], protected: Iterable[int]) -> Bool[Tensor, " vocab"]:
    """Which words have a vector and are not protected."""
    candidates = (rows != 0).any(-1) & rows.isfinite().all(-1)
    numbers = _plain_ids(protected)
    for word in numbers:
        if not 0 <= word < len(rows):
            raise ConfigError(f"protected id {word} is not one of the {counted(len(rows), 'word')}.")
    candidates[numbers] = False
    return candidates


def _plain_ids(protected: Any) -> list[int]:
    """Ids of any kind of number, in any kind of list."""
    try:
        listed = list(protected.tolist() if isinstance(protected, Tensor | np.ndarray) else protected)
        return [whole("a protected id", word) for word in listed]
    except (ConfigError, TypeError):
        raise ConfigError(
            f"protected must be a list of ids, got {protected!r:.60}. For a mask, use mask.nonzero().flatten()."
        ) from None


def checked_groups(groups: Any, rows: Float[Tensor, "vocab dim"]) -> Int[Tensor, " vocab"] | None:
    """`groups` where the rows are, if there is a whole number for each of them."""
    if groups is None:
        return None
    got = (
        f"{groups.dtype} of the shape {tuple(groups.shape)}"
        if isinstance(groups, Tensor)
        else type(groups).__name__
    )
    if not isinstance(groups, Tensor) or groups.shape != rows.shape[:1] or not is_whole(groups):
        raise ConfigError(
            f"groups must be a tensor with a whole number for each of the {counted(len(rows), 'word')}, got {got}."
        )
    return groups.to(rows.device)
