"""Rates: eta_k, the learning rate, a function of the iteration k alone.

So a resumed or sharded run sees the same rates. A number stands for the constant rate; any function
of k will do.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdfeel.errors import InputError

__all__ = ["Constant", "Given", "Rate", "rate_of", "rates"]


class Rate(ABC):
    """eta_k for k = 1, 2, ..."""

    @abstractmethod
    def __call__(self, k: int) -> float:
        """The rate of iteration k."""


@dataclass(frozen=True)
class Constant(Rate):
    """eta_k = eta."""

    eta: float = 0.01

    def __post_init__(self) -> None:
        if not isinstance(self.eta, numbers.Real) or not (math.isfinite(self.eta) and self.eta > 0):
            raise InputError("lr", self.eta, "a finite number above 0, or a function of k")

    def __call__(self, k: int) -> float:  # noqa: ARG002
        return float(self.eta)


@dataclass(frozen=True)
class Given(Rate):
    """A function of the user's."""

    function: Callable[[int], float]

    def __call__(self, k: int) -> float:
        eta = self.function(k)
        if not isinstance(eta, numbers.Real) or not (math.isfinite(eta) and eta >= 0):
            raise InputError("lr", eta, f"must be a finite number, not below 0, at iteration {k}")
        return float(eta)


def rate_of(lr: float | Rate | Callable[[int], float]) -> Rate:
    """What a user gives as `lr`."""
    if isinstance(lr, Rate):
        return lr
    return Given(lr) if callable(lr) else Constant(lr)


def rates(rate: Rate, first: int, last: int) -> NDArray[np.float64]:
    """eta_k for k = first..last."""
    return np.array([rate(k) for k in range(first, last + 1)], dtype=np.float64)
