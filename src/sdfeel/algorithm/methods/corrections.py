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

Without rounds clients of a cluster make different numbers of steps, and H_i is of each one's own:

    z_i <- z_i + (w_i - w_d(0)) / H_i - sum_j m-hat_j (w_j - w_d(0)) / H_j

which is the same where all H_i are. The weighted sum of z stays 0; it moves no mean where H_i grows
with the number of steps, as with SGD and one rate. y needs rounds: it is what the neighbours made
of the moves of one R, and by turns they meet after different numbers of steps.

With lambda the smallest eigenvalue of the applied mixing, directions in which the loss is flat are
stable iff gamma < gamma* = 2 (1 + lambda) / (1 - lambda). The default is min(1, 0.9 gamma*).

With a `limit` a step takes (g + z + y) min(1, limit / ||g + z + y||), as MTGC's program has it.

Relatives: with one server z is SCAFFOLD's; MTGC is the tree, unweighted and with everyone present,
and forgets z at every exchange (`mtgc`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BeforeValidator

from sdfeel.algorithm.events import Event
from sdfeel.algorithm.methods.method import Affine, Floats, Method, Period, Row, Rows, Step
from sdfeel.errors import InputError, closest
from sdfeel.network import Averager
from sdfeel.validation import Flag, Positive, checked

if TYPE_CHECKING:
    from torch import Tensor

    from sdfeel.algorithm.algorithm import Algorithm

CORRECTIONS: dict[str, str] = {
    "two-level": "clients inside clusters and clusters among themselves",
    "clients": "clients inside clusters only",
    "servers": "clusters among themselves only",
    "mtgc": "as two-level, and what clients know is forgotten at every exchange",
}
MARGIN = 0.9


def _known(value: Any) -> Any:
    if value not in CORRECTIONS:
        raise InputError("correction.name", value, closest(str(value), CORRECTIONS))
    return value


@checked("correction")
class Correction(Method):
    """Which drift is corrected, and how boldly.

    Args:
        name: a row of `CORRECTIONS`.
        gamma: how much of the servers' drift is taken in at an exchange; None: min(1, 0.9 gamma*).
        guard: refuse a larger gamma than that.
        limit: the largest norm of a client's corrected gradient; None for none.

    >>> sdfeel.Correction("clients").name
    'clients'
    """

    name: Annotated[str, BeforeValidator(_known)] = "two-level"
    gamma: Positive | None = None
    guard: Flag = True
    limit: Positive | None = None

    @property
    def clients(self) -> bool:
        """Whether clients are corrected inside their clusters, by their row z."""
        return self.name != "servers"

    @property
    def servers(self) -> bool:
        """Whether clusters are corrected among themselves, by their row y."""
        return self.name != "clients"

    @property
    def rows(self) -> Mapping[str, Row]:
        z = {"z": Row()} if self.clients else {}
        y = {"y": Row("servers")} if self.servers else {}
        return {**z, **y, "common": Row("servers", new_each_period=True)}

    @property
    def needs(self) -> frozenset[str]:
        words = {"affine", "fresh", "exchanges"}
        words |= {"mean", "dense"} if self.clients else set()
        return frozenset(words | ({"rounds", "one mixing"} if self.servers else {"clusters"}))

    @property
    def affine(self) -> Affine | None:
        if self.limit is not None:
            return None
        return Affine(shift={"z": 1.0, "common": 1.0} if self.clients else {"common": 1.0})

    def on(self, algorithm: Algorithm) -> Correction:
        if not self.servers:
            return self
        if self.name == "servers" and algorithm.network.servers == 1:
            raise InputError("correction", self.name, "one server has nobody to drift away from")
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

    def about(self, algorithm: Algorithm) -> str:
        """Describe the correction on this network in one line."""
        if algorithm.network.servers == 1:
            return f"{self.name}; on one server clients alone are corrected, as SCAFFOLD does"
        if not self.servers:
            return self.name
        limit = stable_gamma(algorithm.averager)
        return f"{self.name}, gamma {self.gamma:.4g} where gamma* is {limit:.4g}"

    def vectors_down(self, algorithm: Algorithm, is_mixed: bool) -> int:
        """Wbar_d, which a client has to know beside its server's new model.

        Where there is one period in a round and gamma = 1, z + y gains (w_i - w_d) / H, which it
        knows; with one server wbar_d is the new model. Without rounds it has to know the mean move.
        """
        if "rounds" in algorithm.pace.breaks:
            return 1
        if algorithm.network.servers == 1 or not is_mixed:
            return 0
        is_whole = self.name == "two-level" and self.gamma == 1.0
        return 0 if is_whole and algorithm.schedule.at(0).tau2 == 1 else 1

    def prepare(
        self,
        rows: Sequence[Rows | None],
        periods: Sequence[Period],
        mean: Callable[[str, Mapping[int, float]], Floats],
    ) -> None:
        centre: Any = 0.0
        if self.servers:
            busy = [period.server for period in periods if len(period.clients)]
            if 0 < len(busy) < len(periods):  # else it is 0
                shares = periods[0].algorithm.network.shares.cluster
                total = shares[busy].sum()
                centre = mean("y", {server: float(shares[server] / total) for server in busy})
        for rows_of_group, period in zip(rows, periods, strict=True):
            if rows_of_group is None:
                continue
            rows_of_group["common"][:] = rows_of_group["y"] - centre if self.servers else 0.0
            if self.clients and period.fraction < 1:
                for share, z in zip(period.shares, rows_of_group["z"], strict=True):
                    rows_of_group["common"][:] -= z * z.dtype.type(share)

    def gradient(self, g: Tensor, w: Tensor, rows: Rows, step: Step) -> Tensor:
        corrected: Tensor = g + (rows["z"] + rows["common"] if self.clients else rows["common"])
        if self.limit is not None:
            norm = corrected.norm(dim=-1, keepdim=True)
            corrected = corrected * (self.limit / norm.clamp_min(self.limit))
        return corrected

    def learn(self, moved: Floats, move: Floats, rows: Rows, period: Period) -> None:
        reach = period.reach
        if not self.clients or not (reach > 0).all():
            return
        if (reach == reach[0]).all():  # as in rounds
            rows["z"][:] += moved / float(reach[0])
            rows["z"][:] -= move / float(reach[0])
        else:
            slopes = moved / reach[:, None]
            rows["z"][:] += slopes - period.shares @ slopes

    def ended(
        self, before: Floats, after: Floats, rows: Rows, event: Event, algorithm: Algorithm
    ) -> None:
        if event.mixing is None or not self.servers:
            return
        reach = algorithm.reach_of_round(event)
        if reach > 0:
            gamma = 1.0 if self.gamma is None else self.gamma
            rows["y"][:] += (before - after) * (gamma / reach)
        if self.name == "mtgc":
            rows["z"][:] = 0.0


def stable_gamma(averager: Averager) -> float:
    """gamma* = 2 (1 + lambda) / (1 - lambda), lambda the smallest eigenvalue of the mixing."""
    root = np.sqrt(averager.shares)
    mixing = averager.operator / root[:, None] * root[None, :]
    smallest = float(np.linalg.eigvalsh((mixing + mixing.T) / 2)[0])
    return math.inf if smallest >= 1 - 1e-12 else max(0.0, 2 * (1 + smallest) / (1 - smallest))
