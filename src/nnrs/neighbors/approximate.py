"""Approximate neighbors for hundreds of thousands of rows, through faiss (extra `neighbors`)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.errors import ConfigError
from nnrs.neighbors.space import Space

ROWS_PER_CELL = 40  # faiss asks for at least 39 to place a cell
PROBED = 16  # one cell in so many is looked at
BLOCK = 4096


def approximate_rows(
    space: Space,
) -> tuple[Int[Tensor, "rows k"], Float[Tensor, "rows k"]]:
    """The nearest columns of every row among those in the faiss cells that lie closest to it.

    Similarities and their order are true; what may be missing is a neighbor in a cell further off.
    """
    try:
        import faiss
    except ImportError:
        raise ConfigError(
            "backend 'faiss' needs the package faiss. Install it with: pip install 'nnrs[neighbors]'"
        ) from None
    units = space.units.cpu().numpy()
    cells = max(1, min(round(4 * len(units) ** 0.5), len(units) // ROWS_PER_CELL))
    width = units.shape[1]
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, cells, faiss.METRIC_INNER_PRODUCT)
    index.train(units)
    index.add(units)
    index.nprobe = max(1, cells // PROBED)
    answers = []
    for block in torch.split(torch.arange(len(units)), BLOCK):
        scores, columns = index.search(units[block[0] : block[-1] + 1], space.kept)
        answers.append(_allowed(space, block, torch.from_numpy(columns), torch.from_numpy(scores)))
    return torch.cat([columns for columns, _ in answers]), torch.cat([values for _, values in answers])


def _allowed(
    space: Space,
    block: Int[Tensor, " block"],
    columns: Int[Tensor, "block kept"],
    scores: Float[Tensor, "block kept"],
) -> tuple[Int[Tensor, "block k"], Float[Tensor, "block k"]]:
    """The first k slots that hold something (faiss writes -1 where not) of another kind."""
    device = space.rows.device
    missing, columns, block = (columns < 0).to(device), columns.clamp(min=0).to(device), block.to(device)
    alike = space.kinds[columns] == space.kinds[block][:, None]
    scores = scores.to(device).masked_fill(missing | alike, -torch.inf)
    columns, values = space.reorder(block, columns, scores)
    return columns[:, : space.k], values[:, : space.k]
