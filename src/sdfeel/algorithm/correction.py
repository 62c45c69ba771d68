"""Two-level drift correction: what pulls clients and servers apart is estimated and taken back.

Clients of a cluster drift apart between two uploads, clusters between two exchanges, because their
data differ. Each client adds z_i + y_d to its gradients, both zero at the start:

    after an intra-cluster aggregation, for every present client i of cluster d
        z_i <- z_i + (w_i - wbar_d) / H                      wbar_d: the cluster's mean, eq. (3)
    after an inter-cluster aggregation
        y_d <- y_d + gamma (wbar_d - w_d) / R                w_d: after the exchanges, eq. (5)

H is by how much a constant gradient of 1 would have moved a model in the period, R in the round:
for SGD the sums of eta_k. The weighted sums of z over a cluster and of y over the clusters stay 0,
so neither moves the weighted mean. With absent clients the z and y in use are re-centred over those
present.

With lambda the smallest eigenvalue of the applied mixing, directions in which the loss is flat are
stable iff gamma < gamma* = 2 (1 + lambda) / (1 - lambda). The default is min(1, 0.9 gamma*).

Relatives: with one server z is SCAFFOLD's; MTGC is the tree, unweighted and with everyone present,
and forgets z at every exchange (`mtgc`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sdfeel.errors import InputError, closest
from sdfeel.network import Averager

if TYPE_CHECKING:
    from torch import Tensor

    from sdfeel.algorithm.algorithm import Algorithm

__all__ = ["CORRECTIONS", "Correction", "correction_of", "stable_gamma"]

CORRECTIONS: dict[str, str] = {
    "two-level": "clients inside clusters and clusters among themselves",
    "clients": "clients inside clusters only",
    "servers": "clusters among themselves only",
    "mtgc": "as two-level, and what clients know is forgotten at every exchange",
}
MARGIN = 0.9


@dataclass(frozen=True)
class Correction:
    """Which drift is corrected, and how boldly. One's own is a subclass with other steps.

    name   a row of `CORRECTIONS`
    gamma  how much of the servers' drift is taken in at an exchange; None: min(1, 0.9 gamma*)
    guard  refuse a larger gamma than that
    """

    name: str = "two-level"
    gamma: float | None = None
    guard: bool = True

    def __post_init__(self) -> None:
        if self.name not in CORRECTIONS:
            raise InputError("correction.name", self.name, closest(str(self.name), CORRECTIONS))
        if self.gamma is not None:
            real = isinstance(self.gamma, int | float) and not isinstance(self.gamma, bool)
            if not real or not (math.isfinite(self.gamma) and self.gamma > 0):
                raise InputError("correction.gamma", self.gamma, "a finite number above 0")
        if not isinstance(self.guard, bool):
            raise InputError("correction.guard", self.guard, "true or false")

    @property
    def clients(self) -> bool:
        """Whether clients are corrected inside their clusters: z."""
        return self.name != "servers"

    @property
    def servers(self) -> bool:
        """Whether clusters are corrected among themselves: y."""
        return self.name != "clients"

    @property
    def forgets(self) -> bool:
        """Whether z begins anew after every exchange."""
        return self.name == "mtgc"

    def of_clients(self, moved: Tensor, reach: float) -> Tensor:
        """What z gains, a row for each client: moved is w_i - wbar_d, reach H. Linear in `moved`:
        it is asked for w_i and for wbar_d apart.
        """
        return moved / reach

    def of_servers(self, moved: Tensor, reach: float) -> Tensor:
        """What y gains, a row for each server: moved is wbar_d - w_d, reach R."""
        return moved * ((1.0 if self.gamma is None else self.gamma) / reach)

    def on(self, algorithm: Algorithm) -> Correction:
        """With its gamma on this network; what cannot work is refused."""
        self._check_rule(algorithm)
        if not self.servers:
            return self
        limit = stable_gamma(algorithm.averager)
        most = min(1.0, MARGIN * limit)
        if self.gamma is None:
            return replace(self, gamma=most)
        if self.guard and self.gamma > most * (1 + 1e-9):
            raise InputError(
                "correction.gamma",
                self.gamma,
                f"at most {most:.4g}: flat directions are stable iff gamma < gamma* = "
                f"2 (1 + lambda) / (1 - lambda) = {limit:.4g} here, with lambda the smallest "
                "eigenvalue of the applied mixing; correction.guard = false asks for it all "
                "the same",
            )
        return self

    def _check_rule(self, algorithm: Algorithm) -> None:
        local = algorithm.local
        if local.affine is None:
            raise InputError(
                "correction",
                self.name,
                f"the local rule {type(local).__name__} is not affine in the gradient: how far a "
                "client moved does not say what its gradients were; use sgd or momentum",
            )
        if local.remembers:
            raise InputError(
                "local.memory",
                local.memory,
                "a correction needs what is new in every period: reset",
            )
        if self.clients and algorithm.rule is not None:
            raise InputError(
                "correction",
                self.name,
                "needs servers that take the mean of their clients, eq. (3)",
            )
        if self.name == "servers" and algorithm.network.servers == 1:
            raise InputError("correction", self.name, "one server has nobody to drift away from")

    def about(self, algorithm: Algorithm) -> str:
        """In one line, what it is on this network."""
        if algorithm.network.servers == 1:
            return f"{self.name}; on one server clients alone are corrected, as SCAFFOLD does"
        if not self.servers:
            return self.name
        limit = stable_gamma(algorithm.averager)
        return f"{self.name}, gamma {self.gamma:.4g} where gamma* is {limit:.4g}"

    def vectors_down(self, algorithm: Algorithm) -> int:
        """Vectors that a client needs at an exchange beside its server's new model.

        It has to know wbar_d. Where there is one period in a round and gamma = 1, z + y gains
        (w_i - w_d) / H, which it knows; with one server wbar_d is the new model.
        """
        if algorithm.network.servers == 1:
            return 0
        whole = self.name == "two-level" and self.gamma == 1.0
        return 0 if whole and algorithm.schedule.tau2 == 1 else 1


def stable_gamma(averager: Averager) -> float:
    """gamma* = 2 (1 + lambda) / (1 - lambda), lambda the smallest eigenvalue of the mixing."""
    root = np.sqrt(averager.shares)
    mixing = averager.operator / root[:, None] * root[None, :]
    smallest = float(np.linalg.eigvalsh((mixing + mixing.T) / 2)[0])
    return math.inf if smallest >= 1 - 1e-12 else max(0.0, 2 * (1 + smallest) / (1 - smallest))


def correction_of(correction: str | Correction | None) -> Correction | None:
    """A correction by its name or as an object; "none" is none."""
    if correction is None or correction == "none" or isinstance(correction, Correction):
        return None if correction == "none" else correction  # type: ignore[return-value]
    if not isinstance(correction, str):
        raise InputError(
            "correction", correction, "a name, or an object such as sdfeel.Correction(gamma=0.5)"
        )
    return Correction(correction)
