"""Server rules: what a server does with the mean of its clients, instead of taking it as it is.

A period gives a server the pseudo-gradient Delta = (mean of its clients) - w_d(0). The mean itself
is w_d(0) + Delta, eq. (3). After Reddi et al., "Adaptive Federated Optimization" (2021), Algorithm
2, and Hsu et al., "Measuring the Effects of Non-Identical Data Distribution" (2019):

    fedavgm      v <- beta v + Delta                              w <- w + eta v
    fedadagrad   v <- v + Delta^2                   }
    fedadam      v <- b2 v + (1 - b2) Delta^2       } m <- b1 m + (1 - b1) Delta
    fedyogi      v <- v - (1 - b2) Delta^2 sign(v - Delta^2) }    w <- w + eta m / (sqrt(v) + tau)

v begins at tau^2 and nothing is corrected for its beginning, as there. With the scheme `fedavg`
these are the published methods; with servers that exchange each of them follows the rule on its
own, between two exchanges. A rule other than `fedavgm` moves the weighted mean by more or less than
its clients did: that is its purpose.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from sdfeel.algorithm.tables import by_name
from sdfeel.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "SERVER_RULES",
    "FedAdagrad",
    "FedAdam",
    "FedAvgM",
    "FedYogi",
    "ServerRule",
    "server_rule",
]


@dataclass(frozen=True)
class ServerRule(ABC):
    """One's own is a subclass with `step` and the names of what it remembers.

    keeps  rows that a server remembers, as many numbers as a model has parameters
    """

    keeps: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            real = isinstance(value, int | float) and not isinstance(value, bool)
            share = field.name in ("momentum", "beta1", "beta2")
            if not real or not (0 <= value < 1 if share else 0 < value < float("inf")):
                remedy = "a number in [0, 1)" if share else "a finite number above 0"
                raise InputError(f"server.{field.name}", value, remedy)

    def first(self, name: str) -> float:  # noqa: ARG002 - most begin at zero, whatever their name
        """The value with which a row begins."""
        return 0.0

    @abstractmethod
    def step(self, w: Tensor, delta: Tensor, kept: Mapping[str, Tensor]) -> None:
        """Change w, the server's model before its clients trained, and the rows, in place."""


@dataclass(frozen=True)
class FedAvgM(ServerRule):
    """Momentum of the server; `momentum=0, eta=1` is the mean."""

    eta: float = 1.0
    momentum: float = 0.9
    keeps: ClassVar[tuple[str, ...]] = ("server_velocity",)

    def step(self, w: Tensor, delta: Tensor, kept: Mapping[str, Tensor]) -> None:
        velocity = kept["server_velocity"]
        velocity.mul_(self.momentum).add_(delta)
        w.add_(velocity, alpha=self.eta)


@dataclass(frozen=True)
class _Adaptive(ServerRule):
    eta: float = 0.1
    beta1: float = 0.9
    tau: float = 1e-3
    keeps: ClassVar[tuple[str, ...]] = ("server_first", "server_second")

    def first(self, name: str) -> float:
        return self.tau**2 if name == "server_second" else 0.0

    def step(self, w: Tensor, delta: Tensor, kept: Mapping[str, Tensor]) -> None:
        first, second = kept["server_first"], kept["server_second"]
        first.mul_(self.beta1).add_(delta, alpha=1 - self.beta1)
        self.grow(second, delta * delta)
        w.addcdiv_(first, second.sqrt().add_(self.tau), value=self.eta)

    @abstractmethod
    def grow(self, second: Tensor, square: Tensor) -> None:
        """V <- ..., in place."""


@dataclass(frozen=True)
class FedAdagrad(_Adaptive):
    """v is the sum of all squares."""

    beta1: float = 0.0

    def grow(self, second: Tensor, square: Tensor) -> None:
        second.add_(square)


@dataclass(frozen=True)
class FedAdam(_Adaptive):
    """v is a running mean of squares."""

    beta2: float = 0.99

    def grow(self, second: Tensor, square: Tensor) -> None:
        second.mul_(self.beta2).add_(square, alpha=1 - self.beta2)


@dataclass(frozen=True)
class FedYogi(_Adaptive):
    """v follows the squares by steps that do not depend on how far off it is."""

    beta2: float = 0.99

    def grow(self, second: Tensor, square: Tensor) -> None:
        second.sub_(square * (second - square).sign(), alpha=1 - self.beta2)


SERVER_RULES: dict[str, type[ServerRule]] = {
    "fedavgm": FedAvgM,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
}


def server_rule(given: object) -> ServerRule | None:
    """A rule by name or object; None and "mean" stand for the mean."""
    if given is None or given == "mean":
        return None
    return by_name("server", given, SERVER_RULES, ServerRule)
