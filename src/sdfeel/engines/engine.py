"""The engine: what carries out local updates, eq. (2). Nothing else knows how that is done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.engines.problem import Problem
from sdfeel.trees import Tree

Indices = NDArray[np.int64]


class Interrupted(BaseException):
    """Training was asked to stop; nothing of it is kept, and nobody but the loop catches it."""


@dataclass(frozen=True, eq=False)
class Learning:
    """What a correction learns while models are added up, of clusters that are all in one call.

    rows[i] += (model of client i - held model of client i) / reach, and once the sum that client i
    is added to is complete, rows[i] -= (sum - held) / reach
    """

    row: str  # its name among the rows of clients
    reach: float


@dataclass(frozen=True, eq=False)
class Work:
    """Local updates of some clients.

    clients      their places in `problem.data`
    first, last  the iterations of each
    start        models to begin from, and which row of them each client begins from
    rows         what methods remember of each, by name (n x values), changed in place; what is new
                 in every period is not among it
    shared       rows of servers that methods read, by name, and the row of each client
    learning     asked of engines that say `learns`
    is_stopped   asked now and then; if it says so `Interrupted` is raised
    """

    clients: Indices
    first: Indices
    last: Indices
    start: tuple[Tensor, Indices]
    rows: Mapping[str, Tensor] = field(default_factory=dict)
    shared: Mapping[str, tuple[Tensor, Indices]] = field(default_factory=dict)
    learning: Learning | None = None
    is_stopped: Callable[[], bool] = lambda: False

    @cached_property
    def laid_out(self) -> dict[str, Tensor]:
        """The rows of servers, one for each client."""
        return {name: rows[torch.from_numpy(index)] for name, (rows, index) in self.shared.items()}

    @property
    def iterations(self) -> int:
        """The most that any client makes."""
        return int((self.last - self.first).max(initial=-1)) + 1

    def no_losses(self) -> NDArray[np.float64]:
        """(clients x iterations), to be filled; not a number beyond a client's own."""
        return np.full((len(self.clients), self.iterations), np.nan)

    def look_up(self) -> None:
        """Raise `Interrupted` if training is to stop."""
        if self.is_stopped():
            raise Interrupted


@dataclass(frozen=True, eq=False)
class Sums:
    """Where models are added up: rows[to[i]] += weights[i] x model of client i, in client order.

    empty  rows to which nothing was added so far, whatever stands there: whoever adds the first
           model begins at zero, and says so here
    """

    rows: Tensor
    to: Indices
    weights: NDArray[np.float64]
    empty: NDArray[np.bool_]

    def add(self, models: Tensor) -> None:
        """Add all of them."""
        for model, row, weight in zip(models, self.to, self.weights, strict=True):
            if self.empty[row]:
                self.rows[int(row)].zero_()
                self.empty[row] = False
            self.rows[int(row)].add_(model, alpha=float(weight))


class Engine(ABC):
    """Carries out local updates. It keeps no model: those are handed in.

    name          as in `ENGINES`
    tells_losses  or it does not know them, and they come back as not a number
    can_restart   a call can be stopped and made again: it remembers nothing of clients
    learns        whether `add_up` sees to `Work.learning`
    holds_models  whether `add_up` takes memory for the model of every client of a call
    """

    name: str
    problem: Problem
    tells_losses: bool = True
    can_restart: bool = True
    learns: bool = False
    holds_models: bool = True

    @abstractmethod
    def train(self, work: Work, models: Tensor) -> NDArray[np.float64]:
        """Eq. (2) for every client of `work`: `models` (n x M) become what they trained.

        Returns the mini-batch losses, each taken before its update: (clients x iterations). A loss
        that is not finite comes back as it is.
        """

    def add_up(self, work: Work, sums: Sums) -> NDArray[np.float64]:
        """Train as `train` does, and add the models up."""
        start, begin = work.start
        models = start.new_empty(len(begin), start.shape[1])
        losses = self.train(work, models)
        sums.add(models)
        return losses

    @abstractmethod
    def predict(self, model: Tensor, inputs: Tree) -> Tree:
        """Outputs of a model on inputs, in evaluation mode."""

    def about(self) -> Mapping[str, Any]:
        """Return what environment.json should say of the engine."""
        return {}

    def remember(self) -> dict[str, Tensor]:
        """Return what a checkpoint must keep of the engine, beside models and rows."""
        return {}

    def recall(self, tensors: Mapping[str, Tensor]) -> None:  # noqa: B027 - most have nothing
        """Go on from a checkpoint that may have tensors of others too."""

    def close(self) -> None:  # noqa: B027 - most engines hold nothing that must be let go
        """Let go of threads and processes."""
