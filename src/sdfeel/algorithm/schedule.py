"""When servers aggregate: every tau1 iterations inside clusters, every tau1 tau2 between them."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from sdfeel.errors import InputError

__all__ = ["Lengths", "Schedule"]

Count = int | Callable[[int], int]


class Lengths(NamedTuple):
    """The numbers of a schedule in one round."""

    tau1: int
    tau2: int
    alpha: int

    @property
    def tau(self) -> int:
        """Iterations in a round: tau1 tau2."""
        return self.tau1 * self.tau2


@dataclass(frozen=True)
class Schedule:
    """The periods of Algorithm 1, for iterations k = 1, 2, ...

    Args:
        tau1: local updates between two intra-cluster aggregations.
        tau2: intra-cluster aggregations between two inter-cluster ones: a round has tau1 tau2
            iterations.
        alpha: exchanges in an inter-cluster aggregation.

    Each is a number or a function of the round, counted from 0. The defaults are those of the
    paper's figure 3.

    >>> Schedule(tau1=lambda number: 10 if number < 5 else 2, tau2=1, alpha=5).at(7)
    Lengths(tau1=2, tau2=1, alpha=5)
    """

    tau1: Count = 2
    tau2: Count = 1
    alpha: Count = 5

    def __post_init__(self) -> None:
        for name in ("tau1", "tau2", "alpha"):
            value = getattr(self, name)
            if not callable(value):
                _check(name, value)

    @property
    def changes(self) -> bool:
        """Whether a number of it is a function of the round."""
        return any(callable(value) for value in (self.tau1, self.tau2, self.alpha))

    def at(self, number: int) -> Lengths:
        """The numbers of a round, counted from 0."""
        found = []
        for name in ("tau1", "tau2", "alpha"):
            value = getattr(self, name)
            if callable(value):
                value = value(number)
                _check(f"{name}({number})", value)
            found.append(value)
        return Lengths(*found)

    @property
    def tau(self) -> int:
        """Iterations in a round, tau1 tau2; in the first one if that changes."""
        return self.at(0).tau


def _check(name: str, value: object) -> None:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < 1:  # type: ignore[operator]
        raise InputError(name, value, "a whole number, at least 1")
