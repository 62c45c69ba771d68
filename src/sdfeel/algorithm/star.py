"""Stars without rounds: a cloud takes each client's model when it comes, and nobody waits.

Every client takes the cloud's model, makes tau steps and hands its own in. With tau_i the number of
updates of the cloud's model since the client took it (0: none in between),

    fedasync  w <- (1 - a_i) w + a_i w_i,  a_i = mixing (1 + tau_i)^-power
              Xie, Koyejo, Gupta: Asynchronous Federated Optimization, arXiv 1903.03934
    fedbuff   w <- w + (rate / size) sum_i (w_i - w_i(0)) / sqrt(1 + tau_i), once `size` have come
              Nguyen et al.: Federated Learning with Buffered Asynchronous Aggregation,
              arXiv 2106.06639

Clients count alike, whatever data they hold, as published.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.pace import TurnPace
from sdfeel.algorithm.turns import Agenda, Flow, Part
from sdfeel.errors import InputError

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm

__all__ = ["FedAsync", "FedBuff", "StarPace"]


class StarPace(TurnPace):
    """One server, whose clients come when they are ready."""

    def check(self, algorithm: Algorithm) -> None:
        if algorithm.network.servers != 1:
            raise InputError("pace", self, "is of a star: use it with scheme fedasync or fedbuff")

    def agenda(self, algorithm: Algorithm) -> Agenda:
        network, uplink = algorithm.network, algorithm.uplink
        sending = uplink.seconds(np.ones(network.clients, dtype=bool))
        groups = tuple(np.array([client]) for client in range(network.clients))
        length = algorithm.schedule.tau1 * uplink.latencies.t_cmp + sending
        return StarAgenda(algorithm, groups, length, self)

    @abstractmethod
    def takes(self, staleness: int, number: int) -> tuple[float, float, float, bool]:
        """Keep, the client's weight, that of what it began from, and whether the cloud waits.

        number  how many clients have come, this one included
        """


@dataclass(frozen=True)
class FedAsync(StarPace):
    """w <- (1 - a) w + a w_i at every arrival, a = mixing (1 + staleness)^-power."""

    mixing: float = 0.6
    power: float = 0.5

    def __post_init__(self) -> None:
        _between("pace.mixing", self.mixing, 1.0)
        if not isinstance(self.power, int | float) or not 0 <= self.power < math.inf:
            raise InputError("pace.power", self.power, "a number, not below 0")

    def takes(self, staleness: int, number: int) -> tuple[float, float, float, bool]:  # noqa: ARG002
        a = self.mixing * (1 + staleness) ** -self.power
        return 1 - a, a, 0.0, False


@dataclass(frozen=True)
class FedBuff(StarPace):
    """The cloud moves once `size` clients have come, by `rate` times their mean difference."""

    size: int = 10
    rate: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise InputError("pace.size", self.size, "a whole number, at least 1")
        _between("pace.rate", self.rate, math.inf)

    def takes(self, staleness: int, number: int) -> tuple[float, float, float, bool]:
        weight = self.rate / self.size / math.sqrt(1 + staleness)
        return 1.0, weight, weight, number % self.size != 0


@dataclass(eq=False)
class StarAgenda(Agenda):
    """A group is one client."""

    pace: StarPace
    version: int = field(init=False, default=0)  # updates of the cloud's model
    came: int = field(init=False, default=0)
    taken: NDArray[np.int64] = field(init=False)  # the version that each client began from

    def __post_init__(self) -> None:
        super().__post_init__()
        self.taken = np.zeros(len(self.groups), dtype=np.int64)

    def server_of(self, group: int) -> int:  # noqa: ARG002 - there is one
        return 0

    @property
    def made(self) -> NDArray[np.int64]:
        return self.turns * self.algorithm.schedule.tau1

    def copy(self) -> Agenda:
        other = super().copy()
        assert isinstance(other, StarAgenda)  # noqa: S101 - a copy is of the same kind
        other.taken = self.taken.copy()
        return other

    def numbers(self) -> dict[str, NDArray[np.float64]]:
        columns = [self.taken, np.full_like(self.taken, self.version)]
        columns.append(np.full_like(self.taken, self.came))
        return super().numbers() | {"groups.versions": np.stack(columns, axis=1).astype(float)}

    def restore(self, numbers: Mapping[str, Any]) -> None:
        super().restore(dict(numbers))
        found = numbers["groups.versions"].astype(np.int64)
        self.taken, self.version, self.came = found[:, 0], int(found[0, 1]), int(found[0, 2])

    def part(self, group: int) -> Part:
        algorithm, own = self.algorithm, self.groups[group]
        there = algorithm.participation.present(int(self.turns[group]))[own]
        if algorithm.uplink.presence is not None and there.all():
            span = self.begun[[group]], self.length[[group]]
            there = algorithm.uplink.presence.stay(own, *span)
        client = own[there]
        keep, weight, total, waits = 1.0, 0.0, 0.0, True
        if len(client):
            self.came += 1
            staleness = self.version - int(self.taken[group])
            keep, weight, total, waits = self.pace.takes(staleness, self.came)
            self.version += not waits
        self.taken[group] = self.version
        first = self.iterations[client] + 1
        last = first + algorithm.schedule.tau1 - 1
        return Part(client, first, last, np.full(len(client), weight), total, keep, waits)

    def mixing(self, group: int) -> Flow | None:  # noqa: ARG002 - nobody to mix with
        return None

    def seconds_after(self, group: int, part: Part, flow: Flow | None) -> float:  # noqa: ARG002
        return self.seconds_down(group, part)


def _between(field_name: str, value: object, most: float) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not 0 < value <= most or not math.isfinite(value):  # type: ignore[operator,arg-type]
        raise InputError(
            field_name, value, "above 0" + ("" if most == math.inf else f", to {most:g}")
        )
