"""The reference engine: one client after the other in plain PyTorch. Slow, and easy to trust."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.local import Rows
from sdfeel.simulation.engines.engine import Engine, Work
from sdfeel.simulation.engines.plain import PlainUpdates, one_thread
from sdfeel.simulation.problem import Problem
from sdfeel.trees import Tree

__all__ = ["ReferenceEngine"]


class ReferenceEngine(Engine):
    """Nothing but `PlainUpdates`: the truth that the other engines are held against."""

    name = "reference"

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._updates = PlainUpdates(problem)

    def local_updates(self, models: Tensor, kept: Rows | None, work: Work) -> NDArray[np.float64]:
        with one_thread():
            return self._updates.carry_out(models, kept, work)

    def predict(self, model: Tensor, inputs: Tree) -> Tree:
        return self._updates.predict(model, inputs)
