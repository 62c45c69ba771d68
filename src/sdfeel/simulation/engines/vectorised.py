"""The vectorised engine: the local updates of many clients in one call, by `torch.func.vmap`.

It takes any model that `vmap` takes, on the CPU or a GPU. Clients go through in chunks, so memory
is bounded by the chunk and not by the number of clients. On the CPU a thread takes a chunk: two
cores on two chunks do more than two cores on one operation after the other.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from sdfeel.algorithm.randomness import draw_batches
from sdfeel.simulation.engines.engine import Mask, Problem
from sdfeel.simulation.matrix import MatrixEngine

__all__ = ["VectorisedEngine"]

# A chunk holds at most this many clients and numbers (parameters, gradients and their copies).
CHUNK_CLIENTS = 25
CHUNK_NUMBERS = 32 * 2**20


class VectorisedEngine(MatrixEngine):
    """Chunks of clients, stacked; clients of a chunk share the length of their batch."""

    name = "vectorised"

    def __init__(self, problem: Problem, start: Tensor) -> None:
        super().__init__(problem, start)
        self._chunk = max(1, min(CHUNK_CLIENTS, CHUNK_NUMBERS // (3 * problem.layout.size)))
        self._networks = [_Network(problem)]  # one for each thread
        self._pool: ThreadPoolExecutor | None = None
        self._threads = 0
        # Whether the model draws random numbers, once that is seen; a GPU's are not looked at.
        self._draws: bool | None = None if problem.device.type == "cpu" else True

    def local_updates(self, first: int, last: int, present: Mask) -> NDArray[np.float64]:
        clients = np.flatnonzero(present)
        losses = np.empty((len(clients), last - first + 1))
        ks = np.arange(first, last + 1)
        chunks = list(self._chunks(clients))
        with torch.random.fork_rng(devices=[]):
            while chunks and (self._draws is not False or self._cores(len(chunks)) == 1):
                positions = chunks.pop(0)
                losses[positions] = self._steps(self._networks[0], clients[positions], ks)
        if chunks:
            idle = self._idle(len(chunks))

            def carry_out(positions: NDArray[np.int64]) -> None:
                network = idle.get()
                try:
                    losses[positions] = self._steps(network, clients[positions], ks)
                finally:
                    idle.put(network)

            assert self._pool is not None  # noqa: S101 - made together with what is idle
            list(self._pool.map(carry_out, chunks))
        return losses

    def predict(self, model: Tensor, inputs: Tensor) -> Tensor:
        return self._networks[0].predict(self.problem.layout.split(model), inputs)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _cores(self, chunks: int) -> int:
        return min(torch.get_num_threads(), chunks)

    def _idle(self, chunks: int) -> SimpleQueue[_Network]:
        """A network for each thread: a call puts the clients' values into its modules."""
        threads, cores = torch.get_num_threads(), self._cores(chunks)
        if self._pool is None or self._threads != threads:
            self.close()
            # A chunk alone on a thread has one core; what is left over is shared out.
            share = (max(1, threads // cores),)
            self._pool = ThreadPoolExecutor(threads, "sdfeel-vmap", torch.set_num_threads, share)
            self._threads = threads
        while len(self._networks) < cores:
            self._networks.append(_Network(self.problem))
        idle: SimpleQueue[_Network] = SimpleQueue()
        for network in self._networks[:cores]:
            idle.put(network)
        return idle

    def _chunks(self, clients: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Positions in `clients` that go together: the same batch length, at most a chunk."""
        lengths = np.minimum(self.problem.data.samples[clients], self.problem.batch_size)
        for length in np.unique(lengths):
            alike = np.flatnonzero(lengths == length)
            for start in range(0, len(alike), self._chunk):
                yield alike[start : start + self._chunk]

    def _steps(
        self, network: _Network, clients: NDArray[np.int64], ks: NDArray[np.int64]
    ) -> NDArray[np.float64]:
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
            self._seed(int(clients[0]), int(k))
            batch = batches[:, column]
            gradients, (loss, moved) = network.gradients(
                trained, rest, data.inputs[batch], data.targets[batch]
            )
            self._look_whether_it_draws(int(clients[0]), int(k))
            with torch.no_grad():
                for name, values in trained.items():
                    values.sub_(gradients[name], alpha=self.problem.lr)
                for name, values in rest.items():
                    values.copy_(moved[name])
            losses[:, column] = loss.detach()
        self.W[rows] = W
        return losses.numpy()

    def _seed(self, client: int, k: int) -> None:
        """One seed for the chunk and k, so that dropout does not depend on where the loop paused.

        There is one generator for all threads: a model that draws stays on one of them.
        """
        if self._draws is not False:
            self.problem.seed_model(client, k)

    def _look_whether_it_draws(self, client: int, k: int) -> None:
        if self._draws is None:
            after = torch.get_rng_state()
            self._seed(client, k)
            self._draws = not torch.equal(after, torch.get_rng_state())

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


class _Network:
    """The model as functions of parameters; one of these is used by one thread at a time."""

    def __init__(self, problem: Problem) -> None:
        self._loss = problem.loss
        self._model = copy.deepcopy(problem.model).to(problem.device)
        # Batch normalisation counts its batches in place, which a captured tensor does not allow.
        self._counters = {
            name: buffer
            for name, buffer in self._model.named_buffers()
            if not buffer.is_floating_point()
        }
        self._gradients = vmap(
            grad_and_value(self._of_client, has_aux=True), randomness="different", in_dims=0
        )

    def gradients(
        self, trained: dict[str, Tensor], rest: dict[str, Tensor], inputs: Tensor, targets: Tensor
    ) -> tuple[dict[str, Tensor], tuple[Tensor, dict[str, Tensor]]]:
        """Of a chunk of clients: gradients, losses, and buffers after the forward pass."""
        self._model.train()
        found: tuple[dict[str, Tensor], tuple[Tensor, dict[str, Tensor]]]
        found = self._gradients(trained, rest, inputs, targets)
        return found

    def predict(self, values: dict[str, Tensor], inputs: Tensor) -> Tensor:
        self._model.eval()
        with torch.no_grad():
            parts = [
                functional_call(self._model, values, (part,)) for part in torch.split(inputs, 500)
            ]
        return torch.cat(parts)

    def _of_client(
        self, trained: dict[str, Tensor], rest: dict[str, Tensor], inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        moved = {name: values.clone() for name, values in rest.items()}
        counters = {name: values.clone() for name, values in self._counters.items()}
        outputs = functional_call(self._model, trained | moved | counters, (inputs,))
        return self._loss(outputs, targets), moved
