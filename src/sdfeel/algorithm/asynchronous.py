"""The asynchronous pace: every server has its own deadline and waits for no other cluster.

Client i of server d makes theta_i steps in the server's time T_d, upload included. With w_d(0) what
they began from, m-hat over those who made a step, and thetabar_d = sum_i m-hat_i theta_i,

    w_d <- w_d - s_d thetabar_d sum_i m-hat_i (w_d(0) - w_i) / theta_i        normalised

which is eq. (3) where all theta_i are equal and neighbours left w_d alone. Every tau2-th time d
then mixes with its neighbours, delta_j the number of aggregations, of anybody, since j's last:

    mean-preserving  c_dj = psi(delta_j) min(m~_d, m~_j) / (1 + the largest degree)
                     w_d <- w_d + sum_j (c_dj / m~_d) (w_j - w_d)
                     w_j <- w_j - (c_dj / m~_j) (w_j - w_d)             with the w_d from before
    stale-weights    w_d <- the mean of w_d and w_j, weights m~_d psi(0) and m~_j psi(delta_j)

The first leaves the weighted mean of all servers where it is. The second is our reading of arXiv
2112.04737 and 2112.10313, whose text we do not have. Fast clusters pull the model to their data, so

    s_d = (the slowest rate / rate_d)^a,     rate_d = thetabar_d / T_d: steps a second

a being `compensation`, to which it rises from 0 within the first `anneal` seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.pace import TurnPace
from sdfeel.algorithm.turns import Agenda, Flow, Part
from sdfeel.errors import InputError, closest

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm

__all__ = ["PSI", "Asynchronous", "ClusterAgenda", "Times", "normalised", "times_of"]

Array = NDArray[np.float64]
MIXINGS = ("mean-preserving", "stale-weights")

# psi(delta, servers): how much an old model of a neighbour counts.
PSI: dict[str, Callable[[int, int], float]] = {
    "aggregations": lambda delta, _: 1 / (2 * (delta + 1)),
    "rounds": lambda delta, servers: 1 / (2 * (delta / servers + 1)),
    "constant": lambda *_: 0.5,
}


@dataclass(frozen=True)
class Asynchronous(TurnPace):
    """Nobody waits for another cluster.

    deadline      T_d in seconds, for computing and uploading: one for all servers, or a list; None:
                  the median client of a cluster makes tau1 steps, and everybody at least one
    mixing        "mean-preserving", or "stale-weights": where only the server that is ready moves
    compensation  a from 0 to 1: 1 takes all advantage from fast clusters, 0 leaves it to them
    anneal        seconds within which a rises from 0 to `compensation`
    psi           "aggregations": 1 / (2 (delta + 1)); "rounds": delta counted in rounds of all
                  servers; "constant": 1/2; or a function of delta, with values from 0 to 1
    """

    deadline: float | tuple[float, ...] | None = None
    mixing: Literal["mean-preserving", "stale-weights"] = "mean-preserving"
    compensation: float = 1.0
    anneal: float = 0.0
    psi: str | Callable[[int], float] = "aggregations"

    def __post_init__(self) -> None:
        if isinstance(self.deadline, list):
            object.__setattr__(self, "deadline", tuple(self.deadline))
        given = self.deadline if isinstance(self.deadline, tuple) else (self.deadline,)
        for each in given if self.deadline is not None else ():
            if not _real(each) or each is None or each <= 0:
                raise InputError("pace.deadline", each, "seconds above 0")
        if self.mixing not in MIXINGS:
            raise InputError("pace.mixing", self.mixing, closest(str(self.mixing), MIXINGS))
        if not _real(self.compensation) or not 0 <= self.compensation <= 1:
            raise InputError("pace.compensation", self.compensation, "a number from 0 to 1")
        if not _real(self.anneal) or self.anneal < 0:
            raise InputError("pace.anneal", self.anneal, "seconds, not below 0")
        if not callable(self.psi) and self.psi not in PSI:
            raise InputError("pace.psi", self.psi, closest(str(self.psi), PSI))

    def check(self, algorithm: Algorithm) -> None:
        times_of(self, algorithm)

    def agenda(self, algorithm: Algorithm) -> Agenda:
        groups = tuple(np.array(own) for own in algorithm.network.clusters.members)
        times = times_of(self, algorithm)
        return ClusterAgenda(algorithm, groups, times.deadline, self, times)

    def weight(self, delta: int, servers: int) -> float:
        """psi(delta)."""
        if not callable(self.psi):
            return PSI[self.psi](delta, servers)
        found = float(self.psi(delta))
        if not 0 <= found <= 1:
            raise InputError("pace.psi", found, f"psi({delta}) must lie between 0 and 1")
        return found

    def exponent(self, at: float) -> float:
        """a, at this second."""
        return self.compensation * (min(1.0, at / self.anneal) if self.anneal else 1.0)

    def scale(self, rate: float, slowest: float, at: float) -> float:
        """s_d of a server with this rate."""
        return 1.0 if rate == slowest else float((slowest / rate) ** self.exponent(at))

    def flow(self, own: float, other: float, psi: float, degree: int) -> float:
        """c_dj between servers with these shares; `degree` is the largest of all."""
        return psi * min(own, other) / (1 + degree)

    def stale_weights(
        self, own: float, others: Sequence[float], psi: Sequence[float], servers: int
    ) -> tuple[float, ...]:
        """What each neighbour's model counts where only the server that is ready moves."""
        weights = [share * each for share, each in zip(others, psi, strict=True)]
        total = sum(weights) + own * self.weight(0, servers)
        return tuple(float(each / total) if total > 0 else 0.0 for each in weights)


def normalised(samples: Array, steps: NDArray[np.int64]) -> tuple[Array, float]:
    """What each client's model counts in the normalised aggregation: m-hat_i thetabar_d / theta_i,
    of those who made a step; and what their server's model w_d(0) does.
    """
    weights = samples / samples.sum() if len(samples) else samples
    if len(samples) and (steps != steps[0]).any():
        weights = weights * (weights @ steps) / steps
        return weights, float(weights.sum())
    return weights, 1.0 if len(samples) else 0.0


@dataclass(frozen=True, eq=False)
class Times:
    """What the clusters of an algorithm do in their time, with everybody there.

    deadline  T_d of each server;  steps: theta_i, 0 for who cannot make one
    mean      thetabar_d;  rate: thetabar_d / T_d
    """

    deadline: Array
    steps: NDArray[np.int64]
    mean: Array
    rate: Array


def times_of(pace: Asynchronous, algorithm: Algorithm) -> Times:
    """Deadlines and steps; a deadline in which a cluster gets nothing done is refused."""
    network, uplink, tau1 = algorithm.network, algorithm.uplink, algorithm.schedule.tau1
    step, server_of = uplink.latencies.t_cmp, network.clusters.server_of
    sending = uplink.seconds(np.ones(network.clients, dtype=bool))
    members = [np.array(own) for own in network.clusters.members]
    if pace.deadline is None:
        usual = [np.sort((tau1 * step + sending)[own])[len(own) // 2] for own in members]
        once = [(step + sending)[own].max() for own in members]
        deadline = np.maximum(usual, once)
    elif isinstance(pace.deadline, tuple) and len(pace.deadline) != network.servers:
        remedy = f"one number, or a list of {network.servers}: one a server"
        raise InputError("pace.deadline", list(pace.deadline), remedy)
    else:
        deadline = np.broadcast_to(np.array(pace.deadline, dtype=float), network.servers).copy()
    # Who needs just as long is in time, whatever the last digits of a quotient say.
    steps = np.floor((deadline[server_of] - sending) / step * (1 + 1e-9) + 1e-9).astype(np.int64)
    steps = np.maximum(steps, 0)
    shares = network.shares.within_present(steps > 0)
    mean = np.zeros(network.servers)
    np.add.at(mean, server_of, shares * steps)
    for server in np.flatnonzero(mean == 0):
        least = (step + sending)[members[server]].min()
        raise InputError(
            "pace.deadline",
            float(deadline[server]),
            f"nobody of server {server} can finish a step and its upload in that time: the "
            f"fastest of its clients needs {least:.4g} s",
        )
    return Times(deadline, steps, mean, mean / deadline)


@dataclass(eq=False)
class ClusterAgenda(Agenda):
    """A group is a server's cluster."""

    pace: Asynchronous
    times: Times
    count: int = field(init=False, default=0)  # aggregations of anybody
    latest: NDArray[np.int64] = field(init=False)  # the number of each server's last

    def __post_init__(self) -> None:
        super().__post_init__()
        self.latest = np.zeros(len(self.groups), dtype=np.int64)

    def server_of(self, group: int) -> int:
        return group

    @property
    def made(self) -> NDArray[np.int64]:
        return np.floor(self.turns * self.times.mean + 1e-6).astype(np.int64)

    def copy(self) -> Agenda:
        other = super().copy()
        assert isinstance(other, ClusterAgenda)  # noqa: S101 - a copy is of the same kind
        other.latest = self.latest.copy()
        return other

    def numbers(self) -> dict[str, Array]:
        latest = np.stack([self.latest, np.full_like(self.latest, self.count)], axis=1)
        return super().numbers() | {"servers.latest": latest.astype(float)}

    def restore(self, numbers: Mapping[str, Any]) -> None:
        super().restore(dict(numbers))
        self.latest = numbers["servers.latest"][:, 0].astype(np.int64)
        self.count = int(numbers["servers.latest"][0, 1])

    def part(self, group: int) -> Part:
        """Normalised aggregation over those who are there and make a step."""
        algorithm, own = self.algorithm, self.groups[group]
        there = algorithm.participation.present(int(self.turns[group]))[own]
        there &= self.times.steps[own] > 0
        presence = algorithm.uplink.presence
        if presence is not None:
            asked = own[there]
            begin = np.full(len(asked), self.begun[group])
            there[there] = presence.stay(asked, begin, np.full(len(asked), self.length[group]))
        clients = own[there]
        steps = self.times.steps[clients]
        counts = np.array(algorithm.network.shares.samples)[clients]
        weights, total = normalised(counts, steps)
        rate, at = self.times.rate, float(self.ready[group])
        scale = self.pace.scale(float(rate[group]), float(rate.min()), at)
        shares = counts / counts.sum() if len(clients) else counts
        unequal = len(clients) and (steps != steps[0]).any()
        stretch = (shares @ steps) / steps if unequal else np.ones(len(clients))
        first = self.iterations[clients] + 1
        self.count += 1
        self.latest[group] = self.count
        return Part(
            clients,
            first,
            first + steps - 1,
            scale * weights,
            scale * total,
            scale=scale,
            shares=shares,
            stretch=stretch,
        )

    def mixing(self, group: int) -> Flow | None:
        near = tuple(self.algorithm.network.neighbours(group))
        if not near or self.turns[group] % self.algorithm.schedule.tau2:
            return None
        many = len(self.groups)
        psi = [self.pace.weight(self.count - int(self.latest[j]), many) for j in near]
        shares = self.algorithm.network.shares.cluster
        if self.pace.mixing == "stale-weights":
            inward = self.pace.stale_weights(shares[group], [shares[j] for j in near], psi, many)
            return Flow(group, near, inward, (0.0,) * len(near))
        c = [
            self.pace.flow(shares[group], shares[j], own, self._degree)
            for j, own in zip(near, psi, strict=True)
        ]
        return Flow(
            group,
            near,
            tuple(float(own / shares[group]) for own in c),
            tuple(float(own / shares[j]) for j, own in zip(near, c, strict=True)),
        )

    @cached_property
    def _degree(self) -> int:
        return max(int(degree) for _, degree in self.algorithm.network.graph.degree())

    def seconds_after(self, group: int, part: Part, flow: Flow | None) -> float:
        """A model to and from each neighbour at the same time; then down to the clients."""
        times = self.algorithm.uplink.latencies
        sent = 0.0
        if flow is not None:
            sent = max(times.link(group, j) for j in flow.neighbours) + times.per_message
        return sent + self.seconds_down(group, part)


def _real(value: object) -> bool:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and math.isfinite(value)  # type: ignore[arg-type]
