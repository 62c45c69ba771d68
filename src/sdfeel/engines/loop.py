"""The loop engine: the plain loop over clients, in one process for each core.

What many models do best: operations too large or too few for vectorising over clients to pay.
Processes, because Python itself is half of a small step. A client's step uses one core, whatever
their number, so the bits are those of `reference`.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.engines.engine import Engine, Sums, Work
from sdfeel.engines.plain import PlainUpdates, one_thread
from sdfeel.engines.problem import Problem
from sdfeel.engines.processes import Processes
from sdfeel.trees import Tree


class LoopEngine(Engine):
    """Train clients one after the other, in as many processes as torch is set to use threads."""

    name = "loop"

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._updates = PlainUpdates(problem)
        self._processes: Processes | None = None

    def train(self, work: Work, models: Tensor) -> NDArray[np.float64]:
        others = self._ready(len(models))
        if others is None:
            with one_thread():
                return self._updates.carry_out(models, work)
        losses = others.carry_out(work)
        models.copy_(others.models[: len(models)])
        return losses

    def add_up(self, work: Work, sums: Sums) -> NDArray[np.float64]:
        others = self._ready(len(work.clients))
        return super().add_up(work, sums) if others is None else others.carry_out(work, sums)

    def predict(self, model: Tensor, inputs: Tree) -> Tree:
        return self._updates.predict(model, inputs)

    def close(self) -> None:
        if self._processes is not None:
            self._processes.close()
            self._processes = None

    def _ready(self, clients: int) -> Processes | None:
        """The processes, if more than one has something to do."""
        hands = torch.get_num_threads()
        if min(hands, clients) <= 1 or self.problem.device.type != "cpu":
            return None
        if self._processes is None or not self._processes.suffices(hands, clients):
            self.close()
            self._processes = Processes(self.problem, self._updates, hands, clients)
        return self._processes
