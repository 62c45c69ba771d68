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
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, final

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from sdfeel.errors import InputError
from sdfeel.validation import NotNegative, Positive, checked, number_above_0, whole


class Rate(ABC):
    """eta_k for k = 1, 2, ...

    >>> isinstance(sdfeel.Cosine(0.1, over=100), sdfeel.Rate)
    True
    """

    @abstractmethod
    def __call__(self, k: int) -> float:
        """The rate of iteration k."""


def _eta(value: Any) -> float:
    try:
        return number_above_0(value)
    except InputError as problem:
        raise InputError("lr", value, f"{problem.remedy}, or a function of k") from None


Warmup = Annotated[int, whole(0, remedy="a whole number of iterations, at least 0")]
Iterations = Annotated[int, whole(1, remedy="a whole number of iterations, at least 1")]


@checked("rate")
class ShapedRate(Rate):
    """eta in a known shape over k; `warmup`: iterations over which it rises at first, linearly."""

    eta: Annotated[float, BeforeValidator(_eta)] = 0.01
    warmup: Warmup = field(default=0, kw_only=True)

    @final
    def __call__(self, k: int) -> float:
        warm = min(1.0, k / self.warmup) if self.warmup else 1.0
        return float(self.eta_at(k) * warm)

    @abstractmethod
    def eta_at(self, k: int) -> float:
        """The rate of iteration k, were there no warm-up."""


@checked("rate")
class Constant(ShapedRate):
    """eta_k = eta.

    >>> sdfeel.Constant(0.1, warmup=10)(5)
    0.05
    """

    def eta_at(self, k: int) -> float:
        return self.eta


@checked("rate")
class Step(ShapedRate):
    """Times `factor` after every `every` iterations, as `torch.optim.lr_scheduler.StepLR`.

    >>> sdfeel.Step(1.0, every=100, factor=0.5)(101)
    0.5
    """

    every: Iterations = field(kw_only=True)
    factor: Positive = field(default=0.1, kw_only=True)

    def eta_at(self, k: int) -> float:
        return float(self.eta * self.factor ** ((k - 1) // self.every))


@checked("rate")
class Cosine(ShapedRate):
    """Half a wave from eta to `floor`, over `over` iterations; then it stays there.

    >>> sdfeel.Cosine(0.1, over=1000)(2000)
    0.0
    """

    over: Iterations = field(kw_only=True)
    floor: NotNegative = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        if self.floor > self.eta:
            raise InputError("rate.floor", self.floor, f"a rate from 0 to lr = {self.eta:g}")

    def eta_at(self, k: int) -> float:
        part = min(1.0, (k - 1) / self.over)
        return float(self.floor + (self.eta - self.floor) * (1 + math.cos(math.pi * part)) / 2)


@checked("rate")
class Inverse(ShapedRate):
    """eta / (1 + k / k0): half of eta at k = k0.

    >>> sdfeel.Inverse(0.1, k0=100)(100)
    0.05
    """

    k0: Positive = field(kw_only=True)

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
        try:
            eta = self.function(k)
        except TypeError as problem:
            remedy = f"a function of the iteration k: {problem}"
            raise InputError("lr", self.function, remedy) from problem
        if not isinstance(eta, numbers.Real) or not (math.isfinite(eta) and eta >= 0):
            raise InputError("lr", eta, f"must be a finite number, not below 0, at iteration {k}")
        return float(eta)


def rate_of(lr: float | Rate | Callable[[int], float]) -> Rate:
    """Return the rate that a user gives as `lr`."""
    if isinstance(lr, Rate):
        return lr
    return Given(lr) if callable(lr) else Constant(lr)


def rates(rate: Rate, first: int, last: int) -> NDArray[np.float64]:
    """eta_k for k = first..last."""
    return np.array([rate(k) for k in range(first, last + 1)], dtype=np.float64)


class RateTable:
    """Rates of iterations, each computed once: clients of unequal speed are far apart in k."""

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
