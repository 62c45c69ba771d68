"""The vectorised engine: the local updates of many clients in one call, by `torch.func.vmap`.

It takes any model that `vmap` takes, on the CPU or a GPU; not one that draws random numbers, which
vmap would draw for a chunk and not for a client. Clients go through in chunks. On the CPU a thread
takes a chunk: two cores on two chunks do more than two cores on one operation after the other.
"""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from sdfeel.algorithm.methods.method import Step
from sdfeel.algorithm.methods.rates import rates
from sdfeel.engines.draws import alike
from sdfeel.engines.engine import Engine, Work
from sdfeel.engines.fast.errors import Unsupported
from sdfeel.engines.idle_cores import free_cores
from sdfeel.engines.plain import new_row
from sdfeel.engines.problem import Problem
from sdfeel.trees import Tree, cut, joined, spread

Views = tuple[dict[str, Tensor], dict[str, Tensor]]

# A chunk holds at most this many clients and numbers (parameters, gradients and their copies).
CHUNK_CLIENTS = 25
# On the CPU there are two chunks at least where they have so many clients each, for two cores. How
# many cores there are does not matter: another chunk may give other last digits.
CHUNK_FOR_A_CORE = 8
CHUNK_NUMBERS = 32 * 2**20


class VectorisedEngine(Engine):
    """Chunks of clients, stacked; clients of a chunk share the length of their batch."""

    name = "vectorised"

    def __init__(self, problem: Problem) -> None:
        if problem.data.fresh:
            raise Unsupported("samples are read anew for every batch (Fresh)")
        if problem.hooks:
            raise Unsupported("a parameter has a gradient hook, which is called for each client")
        self.problem = problem
        self._chunk = max(1, min(CHUNK_CLIENTS, CHUNK_NUMBERS // (3 * problem.layout.size)))
        self._network = _Network(problem)
        self._pool: ThreadPoolExecutor | None = None
        self._threads = 0

    def train(self, work: Work, models: Tensor) -> NDArray[np.float64]:
        losses = work.no_losses()
        chunks = [part for group in alike(self.problem, work) for part in self._cut(group)]

        def carry_out(positions: NDArray[np.int64]) -> None:
            chunk = self._steps(models, work, positions)
            losses[positions, : chunk.shape[1]] = chunk

        pool = self._pool_for(len(chunks))
        if pool is not None:
            free_cores()
        list((map if pool is None else pool.map)(carry_out, chunks))
        return losses

    def _cut(self, group: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Chunks of nearly one size."""
        two = self.problem.device.type == "cpu" and len(group) >= 2 * CHUNK_FOR_A_CORE
        return np.array_split(group, max(-(-len(group) // self._chunk), 2 if two else 1))

    def predict(self, model: Tensor, inputs: Tree) -> Tree:
        return self._network.predict(self.problem.layout.split(model), inputs)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _pool_for(self, chunks: int) -> ThreadPoolExecutor | None:
        """Threads, if there is more than one core and more than one chunk for them."""
        threads = torch.get_num_threads()
        cores = min(threads, chunks)
        if cores <= 1 or self.problem.device.type != "cpu":
            return None
        if self._pool is None or self._threads != threads:
            self.close()
            # A chunk alone on a thread has one core; what is left over is shared out.
            share = (max(1, threads // cores),)
            self._pool = ThreadPoolExecutor(threads, "sdfeel-vmap", torch.set_num_threads, share)
            self._threads = threads
        return self._pool

    def _steps(
        self, models: Tensor, work: Work, positions: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Make all iterations of one chunk; rows are gathered once and written back once."""
        problem, layout, network = self.problem, self.problem.layout, self._network
        places = torch.from_numpy(positions).to(models.device)
        start, begin = work.start
        W = start[torch.from_numpy(begin[positions]).to(start.device)]
        w = W[:, : layout.parameters]
        anchor = w.clone() if problem.chain.needs_anchor else w
        rows = {name: values[places] for name, values in work.rows.items()}
        new_rows = problem.chain.rows.items()
        rows |= {name: new_row(row, anchor) for name, row in new_rows if name not in rows}
        for name, (shared, index) in work.shared.items():
            rows[name] = shared[torch.from_numpy(index[positions]).to(shared.device)]
        clients = work.clients[positions]
        ks = np.arange(work.first[positions[0]], work.last[positions[0]] + 1)
        batches = torch.from_numpy(problem.batches(clients, ks)).to(models.device)
        etas = rates(problem.rate, int(ks[0]), int(ks[-1]))
        losses = torch.empty(len(clients), len(ks), dtype=torch.float64)
        views = network.views(W)
        for column, eta in enumerate(etas):
            work.look_up()
            inputs, targets = problem.data.part(batches[:, column])
            g, loss = network.gradients(views, inputs, targets)
            numbers = problem.client_ids[clients]

            def gradient_at(other: Tensor, pair: tuple[Tree, Tree] = (inputs, targets)) -> Tensor:
                whole = torch.cat([other, W[:, layout.parameters :]], dim=1)
                return network.gradients(network.views(whole), *pair)[0]

            is_first = column == 0
            step = Step(numbers, int(ks[column]), float(eta), anchor, is_first, gradient_at)
            with torch.no_grad():
                problem.chain.update(w, g, rows, step)
            losses[:, column] = loss
        models[places] = W
        for name, values in work.rows.items():
            values[places] = rows[name]
        return losses.numpy()


class _Network(threading.local):
    """The model as functions of parameters; each thread puts values into modules of its own."""

    def __init__(self, problem: Problem) -> None:
        self._loss, self._layout = problem.loss, problem.layout
        self._model = copy.deepcopy(problem.model).to(problem.device)
        names = problem.layout.names
        self._counters = names[len(names) - problem.layout.counters :]
        self._gradients = vmap(grad_and_value(self._of_client, has_aux=True), randomness="error")

    def views(self, models: Tensor) -> Views:
        """Models (clients x M) as named parameters and buffers."""
        named = list(self._layout.split(models).items())
        trained = self._layout.trainable
        return dict(named[:trained]), dict(named[trained:])

    def gradients(self, views: Views, inputs: Tree, targets: Tree) -> tuple[Tensor, Tensor]:
        """Return gradients and losses of a chunk of clients; buffers take the step."""
        self._model.train()
        trained, rest = views
        gradients, (losses, moved) = self._gradients(trained, rest, inputs, targets)
        with torch.no_grad():
            for name, values in rest.items():
                values.copy_(moved[name])
            flat = torch.cat([gradients[name].flatten(1) for name in trained], dim=1)
        return flat, losses.detach()

    def predict(self, values: dict[str, Tensor], inputs: Tree) -> Tree:
        """Outputs in evaluation mode."""
        self._model.eval()
        whole = {n: v.round().long() if n in self._counters else v for n, v in values.items()}
        with torch.no_grad():
            return joined([self._outputs(whole, part) for part in cut(inputs, 500)])

    def _outputs(self, values: dict[str, Tensor], inputs: Tree) -> Tree:
        return functional_call(self._model, values, *spread(self._model, inputs))

    def _of_client(
        self, trained: dict[str, Tensor], rest: dict[str, Tensor], inputs: Tree, targets: Tree
    ) -> tuple[Tensor, dict[str, Tensor]]:
        moved = {
            name: values.round().long() if name in self._counters else values.clone()
            for name, values in rest.items()
        }
        values = trained | moved
        outputs = self._outputs(values, inputs)
        # A buffer that the model assigns is another tensor now: functional_call leaves it here.
        return self._loss(outputs, targets), {name: values[name].detach() for name in moved}
