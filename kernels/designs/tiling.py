"""Cutting an axis into tiles, and the tiles over columns."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_iron.kernels.designs.design import Affine, Index


@dataclass(frozen=True)
class Split:
    """``total`` entries in blocks of ``tile``. A last block that would reach past the end starts
    earlier instead, so that it is whole; what it shares with the block before is worked on twice.
    """

    total: int
    tile: int

    @property
    def blocks(self) -> int:
        return -(-self.total // self.tile)

    @property
    def overlaps(self) -> bool:
        return self.total % self.tile != 0

    def over(self, columns: int) -> list[int]:
        """How many blocks each column has; no column has none."""
        each = self.each(columns)
        return [min(each, self.blocks - first) for first in range(0, self.blocks, each)]

    def each(self, columns: int) -> int:
        """The blocks of a column, but for the last."""
        return -(-self.blocks // columns)

    def due(self, loop: int, loops: int, columns: int = 0) -> Index:
        """Where a block would start if it could reach past the end.

        Args:
            loop: the number of the loop over a column's blocks, of ``loops``.
            columns: over which the blocks are split; 0: each column has them all.
        """
        factors = tuple(self.tile if i == loop else 0 for i in range(loops))
        column = self.each(columns) * self.tile if columns else 0
        return Index(Affine(column=column, loops=factors))

    def start(self, loop: int, loops: int, columns: int = 0) -> Index:
        """Where a block starts, as ``due`` but never past the last whole one."""
        due = self.due(loop, loops, columns)
        return Index(due.of, high=Affine(self.total - self.tile)) if self.overlaps else due


def best_split(total: int, most: int, columns: int = 1) -> Split:
    """Blocks of at most ``most`` entries, enough of them for the columns where there are as many.

    A size that divides the total is taken where it is no less than half of what fits.
    """
    fitting = max(1, min(most, -(-total // columns)))
    even = next(n for n in range(fitting, 0, -1) if total % n == 0)
    return Split(total, even if 2 * even >= fitting else fitting)
