"""Server optimizers: what a server does with the mean of its clients, instead of taking it.

A period gives a server the pseudo-gradient Delta = (mean of its clients) - w_d(0). The mean itself
is w_d(0) + Delta, eq. (3). After Reddi et al., "Adaptive Federated Optimization" (2021), Algorithm
2, and Hsu et al., "Measuring the Effects of Non-Identical Data Distribution" (2019):

    fedavgm      v <- beta v + Delta                              w <- w + eta v
    fedadagrad   v <- v + Delta^2                   }
    fedadam      v <- b2 v + (1 - b2) Delta^2       } m <- b1 m + (1 - b1) Delta
    fedyogi      v <- v - (1 - b2) Delta^2 sign(v - Delta^2) }    w <- w + eta m / (sqrt(v) + tau)

v begins at tau^2 and nothing is corrected for its beginning, as there. With the scheme `fedavg`
these are the published methods; with servers that exchange each of them optimizes on its own,
between two exchanges. An optimizer other than `fedavgm` moves the weighted mean by more or less
than its clients did: that is its purpose.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from sdfeel.algorithm.methods.method import Floats, Method, Period, Row, Rows
from sdfeel.validation import BelowOne, Positive, checked


class ServerOptimizer(Method):
    """A server's step along its clients' mean.

    Yours is a subclass with `take`, and `rows` of servers for what it remembers.

    >>> isinstance(sdfeel.FedAvgM(), sdfeel.ServerOptimizer)
    True
    """

    needs: ClassVar[frozenset[str]] = frozenset({"servers"})


@checked("server_optimizer")
class FedAvgM(ServerOptimizer):
    """Momentum of the server; `momentum=0, eta=1` is the mean.

    >>> sdfeel.FedAvgM(momentum=0.8).eta
    1.0
    """

    eta: Positive = 1.0
    momentum: BelowOne = 0.9

    rows: ClassVar[Mapping[str, Row]] = {"velocity": Row("servers")}

    def take(self, before: Floats, after: Floats, rows: Rows, period: Period) -> Floats:
        velocity = rows["velocity"]
        velocity *= self.momentum
        velocity += after - before
        moved: Floats = before + self.eta * velocity
        return moved


@checked("server_optimizer")
class _Adaptive(ServerOptimizer):
    eta: Positive = 0.1
    beta1: BelowOne = 0.9
    tau: Positive = 1e-3

    @property
    def rows(self) -> Mapping[str, Row]:
        return {"first": Row("servers"), "second": Row("servers", first=self.tau**2)}

    def take(self, before: Floats, after: Floats, rows: Rows, period: Period) -> Floats:
        first, second, delta = rows["first"], rows["second"], after - before
        first *= self.beta1
        first += (1 - self.beta1) * delta
        self.grow(second, delta * delta)
        moved: Floats = before + self.eta * (first / (np.sqrt(second) + self.tau))
        return moved

    @abstractmethod
    def grow(self, second: Floats, square: Floats) -> None:
        """V <- ..., in place."""


@checked("server_optimizer")
class FedAdagrad(_Adaptive):
    """v is the sum of all squares.

    >>> sdfeel.FedAdagrad(eta=0.05).eta
    0.05
    """

    beta1: BelowOne = 0.0

    def grow(self, second: Floats, square: Floats) -> None:
        second += square


@checked("server_optimizer")
class FedAdam(_Adaptive):
    """v is a running mean of squares.

    >>> result = sdfeel.train(
    ...     model, data, network=network, steps=4, scheme="fedavg",
    ...     server_optimizer=sdfeel.FedAdam(eta=0.01),
    ... )
    >>> result.scheme
    'fedavg'
    """

    beta2: BelowOne = 0.99

    def grow(self, second: Floats, square: Floats) -> None:
        second *= self.beta2
        second += (1 - self.beta2) * square


@checked("server_optimizer")
class FedYogi(_Adaptive):
    """v follows the squares by steps that do not depend on how far off it is.

    >>> sdfeel.FedYogi(eta=0.01).beta2
    0.99
    """

    beta2: BelowOne = 0.99

    def grow(self, second: Floats, square: Floats) -> None:
        second -= (1 - self.beta2) * square * np.sign(second - square)


SERVER_OPTIMIZERS: dict[str, type[ServerOptimizer]] = {
    "fedavgm": FedAvgM,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
}
