"""The k nearest rows by cosine (Eq. 2): exact in blocks, or approximate behind the same function."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nnrs.neighbors.approximate import approximate_rows
from nnrs.neighbors.space import Space
from nnrs.registry import look_up

COLUMN_GROUP = 64  # columns that share a maximum in the first stage of the top k
CPU_SCORES, GPU_SCORES = 1 << 25, 1 << 27  # in a block: 128 MB, more is no faster; a GPU wants more
ROWS_AT_ONCE = 64  # of which a block has a multiple: some processors are slower at other heights
RECALL_SAMPLE = 1_000  # rows on which an approximate search is compared with the exact one


class Found(NamedTuple):
    """Neighbors of every row; a slot without one has similarity -inf, and any id."""

    ids: Int[Tensor, "vocab k"]
    similarities: Float[Tensor, "vocab k"]
    recall: float


@torch.no_grad()
def nearest(
    vectors: Float[Tensor, "vocab dim"],
    k: int,
    *,
    candidates: Bool[Tensor, " vocab"],
    groups: Int[Tensor, " vocab"] | None = None,
    backend: str = "exact",
    device: torch.device | str | None = None,
) -> Found:
    """The k nearest candidates of every candidate but itself and its group, on `device`; ties by id.

    Candidates are finite and not zero, and there are more than k of them.
    """
    search = look_up(BACKENDS, backend, "neighbor backend")
    where = torch.device(device or vectors.device)
    members = candidates.nonzero().squeeze(1)
    kinds = members if groups is None else groups[members]
    rows = vectors[members].float().to(where)
    space = Space(rows, torch.unique(kinds, return_inverse=True)[1].to(where), k)
    with _full_precision():
        columns, values, recall = search(space)
    members = members.to(where)
    ids = torch.zeros(len(vectors), k, dtype=torch.int64, device=where)
    similarities = torch.full((len(vectors), k), -torch.inf, dtype=torch.float32, device=where)
    ids[members], similarities[members] = members[columns], values
    return Found(ids, similarities, recall)


@contextlib.contextmanager
def _full_precision() -> Iterator[None]:
    """float32 products in float32, whatever the caller allows elsewhere: `Space.margin` counts on it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def exact_rows(
    space: Space, wanted: Int[Tensor, " wanted"]
) -> tuple[Int[Tensor, "wanted k"], Float[Tensor, "wanted k"]]:
    """The nearest columns of the wanted rows and their similarities, block by block in one buffer."""
    total, device = len(space.rows), space.rows.device
    width = -(-total // COLUMN_GROUP) * COLUMN_GROUP
    height = (CPU_SCORES if device.type == "cpu" else GPU_SCORES) // width
    height = max(1, height // ROWS_AT_ONCE * ROWS_AT_ONCE or height)
    # Columns past the last row stay -inf.
    buffer = space.units.new_full((min(height, len(wanted)), width), -torch.inf)
    all_columns = torch.empty(len(wanted), space.k, dtype=torch.int64, device=device)
    all_values = space.units.new_empty(len(wanted), space.k)
    for start in range(0, len(wanted), height):
        block = wanted[start : start + height]
        scores = buffer[: len(block)]
        torch.mm(space.units[block], space.units.T, out=scores[:, :total])
        scores[space.forbidden(block)] = -torch.inf
        columns, values = _top(scores, space.kept)
        columns.clamp_(max=total - 1)  # an empty slot may have come from past the last row
        columns, values = _settle(space, block, columns, values)
        all_columns[start : start + height], all_values[start : start + height] = columns, values
    return all_columns, all_values


def _top(
    scores: Float[Tensor, "block width"], count: int
) -> tuple[Int[Tensor, "block kept"], Float[Tensor, "block kept"]]:
    """The columns of the `count` highest scores, and these, falling; in two stages.

    A score outside the `count` groups with the highest maxima is not above any of these maxima, and they are
    `count` scores inside. So nothing is lost by looking inside only.
    """
    grouped = scores.view(len(scores), -1, COLUMN_GROUP)
    best = grouped.amax(-1).topk(min(count, grouped.shape[1]), sorted=False).indices
    inside = grouped.gather(1, best[:, :, None].expand(-1, -1, COLUMN_GROUP)).flatten(1)
    values, places = inside.topk(count)
    return best.gather(1, places // COLUMN_GROUP) * COLUMN_GROUP + places % COLUMN_GROUP, values


def _settle(
    space: Space,
    block: Int[Tensor, " block"],
    columns: Int[Tensor, "block kept"],
    scores: Float[Tensor, "block kept"],
) -> tuple[Int[Tensor, "block k"], Float[Tensor, "block k"]]:
    """The first k slots in their true order; computed anew only where scores lie within the margin."""
    k = space.k
    # Where the last kept score is within reach of the k-th, a tie may go on beyond what was kept.
    torn = (scores[:, k - 1] - scores[:, -1] <= space.margin) & (space.kept < len(space.rows))
    close = (scores[:, :k] - scores[:, 1 : k + 1] <= space.margin).any(-1) & ~torn
    lines = close.nonzero().squeeze(1)
    columns[lines], scores[lines] = space.reorder(block[lines], columns[lines], scores[lines])
    columns, values = columns[:, :k], scores[:, :k]
    lines = torn.nonzero().squeeze(1)
    if len(lines):
        columns[lines], values[lines] = space.sort_all(block[lines])
    return columns, values


Answer = tuple[Int[Tensor, "rows k"], Float[Tensor, "rows k"], float]


def _exact(space: Space) -> Answer:
    return *exact_rows(space, torch.arange(len(space.rows), device=space.rows.device)), 1.0


def _approximate(space: Space) -> Answer:
    columns, values = approximate_rows(space)
    return columns, values, _recall(space, columns, values)


def _recall(space: Space, columns: Int[Tensor, "rows k"], values: Float[Tensor, "rows k"]) -> float:
    """The share of the true neighbors that were found, over a sample of rows."""
    step = max(1, len(columns) // RECALL_SAMPLE)
    sample = torch.arange(0, len(columns), step, device=columns.device)
    truth, similarities = exact_rows(space, sample)
    real = similarities > -torch.inf
    answered = columns[sample].masked_fill(values[sample] == -torch.inf, -1)
    found = (truth[:, :, None] == answered[:, None, :]).any(-1) & real
    return float(found.sum() / real.sum())


BACKENDS: Mapping[str, Callable[[Space], Answer]] = {"exact": _exact, "faiss": _approximate}
