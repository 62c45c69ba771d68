"""Local updates one after the other, as one would write them by hand: eq. (2) in plain PyTorch.

A client's model is a row, and the parameters of one module are views of one. A short row is copied
to where the last client's was, and so is in the cache, and back at the end of the visit; a long one
is worked on where it lies. The rule is applied to the row as a vector.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors

from sdfeel.algorithm.local import Rows
from sdfeel.simulation.engines.draws import Drawn, Draws
from sdfeel.simulation.engines.engine import Indices, Work
from sdfeel.simulation.problem import Problem, placed
from sdfeel.trees import Tree, called, cut, joined

Pair = tuple[Tree, Tree]
Start = tuple[Tensor, Sequence[int]]  # rows, and which of them each client begins from

__all__ = ["PlainUpdates", "one_thread"]

# Numbers in a model above which it is not copied for a visit, nor its gradient put together before
# the local rule sees it: it would be a walk through main memory.
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


class PlainUpdates:
    """A module that visits one client after the other."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._model = copy.deepcopy(problem.model).to(problem.device)
        self._model.zero_grad(set_to_none=True)  # what its owner may have left there
        layout = problem.layout
        own = dict(self._model.named_parameters())
        self._trained = [own[name] for name in layout.names[: layout.trainable]]
        self._size = layout.parameters
        self._places = [own[name] if name in own else self._holder(name) for name in layout.names]
        self._own: Tensor | None = None  # where short rows are worked on
        if layout.size <= LONG:
            self._own = torch.empty(layout.size, dtype=layout.dtype, device=problem.device)
        self._row = torch.empty(0)  # that the module's tensors are views of
        self._views: list[Tensor] = []
        # Whole-numbered buffers (counters) belong to no client: every step finds them unchanged.
        self._counters = [
            (buffer, buffer.clone())
            for buffer in self._model.buffers()
            if not buffer.is_floating_point()
        ]
        # Whether the model draws random numbers, once that is seen; a GPU's are not looked at.
        self._random: bool | None = None if problem.device.type == "cpu" else True

    def carry_out(
        self,
        models: Tensor,
        kept: Rows | None,
        work: Work,
        rows: Indices | None = None,
        draws: Draws | None = None,
        start: Start | None = None,
    ) -> NDArray[np.float64]:
        """All of `work`, or only `rows` of it; those of `models` and `kept` are changed in place.

        draws  what is random in `work`, where it comes in several calls
        start  where models begin, if not as they are
        """
        draws = draws or self.draws(work)
        losses = work.no_losses()
        self._model.train()
        with torch.random.fork_rng(devices=[]):
            for row in range(len(losses)) if rows is None else rows.tolist():
                self._take(models[row], None if start is None else start[0][start[1][row]])
                self._visit(row, kept, work, draws.of(row), losses[row])
                if self._own is not None:
                    models[row].copy_(self._own)
        return losses if rows is None else losses[rows]

    def draws(self, work: Work) -> Draws:
        """What is random in `work`; seeds for the model only if it draws, or may do so."""
        return Draws(self.problem, work, self._random is not False)

    def _visit(
        self,
        row: int,
        kept: Rows | None,
        work: Work,
        drawn: Drawn,
        losses: NDArray[np.float64],
    ) -> None:
        """All steps of one client, whose model the module holds."""
        size = self._size
        w = self._row[:size]
        memory = self._memory(kept, row)
        anchor = None if work.anchor is None else work.anchor[row, :size]
        shift = None if work.shift is None else work.shift[row]
        seeds, etas = drawn.seeds.tolist(), drawn.etas.tolist()
        for step, batch in enumerate(drawn.batches.unbind()):
            self._seed(seeds[step])
            try:
                pair = self._pair(work.clients[row], batch, int(drawn.augmentation[step]))
                losses[step], gradients = self._gradients(pair)
            except Exception as problem:
                problem.add_note(f"from client {drawn.client} at iteration {drawn.first + step}")
                raise
            self._look_whether_it_draws(seeds[step])
            self._update(w, gradients, memory, etas[step], anchor, shift)

    def predict(self, model: Tensor, inputs: Tree) -> Tree:
        """Outputs in evaluation mode."""
        self._take(model if self._own is not None else model.clone())
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

    def _gradients(self, pair: Pair) -> tuple[float, list[Tensor]]:
        """The mean loss of a batch and its gradient, as the parameters are."""
        inputs, targets = pair
        for counter, value in self._counters:
            counter.copy_(value)
        loss = self.problem.loss(called(self._model, inputs), targets)
        # 2 to 4 % of a recurrent step less than `torch.autograd.grad`.
        loss.backward()  # type: ignore[no-untyped-call]
        found = self._hooked([p.grad for p in self._trained])
        for p in self._trained:
            p.grad = None
        return loss.item(), [
            torch.zeros_like(p) if g is None else g
            for g, p in zip(found, self._trained, strict=True)
        ]

    def _hooked(self, found: list[Tensor | None]) -> list[Tensor | None]:
        """What the user's gradient hooks make of them."""
        for place, hooks in self.problem.hooks.items():
            for hook in hooks:
                g = found[place]
                changed = None if g is None else hook(g)
                found[place] = g if changed is None else changed
        return found

    def _update(
        self,
        w: Tensor,
        gradients: Sequence[Tensor],
        memory: Rows,
        eta: float,
        anchor: Tensor | None,
        shift: Tensor | None,
    ) -> None:
        """The local rule: on the whole vector or, where that is long, piece by piece.

        To put a long gradient together would cost a walk through memory.
        """
        local = self.problem.local
        if local.clip is not None:
            gradients = local.clipped([g.reshape(-1) for g in gradients])
        if self._size <= LONG:
            whole = _flatten_dense_tensors(gradients)  # type: ignore[no-untyped-call]
            local.update(w, whole, memory, eta, anchor, shift)
            return
        start = 0
        for g in (g.reshape(-1) for g in gradients):
            part = slice(start, start + len(g))
            own = {name: rows[part] for name, rows in memory.items()}
            near, moved = (None if v is None else v[part] for v in (anchor, shift))
            local.update(w[part], g, own, eta, near, moved)
            start = part.stop

    def _take(self, row: Tensor, start: Tensor | None = None) -> None:
        """Give the module a model: a row as it is, or as another one that it starts from."""
        work = row if self._own is None else self._own
        if start is not None or self._own is not None:
            work.copy_(row if start is None else start)
        if work.data_ptr() != self._row.data_ptr():
            layout = self.problem.layout
            parts = torch.split(work, layout.sizes)
            self._views = [p.view(shape) for p, shape in zip(parts, layout.shapes, strict=True)]
        self._row = work
        for view, place in zip(self._views, self._places, strict=True):
            if not isinstance(place, nn.Parameter):
                module, leaf = place
                module._buffers[leaf] = view
            elif place.data_ptr() != view.data_ptr():  # or it has been replaced
                place.data = view

    def _holder(self, name: str) -> tuple[nn.Module, str]:
        """Whose buffer it is, and what it is called there."""
        holder, _, leaf = name.rpartition(".")
        return self._model.get_submodule(holder), leaf

    def _memory(self, kept: Rows | None, row: int) -> Rows:
        if kept is not None:
            return {name: rows[row] for name, rows in kept.items()}
        return {name: self._row.new_zeros(self._size) for name in self.problem.local.keeps}

    def _seed(self, number: int) -> None:
        """What is random inside the model is a function of (seed, client, k) as well."""
        if self._random is None or (self._random and self.problem.device.type == "cpu"):
            torch.default_generator.manual_seed(number)
        elif self._random:
            torch.manual_seed(number)

    def _look_whether_it_draws(self, number: int) -> None:
        if self._random is None:
            after = torch.get_rng_state()
            self._seed(number)
            self._random = not torch.equal(after, torch.get_rng_state())
