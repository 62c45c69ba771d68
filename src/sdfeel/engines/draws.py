"""What is random in local updates, and who can be drawn for in one call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.methods.rates import rates
from sdfeel.algorithm.randomness import AUGMENTATION, MODEL, seeds
from sdfeel.engines.engine import Indices, Work
from sdfeel.engines.problem import Problem

# Rows that are drawn in one call, at most: the price of fewer is hardly lower.
TOGETHER = 2**13


@dataclass(frozen=True, eq=False)
class Drawn:
    """The draws of one client's steps, an entry each.

    client        its number among all clients
    first         iteration
    batches       rows of the data store
    seeds         of what is random inside the model
    augmentation  the numbers that random transforms of fresh samples are drawn by
    """

    client: int
    first: int
    etas: NDArray[np.float64]
    batches: Tensor
    seeds: NDArray[np.uint64]
    augmentation: NDArray[np.uint64]


class Draws:
    """All draws of `work`, made for several clients once one of them is asked for."""

    def __init__(self, problem: Problem, work: Work, seeded: bool) -> None:
        self._problem, self._work, self._seeded = problem, work, seeded
        self._together = max(1, TOGETHER // max(1, work.iterations * problem.batch_size))
        self._found: dict[int, Drawn] = {}

    def of(self, row: int) -> Drawn:
        """Return what is drawn for the client at a row of `work`, once."""
        if row not in self._found:
            first = row - row % self._together
            self._draw(slice(first, first + self._together))
        return self._found.pop(row)

    def _draw(self, part: slice) -> None:
        work, problem = self._work, self._problem
        some = Work(work.clients[part], work.first[part], work.last[part], work.start)
        for positions in alike(problem, some):
            ks = np.arange(some.first[positions[0]], some.last[positions[0]] + 1)
            etas = rates(problem.rate, int(ks[0]), int(ks[-1]))
            ids = problem.client_ids[some.clients[positions]]
            inside = self._numbers(ids, ks, MODEL, self._seeded)
            outside = self._numbers(ids, ks, AUGMENTATION, bool(problem.data.fresh))
            batches = torch.from_numpy(problem.batches(some.clients[positions], ks))
            for at, position in enumerate(positions):
                self._found[part.start + int(position)] = Drawn(
                    int(ids[at]), int(ks[0]), etas, batches[at], inside[at], outside[at]
                )

    def _numbers(self, ids: Indices, ks: Indices, purpose: int, wanted: bool) -> NDArray[np.uint64]:
        if not wanted:
            return np.zeros((len(ids), len(ks)), dtype=np.uint64)
        return seeds(self._problem.seed, ids, ks, purpose)


def alike(problem: Problem, work: Work) -> Iterator[Indices]:
    """Positions in `work` that go together: the same iterations and length of a batch."""
    lengths = np.minimum(problem.data.samples[work.clients], problem.batch_size)
    keys = np.stack([work.first, work.last, lengths], axis=1)
    for key in keys[:1] if (keys == keys[:1]).all() else np.unique(keys, axis=0):
        yield np.flatnonzero((keys == key).all(axis=1))
