"""Repetition within texts and variety over texts: rep-n (Welleck et al. 2020) and distinct-n (Li et al. 2016)."""

from jaxtyping import Float, Int
from torch import Tensor

from nnrs.errors import ConfigError


def repetition(tokens: Int[Tensor, "n length"], order: int) -> Float[Tensor, " n"]:
    """rep-n of each text: the share of its n-grams that it has said before.

    >>> import torch
    >>> repetition(torch.tensor([[1, 2, 1, 2, 1]]), order=2)  # 12, 21, 12, 21: two of four are new
    tensor([0.5000], dtype=torch.float64)
    """
    grams = _ids_of_ngrams(tokens, order)
    ordered = grams.sort(dim=1).values
    again = (ordered[:, 1:] == ordered[:, :-1]).sum(dim=1)
    return again.double() / grams.shape[1]


def distinct(tokens: Int[Tensor, "n length"], order: int) -> float:
    """distinct-n of all texts together: different n-grams per n-gram. It falls as texts are added.

    >>> import torch
    >>> distinct(torch.tensor([[1, 2, 3], [1, 2, 4]]), order=2)  # 12, 23, 12, 24
    0.75
    """
    grams = _ids_of_ngrams(tokens, order)
    return len(grams.unique()) / grams.numel()


def _ids_of_ngrams(tokens: Tensor, order: int) -> Int[Tensor, "n grams"]:
    """A number for each n-gram, the same for the same one."""
    rows, length = tokens.shape
    if not 1 <= order <= length or not rows:
        raise ConfigError(
            f"n-grams of order {order} need texts of at least that many tokens, got {rows} x {length}."
        )
    grams = tokens.unfold(1, order, 1)  # (n, grams, order)
    ids: Tensor = grams.reshape(-1, order).unique(dim=0, return_inverse=True)[1]
    return ids.view(rows, -1)
