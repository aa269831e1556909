"""Rows compared by cosine (Eq. 2), and the true order of a few of them where float32 scores lie too close.

The true order is that of a plain float64 computation, rounded to float32 once; equal similarities by column.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

SPARE = 8  # slots kept beyond k, so that a tie at the boundary seldom reaches past them
CHUNK = 4096  # rows that are held in float64 at a time


@dataclass(frozen=True, eq=False)
class Space:
    """Rows with a direction each, and the kinds of those that may not be each other's neighbors."""

    rows: Float[Tensor, "rows dim"]
    kinds: Int[Tensor, " rows"]  # numbered from 0; a row alone of its kind excludes only itself
    k: int

    @cached_property
    def scale(self) -> Float[Tensor, " rows"]:
        """One over each row's length, in float64, where the square of a float32 number is never 0 or inf."""
        return torch.cat([1 / chunk.double().norm(dim=-1) for chunk in torch.split(self.rows, CHUNK)])

    @cached_property
    def units(self) -> Float[Tensor, "rows dim"]:
        """The rows at length one."""
        chunks = zip(torch.split(self.rows, CHUNK), torch.split(self.scale, CHUNK), strict=True)
        return torch.cat([(chunk.double() * scale[:, None]).float() for chunk, scale in chunks])

    @property
    def kept(self) -> int:
        """Slots kept until the order is settled."""
        return min(self.k + SPARE, len(self.rows))

    @property
    def margin(self) -> float:
        """Scores further apart than this are in their true order.

        A float32 product of two rounded unit vectors is within (dim + 3) 2^-24 of the cosine, in whatever
        order it is summed, because sum |x_i y_i| <= 1. Two scores have two such errors and two roundings.
        """
        return 2 * (self.rows.shape[1] + 4) * 2.0**-24

    @cached_property
    def _by_kind(self) -> tuple[Int[Tensor, " rows"], Int[Tensor, " kinds"], Int[Tensor, " kinds"]]:
        """The rows in order of kind, where each kind starts among them, and how many it has."""
        sizes = torch.bincount(self.kinds)
        return self.kinds.argsort(stable=True), sizes.cumsum(0) - sizes, sizes

    def forbidden(self, block: Int[Tensor, " block"]) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
        """Every (line of the block, column) of one kind; a row itself is among them."""
        order, starts, sizes = self._by_kind
        kinds = self.kinds[block]
        counts = sizes[kinds]
        lines = torch.repeat_interleave(torch.arange(len(block), device=block.device), counts)
        within = torch.arange(len(lines), device=block.device) - (counts.cumsum(0) - counts)[lines]
        return lines, order[starts[kinds][lines] + within]

    def reorder(
        self,
        block: Int[Tensor, " block"],
        columns: Int[Tensor, "block kept"],
        scores: Float[Tensor, "block kept"],
    ) -> tuple[Int[Tensor, "block kept"], Float[Tensor, "block kept"]]:
        """The block's slots in their true order, and their true similarities; empty slots stay empty."""
        columns, order = columns.sort(-1)
        empty = scores.gather(1, order) == -torch.inf
        products = self.rows[columns].double() @ self.rows[block].double()[:, :, None]
        cosines = products.squeeze(-1) * self.scale[columns] * self.scale[block][:, None]
        cosines = cosines.float().masked_fill(empty, -torch.inf)
        values, order = cosines.sort(dim=-1, descending=True, stable=True)
        return columns.gather(1, order), values

    def sort_all(
        self, block: Int[Tensor, " block"]
    ) -> tuple[Int[Tensor, "block k"], Float[Tensor, "block k"]]:
        """The nearest columns of a few rows by sorting every column: slow, but right with any ties."""
        queries = self.rows[block].double() * self.scale[block][:, None]
        products = torch.cat([queries @ chunk.double().T for chunk in torch.split(self.rows, CHUNK)], dim=1)
        cosines = (products * self.scale).float()
        cosines[self.forbidden(block)] = -torch.inf
        values, columns = cosines.sort(dim=-1, descending=True, stable=True)
        return columns[:, : self.k], values[:, : self.k]
