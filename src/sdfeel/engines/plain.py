"""Local updates one after the other, as one would write them by hand: eq. (2) in plain PyTorch.

A client's model is a row, and the parameters of one module are views of one. A short row is copied
to where the last client's was, and so is in the cache, and back at the end of the visit; a long one
is worked on where it lies.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors

from sdfeel.algorithm.methods.method import Row, Step
from sdfeel.engines.draws import Drawn, Draws
from sdfeel.engines.engine import Indices, Work
from sdfeel.engines.parameters import set_counter
from sdfeel.engines.problem import Problem, placed
from sdfeel.trees import Tree, called, cut, joined

Pair = tuple[Tree, Tree]
Place = tuple[nn.Module, str]  # of a buffer: its module, and what it is called there

# Numbers in a model above which it is not copied for a visit: it would be a walk through main
# memory.
LONG = 2**18


@contextmanager
def one_thread() -> Iterator[None]:
    """Operations of torch on one core, so that no sum depends on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def new_row(row: Row, anchor: Tensor) -> Tensor:
    """A row at its beginning, for the clients whose periods begin with `anchor`."""
    if row.first == "model":
        return anchor.clone()
    return anchor.new_full((len(anchor), row.width or anchor.shape[1]), row.first)


class PlainUpdates:
    """A module that visits one client after the other."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._model = copy.deepcopy(problem.model).to(problem.device)
        self._model.zero_grad(set_to_none=True)  # what its owner may have left there
        layout = problem.layout
        named = dict(self._model.named_parameters())
        self._trained = [named[name] for name in layout.names[: layout.trainable]]
        self._size = layout.parameters
        last = len(layout.names) - layout.counters
        self._buffer_places = [self._holder(name) for name in layout.names[layout.trainable :]]
        floating = self._buffer_places[: last - layout.trainable]
        self._places: list[nn.Parameter | Place] = [*self._trained, *floating]
        buffers = dict(self._model.named_buffers())
        self._counters = [buffers[name] for name in layout.names[last:]]
        self._work: Tensor | None = None  # where short rows are worked on
        if layout.size <= LONG:
            self._work = torch.empty(layout.size, dtype=layout.dtype, device=problem.device)
        self._row = torch.empty(0)  # that the module's tensors are views of
        self._views: list[Tensor] = []
        # Whether the model draws random numbers, once that is seen; a GPU's are not looked at.
        self._random: bool | None = None if problem.device.type == "cpu" else True

    def carry_out(
        self,
        models: Tensor,
        work: Work,
        part: Indices | None = None,
        draws: Draws | None = None,
    ) -> NDArray[np.float64]:
        """Train all clients of `work`, or some: their rows of `models` become what they trained.

        Args:
            models: a row for each client of `work`.
            work: what is to be done.
            part: places in `work`; None for all.
            draws: what is random in `work`, where it comes in several calls.
        """
        draws = draws or self.draws(work)
        losses = work.no_losses()
        start, begin = work.start
        self._model.train()
        with torch.random.fork_rng(devices=[]):
            for place in range(len(losses)) if part is None else part.tolist():
                anchor = start[int(begin[place])]
                self._hold(models[place], anchor)
                self._visit(place, anchor, work, draws.of(place), losses[place])
                if self._work is not None:
                    models[place].copy_(self._work)
        return losses if part is None else losses[part]

    def draws(self, work: Work) -> Draws:
        """Return what is random in `work`; seeds for the model only if it draws, or may do so."""
        return Draws(self.problem, work, self._random is not False)

    def _visit(
        self, place: int, anchor: Tensor, work: Work, drawn: Drawn, losses: NDArray[np.float64]
    ) -> None:
        """Make all steps of one client, whose model the module holds."""
        chain, size = self.problem.chain, self._size
        w, begun = self._row[None, :size], anchor[None, :size]
        rows = {name: rows[place : place + 1] for name, rows in work.rows.items()}
        rows |= {n: new_row(row, begun) for n, row in chain.rows.items() if n not in rows}
        for name, (shared, index) in work.shared.items():
            rows[name] = shared[int(index[place])][None]
        clients, etas = np.array([drawn.client]), drawn.etas.tolist()
        seeds = drawn.seeds.tolist()
        for number, batch in enumerate(drawn.batches.unbind()):
            work.look_up()
            k = drawn.first + number
            self._seed(seeds[number])
            try:
                pair = self._pair(work.clients[place], batch, int(drawn.augmentation[number]))
                losses[number], gradient = self._gradient(pair)
            except Exception as problem:
                problem.add_note(f"from client {drawn.client} at iteration {k}")
                raise
            self._take_replaced_buffers()
            self._look_whether_it_draws(seeds[number])

            def gradient_at(models: Tensor, pair: Pair = pair, seed: int = seeds[number]) -> Tensor:
                return self._gradient_at(models, pair, seed)

            step = Step(clients, k, etas[number], begun, number == 0, gradient_at)
            chain.update(w, gradient[None], rows, step)
        for counter, view in zip(self._counters, self._views[len(self._places) :], strict=True):
            view.copy_(counter)

    def predict(self, model: Tensor, inputs: Tree) -> Tree:
        """Outputs in evaluation mode."""
        row = model if self._work is not None else model.clone()
        self._hold(row, row)
        self._model.eval()
        with torch.no_grad():
            return joined([called(self._model, part) for part in cut(inputs, 500)])

    def _pair(self, client: int, rows: Tensor, number: int) -> Pair:
        """The samples of a batch."""
        data, device = self.problem.data, self.problem.device
        if not data.fresh:
            return data.part(rows.to(device))
        inputs, targets = data.batch(client, rows, number)
        dtype = self.problem.layout.dtype
        return placed(inputs, dtype, device), placed(targets, dtype, device)

    def _gradient(self, pair: Pair) -> tuple[float, Tensor]:
        """The mean loss of a batch and its gradient, laid end to end."""
        inputs, targets = pair
        loss = self.problem.loss(called(self._model, inputs), targets)
        # 2 to 4 % of a recurrent step less than `torch.autograd.grad`.
        loss.backward()  # type: ignore[no-untyped-call]
        grads = self._hooked([p.grad for p in self._trained])
        for p in self._trained:
            p.grad = None
        gradients = [
            torch.zeros_like(p) if g is None else g
            for g, p in zip(grads, self._trained, strict=True)
        ]
        return loss.item(), _flatten_dense_tensors(gradients)  # type: ignore[no-untyped-call]

    def _gradient_at(self, models: Tensor, pair: Pair, seed: int) -> Tensor:
        """Return the gradient at another model, (1 x values), and put the client's back."""
        client_row, counts = self._row, [counter.clone() for counter in self._counters]
        self._view(torch.cat([models[0], client_row[self._size :]]))
        self._seed(seed)
        _, gradient = self._gradient(pair)
        self._take_replaced_buffers()
        self._view(client_row)
        for counter, value in zip(self._counters, counts, strict=True):
            counter.copy_(value)
        return gradient[None]

    def _hooked(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        """Return what the user's gradient hooks make of gradients."""
        for place, hooks in self.problem.hooks.items():
            for hook in hooks:
                g = grads[place]
                changed = None if g is None else hook(g)
                grads[place] = g if changed is None else changed
        return grads

    def _hold(self, row: Tensor, start: Tensor) -> None:
        """Give the module a model to work on, in a row, that is equal to `start`."""
        work = row if self._work is None else self._work
        if work is not start:
            work.copy_(start)
        self._view(work)
        for counter, view in zip(self._counters, self._views[len(self._places) :], strict=True):
            set_counter(counter, view)

    def _view(self, row: Tensor) -> None:
        """Make the module's tensors views of a row."""
        if row.data_ptr() != self._row.data_ptr():
            layout = self.problem.layout
            parts = torch.split(row, layout.sizes)
            self._views = [p.view(shape) for p, shape in zip(parts, layout.shapes, strict=True)]
        self._row = row
        for view, place in zip(self._views, self._places, strict=False):
            if not isinstance(place, nn.Parameter):
                module, leaf = place
                module._buffers[leaf] = view
            elif place.data_ptr() != view.data_ptr():  # or it has been replaced
                place.data = view

    def _take_replaced_buffers(self) -> None:
        """Keep what a step assigned to a buffer: `self.mean = ...` puts a new tensor there."""
        trainable = len(self._trained)
        tensors = (*self._views[trainable : len(self._places)], *self._counters)
        for place, tensor in zip(self._buffer_places, tensors, strict=True):
            module, leaf = place
            present = module._buffers[leaf]
            if present is not None and present is not tensor:
                tensor.copy_(present.detach())
                module._buffers[leaf] = tensor

    def _holder(self, name: str) -> Place:
        module, _, leaf = name.rpartition(".")
        return self._model.get_submodule(module), leaf

    def _seed(self, number: int) -> None:
        """Seed torch: what is random inside the model is a function of (seed, client, k) too."""
        if self._random is None or (self._random and self.problem.device.type == "cpu"):
            torch.default_generator.manual_seed(number)
        elif self._random:
            torch.manual_seed(number)

    def _look_whether_it_draws(self, number: int) -> None:
        if self._random is None:
            after = torch.get_rng_state()
            self._seed(number)
            self._random = not torch.equal(after, torch.get_rng_state())
