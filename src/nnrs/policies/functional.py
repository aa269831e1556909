"""The choice of inputs as pure functions: tensors and random numbers in, tensors out (Eqs. 6 and 7)."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from nnrs.arguments import at_hand, is_whole
from nnrs.errors import ConfigError
from nnrs.neighbors.table import NeighborTable
from nnrs.registry import look_up
from nnrs.schedules import Schedule, checked_rate

# What one draw of ξ decides: (rows that share it, steps that share it).
GRANULARITIES = {
    "token": (False, False),  # every token of every sequence its own draw
    "position": (True, False),  # one set of time steps for the whole minibatch
    "sequence": (False, True),  # one draw for one row of one window: all its replaceable tokens or none
}


def draw_shape(granularity: str, batch: int, time: int) -> tuple[int, int]:
    """The shape of the draws that decide a (batch, time) window; it broadcasts against the window.

    >>> [draw_shape(name, 20, 35) for name in ("token", "position", "sequence")]
    [(20, 35), (1, 35), (20, 1)]
    """
    rows_share, steps_share = look_up(GRANULARITIES, granularity, "granularity")
    return (1 if rows_share else batch, 1 if steps_share else time)


def settle_claims(
    wants_prediction: Bool[Tensor, "*shape"],  # ξ_ss < ε
    wants_neighbor: Bool[Tensor, "*shape"],  # ξ_nnrs < γ, and the token has neighbors
    coin: Bool[Tensor, "*shape"],  # settles the tokens that both rates claim
) -> tuple[Bool[Tensor, "*shape"], Bool[Tensor, "*shape"]]:
    """Which tokens become predictions and which become neighbors (Eq. 6); no token is both.

    A token that both claim goes to the neighbor where `coin` is true; one that neither claims stays gold. So a
    token with neighbors is one with probability γ(1 − ε/2), and a prediction with ε(1 − γ/2). The printed
    equation differs: see docs/paper.md#eq-6.
    """
    takes_neighbor = wants_neighbor & (~wants_prediction | coin)
    return wants_prediction & ~takes_neighbor, takes_neighbor


def mix_inputs(
    gold: Int[Tensor, "*shape"],  # y, the past targets
    predictions: Int[Tensor, "*shape"],  # ŷ, the model's past predictions
    neighbors: Int[Tensor, "*shape"],  # ỹ ~ Ñ_y, sampled neighbors of the targets
    takes_prediction: Bool[Tensor, "*shape"],
    takes_neighbor: Bool[Tensor, "*shape"],
) -> Int[Tensor, "*shape"]:
    """x, each token from the source that `settle_claims` gave it."""
    return torch.where(takes_neighbor, neighbors, torch.where(takes_prediction, predictions, gold))


def gumbel_neighbors(
    logits: Float[Tensor, "*rows k"],  # log α, learned
    uniform: Float[Tensor, "*rows k"],
    temperature: float,
) -> Float[Tensor, "*rows k"]:
    """Straight-through Gumbel-softmax weights over the k neighbors (Eq. 7, its standard form).

    One-hot in value, at the largest log α − log(−log U); in gradient the softmax of those at `temperature`.
    The print adds log α to a G that already holds it. Slots at −inf are never chosen.
    """
    tiny = torch.finfo(uniform.dtype).tiny
    noisy = logits - torch.log(-torch.log(uniform.clamp(min=tiny)))
    soft = F.softmax(noisy / temperature, dim=-1)
    hard = F.one_hot(noisy.argmax(dim=-1), logits.shape[-1]).to(soft.dtype)
    return hard + (soft - soft.detach())  # the bracket is exactly 0 in value


def sample_tokens(logits: Float[Tensor, "n vocab"], uniform: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
    """ŷ ~ softmax(logits), by where each draw falls in the cumulative sum.

    Like `pick`, for rows as wide as a vocabulary: unnormalised and bisected, it reads them half as often.
    """
    ends = (logits - logits.amax(dim=-1, keepdim=True)).exp_().cumsum(dim=-1)
    draws = uniform.unsqueeze(-1) * ends[:, -1:]
    return torch.searchsorted(ends, draws, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)


def positions_of(mask: Bool[Tensor, "*shape"], capacity: int | None = None) -> Int[Tensor, " n"]:
    """The flat positions where `mask` holds, in order.

    With a `capacity` the result always has that length, padded with `mask.numel()` (one past the end): its shape
    does not depend on the data, so a GPU need not be waited for. What exceeds the capacity is left out.

    >>> positions_of(torch.tensor([[False, True], [True, False]]), capacity=3)
    tensor([1, 2, 4])
    """
    flat = mask.flatten()
    if capacity is None:
        return flat.nonzero().squeeze(1)
    where = torch.arange(flat.numel(), device=mask.device)
    return torch.where(flat, where, flat.numel()).sort().values[:capacity]


def capacity_for(rate: float, granularity: str, batch: int, time: int) -> int:
    """Room for the positions of a window that draws at `rate` claim: the mean and six standard deviations.

    >>> capacity_for(0.2, "token", 20, 35), capacity_for(1.0, "sequence", 20, 35)
    (210, 700)
    """
    draws = math.prod(draw_shape(granularity, batch, time))
    claimed = draws * rate + 6.0 * math.sqrt(draws * rate * (1.0 - rate)) + 6.0
    return batch * time // draws * min(draws, math.ceil(claimed))


def replace_with_neighbors(
    tokens: Integer[Tensor, "*shape"],
    table: NeighborTable,
    *,
    rate: float | Float[Tensor, ""],
    temperature: float | Float[Tensor, ""] = 0.5,
    generator: torch.Generator | None = None,
    protect: Bool[Tensor, "*shape"] | Integer[Tensor, "*shape"] | None = None,
) -> Integer[Tensor, "*shape"]:
    """`tokens` with each replaceable one, at `rate`, replaced by a sampled neighbor of it: NNRS in one line.

    Tokens without neighbors, ids without a row (-100, say) and those where `protect` is true, or 1, stay. `tokens`
    itself is left untouched, and so are your targets: feed the result as inputs only. `generator` must live on the
    tokens' device.

    >>> table = NeighborTable.from_vectors(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 0.0]]), k=1)
    >>> replace_with_neighbors(torch.tensor([0, 1, 2]), table, rate=1.0)
    tensor([1, 0, 2])
    """
    if isinstance(rate, Schedule):
        raise ConfigError(
            "rate must be a number: ask the schedule for it, as in rate=schedule(step / steps)."
        )
    rate = at_hand("rate", rate)
    if not isinstance(rate, Tensor):
        rate = checked_rate(rate, "rate")
    _check_kinds(table, generator)
    _check_room(tokens, table.vocab_size)
    if protect is not None and (not isinstance(protect, Tensor) or protect.shape != tokens.shape):
        raise ConfigError(
            f"protect must be a mask of the tokens' shape, {tuple(tokens.shape)}, such as tokens == 0; ids that are "
            "never replaced are named when the table is made (protected=[0])."
        )
    if table.k == 0:
        return tokens.clone()
    shape = (2, *tokens.shape)
    draws = torch.rand(shape, generator=generator, device=tokens.device, dtype=torch.float32)
    table = table.to(tokens.device)
    ids = tokens.long()
    rows = ids.clamp(0, table.vocab_size - 1)
    chosen = (draws[0] < rate) & table.replaceable[rows] & (rows == ids)
    if protect is not None:
        chosen = chosen & ~protect.bool()
    return torch.where(chosen, table.draw(rows, draws[1], temperature), ids).to(tokens.dtype)


def _check_kinds(table: Any, generator: Any) -> None:
    """Refuse what is no table, or no source of random numbers."""
    if not isinstance(table, NeighborTable):
        raise ConfigError(
            f"table must be a NeighborTable, got {type(table).__name__}. Make it by "
            "NeighborTable.from_vectors(vectors, k=...)."
        )
    if not isinstance(generator, torch.Generator | None):
        raise ConfigError(
            f"generator must be a torch.Generator, got {generator!r:.60}. "
            "Use torch.Generator(tokens.device).manual_seed(seed)."
        )


def _check_room(tokens: Tensor, vocab_size: int) -> None:
    """Refuse tokens whose dtype cannot hold every id that may take their place."""
    if not isinstance(tokens, Tensor):
        raise ConfigError(
            f"tokens must be a tensor of ids, got {type(tokens).__name__}. Use torch.tensor(tokens)."
        )
    if not is_whole(tokens) or torch.iinfo(tokens.dtype).max < vocab_size - 1:
        raise ConfigError(
            f"tokens of {tokens.dtype} cannot hold the ids of a table of {vocab_size:,} words. Use tokens.long()."
        )
