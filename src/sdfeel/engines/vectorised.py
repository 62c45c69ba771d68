"""The vectorised engine: the local updates of many clients in one call, by `torch.func.vmap`.

It takes any model that `vmap` takes, on the CPU or a GPU. Clients go through in chunks, so memory
is bounded by the chunk and not by the number of clients.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from sdfeel.engines.matrix import MatrixEngine
from sdfeel.training.engine import Mask, Problem
from sdfeel.training.randomness import draw_batches

__all__ = ["VectorisedEngine"]

# A chunk holds at most this many clients and numbers (parameters, gradients and their copies).
CHUNK_CLIENTS = 50
CHUNK_NUMBERS = 64 * 2**20


class VectorisedEngine(MatrixEngine):
    """Chunks of clients, stacked; clients of a chunk share the length of their batch."""

    name = "vectorised"

    def __init__(self, problem: Problem, start: Tensor) -> None:
        super().__init__(problem, start)
        self._model = copy.deepcopy(problem.model).to(problem.device)
        # Batch normalisation counts its batches in place, which a captured tensor does not allow.
        self._counters = {
            name: buffer
            for name, buffer in self._model.named_buffers()
            if not buffer.is_floating_point()
        }
        self._chunk = max(1, min(CHUNK_CLIENTS, CHUNK_NUMBERS // (3 * problem.layout.size)))
        self._gradients = vmap(
            grad_and_value(self._loss, has_aux=True), randomness="different", in_dims=0
        )

    def local_updates(self, first: int, last: int, present: Mask) -> NDArray[np.float64]:
        clients = np.flatnonzero(present)
        losses = np.empty((len(clients), last - first + 1))
        ks = np.arange(first, last + 1)
        self._model.train()
        with torch.random.fork_rng(devices=[]):
            for positions in self._chunks(clients):
                chosen = clients[positions]
                losses[positions] = self._steps(chosen, ks)
        return losses

    def predict(self, model: Tensor, inputs: Tensor) -> Tensor:
        self._model.eval()
        values = self.problem.layout.split(model)
        with torch.no_grad():
            parts = [
                functional_call(self._model, values, (part,)) for part in torch.split(inputs, 500)
            ]
        return torch.cat(parts)

    def _chunks(self, clients: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Positions in `clients` that go together: the same batch length, at most a chunk."""
        lengths = np.minimum(self.problem.data.samples[clients], self.problem.batch_size)
        for length in np.unique(lengths):
            alike = np.flatnonzero(lengths == length)
            for start in range(0, len(alike), self._chunk):
                yield alike[start : start + self._chunk]

    def _steps(self, clients: NDArray[np.int64], ks: NDArray[np.int64]) -> NDArray[np.float64]:
        """All iterations of one chunk; W's rows are gathered once and written back once."""
        rows = torch.from_numpy(clients).to(self.W.device)
        W = self.W[rows]
        batches = torch.from_numpy(self._batches(clients, ks)).to(self.W.device)
        trainable = self.problem.layout.trainable
        named = list(self.problem.layout.split(W).items())
        trained, rest = dict(named[:trainable]), dict(named[trainable:])
        losses = torch.empty(len(clients), len(ks), dtype=torch.float64)
        data = self.problem.data
        for column, k in enumerate(ks):
            # One seed for the chunk and k, so that dropout does not depend on where the loop paused
            self.problem.seed_model(int(clients[0]), int(k))
            batch = batches[:, column]
            gradients, (loss, moved) = self._gradients(
                trained, rest, data.inputs[batch], data.targets[batch]
            )
            with torch.no_grad():
                for name, values in trained.items():
                    values.sub_(gradients[name], alpha=self.problem.lr)
                for name, values in rest.items():
                    values.copy_(moved[name])
            losses[:, column] = loss.detach()
        self.W[rows] = W
        return losses.numpy()

    def _batches(self, clients: NDArray[np.int64], ks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of the data store: (clients, iterations, batch length)."""
        data = self.problem.data
        samples, starts = data.samples[clients], data.offsets[clients]
        if samples[0] <= self.problem.batch_size:
            chosen = np.broadcast_to(np.arange(samples[0]), (len(clients), len(ks), samples[0]))
        else:
            ids = self.problem.client_ids[clients]
            chosen = draw_batches(self.problem.seed, ids, samples, ks, self.problem.batch_size)
        rows: NDArray[np.int64] = starts[:, None, None] + chosen
        return rows

    def _loss(
        self, trained: dict[str, Tensor], rest: dict[str, Tensor], inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of one client, and its buffers after the forward pass."""
        moved = {name: values.clone() for name, values in rest.items()}
        counters = {name: values.clone() for name, values in self._counters.items()}
        outputs = functional_call(self._model, trained | moved | counters, (inputs,))
        return self.problem.loss(outputs, targets), moved
