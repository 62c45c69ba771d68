"""The plain PyTorch loop that everything is compared with, as well as one would write it by hand.

Every client has a model of its own, which stays where it is; all data is in memory; a batch is one
indexing operation; a client takes all its steps before the next one's turn, so that its model stays
in the cache; the update is one in-place operation for each parameter. No data loader, no optimiser
object, no copies of models. The batches are those of the engines, so a test can hold the loop equal
to the reference engine.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from sdfeel.algorithm.randomness import draw_batches
from sdfeel.engines.problem import Problem

__all__ = ["PlainLoop"]


class PlainLoop:
    """One `nn.Module` for each client, all starting from the problem's model."""

    def __init__(self, problem: Problem) -> None:
        if (problem.data.samples <= problem.batch_size).any():
            raise ValueError("every client needs more samples than a batch has")
        self._problem = problem
        self.models = [copy.deepcopy(problem.model) for _ in range(problem.data.clients)]
        self._parameters = [list(model.parameters()) for model in self.models]
        self._data = [problem.data.client(i) for i in range(problem.data.clients)]

    def local_updates(self, first: int, last: int) -> None:
        """Iterations first to last of every client."""
        lr, loss_of = self._problem.rate(1), self._problem.loss
        batches = self._batches(first, last)
        for model, parameters, data, rows_of in zip(
            self.models, self._parameters, self._data, batches, strict=True
        ):
            inputs, targets = data
            for rows in rows_of:
                loss = loss_of(model(inputs[rows]), targets[rows])
                gradients = torch.autograd.grad(loss, parameters)
                with torch.no_grad():
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        parameter.sub_(gradient, alpha=lr)

    def _batches(self, first: int, last: int) -> Tensor:
        """All of a segment in one call: (clients, iterations, batch)."""
        problem = self._problem
        drawn = draw_batches(
            problem.seed,
            problem.client_ids,
            problem.data.samples,
            np.arange(first, last + 1),
            problem.batch_size,
        )
        return torch.from_numpy(drawn)
