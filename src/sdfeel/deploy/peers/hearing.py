"""What an edge takes of a neighbour's model: all of eq. (5), or what a rule of a run leaves of it.

The rules are those of `sdfeel.algorithm.methods.exchanges`. `clipped` takes of every link by
itself: both ends scale the same change down to the smaller of their bounds, so the weighted mean
stays. An edge tells its bound with its model; one that lies about it can only make it smaller.
`trimmed` needs all models that came together. It keeps no mean, so nothing of it is taken back or
made good: to the agreement of a link it gives nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.methods.exchanges import Clipped, Exchange, Trimmed
from sdfeel.deploy.facts import facts
from sdfeel.deploy.model.vectors import Block, Change, Vector, apart, as_vector, merge
from sdfeel.deploy.waiting import offload

__all__ = ["Hearing"]


@dataclass
class Hearing:
    """Of one edge.

    rule     None: eq. (5)
    trained  values at the beginning of a model that clients move
    rows     what the rule remembers, by the names that it has in a checkpoint
    """

    rule: Exchange | None
    trained: int
    folder: Path
    tell: Callable[[facts.Fact], None]
    rows: dict[str, Vector]

    # Its own clients.

    async def moved(self, before: Vector, after: Vector) -> None:
        """The clients of this edge have moved its model."""
        if isinstance(self.rule, Clipped):
            far = await offload(after.is_large, partial(apart, before, after, self.trained))
            moves = self._moves.copy()
            self.rule.remember(moves, far)
            self.rows = dict.fromkeys(self.rows, as_vector(moves))

    @property
    def _moves(self) -> NDArray[np.float32]:
        (row,) = self.rows.values()
        return row.array()

    @property
    def bound(self) -> float:
        """How far a neighbour may move this edge: r; it is told to the neighbour."""
        return self.rule.bound(self._moves) if isinstance(self.rule, Clipped) else 0.0

    # Its neighbours.

    async def change(
        self, peer: str, mine: Vector, theirs: Vector, weight: float, bound: float
    ) -> Change:
        """What a link gives; `bound` is the neighbour's, the models are those both ends hold."""
        if isinstance(self.rule, Trimmed):
            return Change.towards(mine, theirs, 0.0)
        if not isinstance(self.rule, Clipped):
            return Change.towards(mine, theirs, weight)
        most = self.bound if self.rule.ends == "own" else min(self.bound, bound)
        far = await offload(mine.is_large, partial(apart, mine, theirs))
        if far > most:
            self.tell(facts.ExchangeClipped(peer=peer, norm=far, most=most))
        return Change.towards(mine, theirs, weight * self.rule.part(far, most))

    async def together(self, model: Vector, changes: list[Change]) -> Change | None:
        """What all links give that were used; None: nothing."""
        if not changes:
            return None
        if not isinstance(self.rule, Trimmed):
            return reduce(add, changes)
        return await offload(model.is_large, partial(self._trimmed, self.rule, model, changes))

    def _trimmed(self, rule: Trimmed, model: Vector, changes: list[Change]) -> Change:
        parts = [model, *(vector for change in changes for vector in change.vectors)]

        def middle(blocks: list[Block], _offset: int) -> NDArray[np.float64]:
            own = blocks[0].astype(np.float64)
            pairs = zip(blocks[1::2], blocks[2::2], strict=True)
            heard = [own + (theirs.astype(np.float64) - mine) for theirs, mine in pairs]
            return rule.middle(np.stack([own, *heard])).astype(np.float64, copy=False)

        return Change.towards(model, merge(parts, middle, self.folder), 1.0)
