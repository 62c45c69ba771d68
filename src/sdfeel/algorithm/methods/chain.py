"""The methods that a client's local step goes through, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sdfeel.algorithm.methods.method import Affine, InNumbers, Method, Row, Rows, Step
from sdfeel.algorithm.methods.optimizers import OPTIMIZERS, SGD, Optimizer
from sdfeel.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Chain:
    """Eq. (2) of every client: clipping, decay and FedProx, then corrections, then the optimizer.

    corrections  methods with a `gradient` of their own, in their order
    """

    optimizer: Optimizer = SGD()  # noqa: RUF009 - it is frozen
    corrections: Sequence[Method] = ()

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        """Return all methods that have a `gradient`."""
        methods = (*self.corrections, self.optimizer)
        return tuple(method for method in methods if method.has("gradient"))

    @cached_property
    def rows(self) -> dict[str, Row]:
        """The rows of clients that a step changes, as `name.row`."""
        return {
            f"{method.name}.{name}": row
            for method in self.methods
            for name, row in method.rows.items()
            if row.of == "clients"
        }

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """The rows of servers that a step reads: those in `affine`, if a method says it."""
        names_of_rows = []
        for method in self.methods:
            affine = method.affine
            names = method.rows if affine is None else (affine.shift or {})
            names_of_rows += [f"{method.name}.{n}" for n in names if method.rows[n].of == "servers"]
        return tuple(names_of_rows)

    @property
    def needs_anchor(self) -> bool:
        """Return whether a method looks back at the model that the period began with."""
        is_own = type(self.optimizer) not in OPTIMIZERS.values()
        return bool(self.optimizer.prox or self.corrections or is_own)

    @cached_property
    def affine(self) -> Affine | None:
        """Return the chain in numbers if it is affine in the gradient; rows are `name.row`."""
        last = self.optimizer.affine
        return None if last is None else self._joined(last)

    @cached_property
    def in_numbers(self) -> InNumbers | None:
        """Return all of the chain in numbers, as far as compiled code knows it."""
        last = self.optimizer.in_numbers
        if last is None:
            affine = self.affine
            return None if affine is None else InNumbers(affine)
        affine = self._joined(last.affine)
        return None if affine is None else replace(last, affine=affine)

    def _joined(self, last: Affine) -> Affine | None:
        """Return corrections and an optimizer in one; None if a correction is not affine."""
        decay, prox = last.decay, last.prox
        shift: dict[str, float] = {}
        for method in self.corrections:
            affine = method.affine
            if affine is None or affine.momentum:
                return None
            decay, prox = decay + affine.decay, prox + affine.prox
            shift |= {f"{method.name}.{name}": by for name, by in (affine.shift or {}).items()}
        shift |= {f"{self.optimizer.name}.{n}": by for n, by in (last.shift or {}).items()}
        return Affine(decay, prox, shift, last.momentum, last.nesterov)

    def update(self, w: Tensor, g: Tensor, rows: Mapping[str, Tensor], step: Step) -> None:
        """Make one local step of some clients: w and the rows, (clients, values) each, in place."""
        g = self.optimizer.conditioned(g, w, step)
        for method in self.methods:
            rows_of_method: Rows = {
                name: rows[f"{method.name}.{name}"] for name in self._names[method.name]
            }
            g = method.gradient(g, w, rows_of_method, step)
            if getattr(g, "shape", None) != w.shape:
                remedy = f"its gradient must return a tensor of shape {list(w.shape)}"
                raise InputError(method.name, getattr(g, "shape", g), remedy)
        w.sub_(g, alpha=step.eta)

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        known = {*self.rows, *self.shared}
        return {
            method.name: [name for name in method.rows if f"{method.name}.{name}" in known]
            for method in self.methods
        }
