"""The engine: what carries out local updates, eq. (2). Nothing else knows how that is done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.local import Rows
from sdfeel.simulation.problem import Problem
from sdfeel.trees import Tree

__all__ = ["Engine", "Indices", "Learned", "Shift", "SummingEngine", "Sums", "Work"]

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Shift:
    """What is added to the gradients of client i: rows[row[i]] + common[of[i]], as they lie there.

    An engine that can adds the two while it reads them; for the others there is `laid_out`.
    """

    rows: Tensor
    row: Indices
    common: Tensor | None = None
    of: Indices | None = None

    def laid_out(self) -> Tensor:
        """A row for each client."""
        found = self.rows[torch.from_numpy(self.row)]
        if self.common is not None and self.of is not None:
            for place, group in enumerate(self.of):
                found[place] += self.common[int(group)]
        return found


@dataclass(frozen=True, eq=False)
class Learned:
    """What corrections learn where models are added up.

    rows[row[i]] += (model of client i - origin[begun[i]]) / reach; and where the sum that client i
    is added to is `whole` after that, rows[row[i]] -= (sum - origin[begun[i]]) / reach
    """

    rows: Tensor
    row: Indices
    origin: Tensor
    begun: Indices
    reach: float
    whole: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Work:
    """Local updates of some clients.

    clients      their places in `problem.data`
    first, last  the iterations of each
    anchor       w_d(0) of each, (n x M): the model that its upload period began with, where the
                 rule asks for it
    added        to the gradients of each, (n x trainable); None for nothing
    learned      asked of engines that say `learns`, where they add up
    """

    clients: Indices
    first: Indices
    last: Indices
    anchor: Tensor | None = None
    added: Tensor | Shift | None = None
    learned: Learned | None = None

    @cached_property
    def shift(self) -> Tensor | None:
        """What is added to the gradients, as one tensor."""
        return self.added.laid_out() if isinstance(self.added, Shift) else self.added

    @property
    def iterations(self) -> int:
        """The most that any client makes."""
        return int((self.last - self.first).max(initial=-1)) + 1

    def no_losses(self) -> NDArray[np.float64]:
        """(clients x iterations), to be filled; not a number beyond a client's own."""
        return np.full((len(self.clients), self.iterations), np.nan)


@dataclass(frozen=True, eq=False)
class Sums:
    """Where finished models go: rows[to[i]] += weights[i] x model of client i, in client order.

    empty  rows to which nothing was added so far, whatever stands there: whoever adds the first
           model begins at zero, and says so here
    """

    rows: Tensor
    to: Indices
    weights: NDArray[np.float64]
    empty: NDArray[np.bool_]

    def add(self, models: Tensor) -> None:
        for model, row, weight in zip(models, self.to, self.weights, strict=True):
            if self.empty[row]:
                self.rows[int(row)].zero_()
                self.empty[row] = False
            self.rows[int(row)].add_(model, alpha=float(weight))


class Engine(ABC):
    """Carries out local updates. It keeps no model: those are handed in, and changed in place."""

    name: str
    problem: Problem
    tells_losses: bool = True  # or it does not know them, and they come back as not a number
    remembers: bool = False  # something of clients, so that a period cannot be begun again

    @abstractmethod
    def local_updates(self, models: Tensor, kept: Rows | None, work: Work) -> NDArray[np.float64]:
        """Eq. (2) for every client of `work`, whose models are the rows of `models` (n x M).

        kept  what the local rule remembers, by name (n x trainable); None: it begins at zero and
              is not asked for again

        Returns the mini-batch losses, each taken before its update: (clients x iterations). A loss
        that is not finite comes back as it is.
        """

    @abstractmethod
    def predict(self, model: Tensor, inputs: Tree) -> Tree:
        """Outputs of a model on inputs, in evaluation mode."""

    def about(self) -> Mapping[str, Any]:
        """What a reader of the run's environment should know of it."""
        return {}

    def remember(self) -> dict[str, Tensor]:
        """What a checkpoint must keep of it, beside models and rows."""
        return {}

    def recall(self, kept: Mapping[str, Tensor]) -> None:  # noqa: B027 - most have nothing
        """Go on from a checkpoint that may have tensors of others too."""

    def close(self) -> None:  # noqa: B027 - most engines hold nothing that must be let go
        """Let go of threads and processes."""


class SummingEngine(Engine):
    """An engine that adds models up itself."""

    learns: bool = False  # whether it sees to `Work.learned`
    holds_models: bool = True  # whether it takes memory for the model of every client of a call

    @abstractmethod
    def add_up(
        self, start: Tensor, begin: Indices, kept: Rows | None, work: Work, sums: Sums
    ) -> NDArray[np.float64]:
        """As `local_updates`, where client i starts from a copy of the row start[begin[i]]."""
