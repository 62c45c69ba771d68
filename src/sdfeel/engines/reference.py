"""The reference engine: one client after the other on one core, in plain PyTorch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.engines.engine import Engine, Work
from sdfeel.engines.plain import PlainUpdates, one_thread
from sdfeel.engines.problem import Problem
from sdfeel.trees import Tree


class ReferenceEngine(Engine):
    """Nothing but `PlainUpdates`: the truth that the other engines are held against."""

    name = "reference"

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._updates = PlainUpdates(problem)

    def train(self, work: Work, models: Tensor) -> NDArray[np.float64]:
        with one_thread():
            return self._updates.carry_out(models, work)

    def predict(self, model: Tensor, inputs: Tree) -> Tree:
        return self._updates.predict(model, inputs)
