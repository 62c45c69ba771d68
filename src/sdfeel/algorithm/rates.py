"""Rates: eta_k, the learning rate, a function of the iteration k alone.

So a resumed or sharded run sees the same rates. For k = 1, 2, ... and a warm-up of n iterations

    constant   eta
    step       eta factor^floor((k - 1) / every)
    cosine     floor + (eta - floor) (1 + cos(pi min(1, (k - 1) / over))) / 2
    inverse    eta / (1 + k / k0)

each times min(1, k / n). A number stands for the constant rate; any function of k will do.
"""

from __future__ import annotations

import math
import numbers
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from sdfeel.errors import InputError

__all__ = [
    "RATES",
    "Constant",
    "Cosine",
    "Given",
    "Inverse",
    "Rate",
    "RateTable",
    "ShapedRate",
    "Step",
    "rate_of",
    "rates",
]


class Rate(ABC):
    """eta_k for k = 1, 2, ..."""

    @abstractmethod
    def __call__(self, k: int) -> float:
        """The rate of iteration k."""


@dataclass(frozen=True)
class ShapedRate(Rate):
    """eta in a known shape over k; `warmup`: iterations over which it rises at first, linearly."""

    eta: float = 0.01
    warmup: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        _positive("lr", self.eta, "a finite number above 0, or a function of k")
        _count("rate.warmup", self.warmup, 0)

    @final
    def __call__(self, k: int) -> float:
        warm = min(1.0, k / self.warmup) if self.warmup else 1.0
        return float(self.eta_at(k) * warm)

    @abstractmethod
    def eta_at(self, k: int) -> float:
        """The rate of iteration k, were there no warm-up."""


@dataclass(frozen=True)
class Constant(ShapedRate):
    """eta_k = eta."""

    def eta_at(self, k: int) -> float:  # noqa: ARG002
        return float(self.eta)


@dataclass(frozen=True)
class Step(ShapedRate):
    """Times `factor` after every `every` iterations, as `torch.optim.lr_scheduler.StepLR`."""

    every: int = field(kw_only=True)
    factor: float = field(default=0.1, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _count("rate.every", self.every, 1)
        _positive("rate.factor", self.factor, "a finite number above 0")

    def eta_at(self, k: int) -> float:
        return float(self.eta * self.factor ** ((k - 1) // self.every))


@dataclass(frozen=True)
class Cosine(ShapedRate):
    """Half a wave from eta to `floor`, over `over` iterations; then it stays there."""

    over: int = field(kw_only=True)
    floor: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _count("rate.over", self.over, 1)
        if not _finite(self.floor) or not 0 <= self.floor <= self.eta:
            raise InputError("rate.floor", self.floor, f"a rate from 0 to lr = {self.eta:g}")

    def eta_at(self, k: int) -> float:
        part = min(1.0, (k - 1) / self.over)
        return float(self.floor + (self.eta - self.floor) * (1 + math.cos(math.pi * part)) / 2)


@dataclass(frozen=True)
class Inverse(ShapedRate):
    """eta / (1 + k / k0): half of eta at k = k0."""

    k0: float = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("rate.k0", self.k0, "iterations until the rate is halved, above 0")

    def eta_at(self, k: int) -> float:
        return float(self.eta / (1 + k / self.k0))


RATES: dict[str, type[ShapedRate]] = {
    "constant": Constant,
    "step": Step,
    "cosine": Cosine,
    "inverse": Inverse,
}


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


class RateTable:
    """The same, each k computed once: clients of unequal speed are far apart in k."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._first, self._known = 1, 0  # of eta_k: the first k, and how many
        self._etas = np.empty(0)

    def between(self, first: int, last: int) -> NDArray[np.float64]:
        """eta_k for k = first..last, to be read only."""
        if not self._known:
            self._first = first
        if first < self._first:
            before = rates(self._rate, first, self._first - 1)
            self._etas = np.concatenate([before, self._etas[: self._known]])
            self._first, self._known = first, len(self._etas)
        ahead = last - self._first + 1
        if ahead > self._known:
            if ahead > len(self._etas):
                more = np.empty(max(ahead, 2 * self._known) - self._known)
                self._etas = np.concatenate([self._etas[: self._known], more])
            after = self._first + self._known
            self._etas[self._known : ahead] = rates(self._rate, after, last)
            self._known = ahead
        return self._etas[first - self._first : ahead]


def _finite(value: float) -> bool:
    # A whole number may be larger than any float.
    return isinstance(value, numbers.Real) and abs(value) <= sys.float_info.max


def _positive(where: str, value: float, remedy: str) -> None:
    if not (_finite(value) and value > 0):
        raise InputError(where, value, remedy)


def _count(where: str, value: int, least: int) -> None:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole and value >= least):
        raise InputError(where, value, f"a whole number of iterations, at least {least}")
