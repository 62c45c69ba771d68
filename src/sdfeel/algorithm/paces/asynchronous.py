"""The asynchronous pace: every server has its own deadline and waits for no other cluster.

Client i of server d makes theta_i steps in the server's time T_d, upload included. With w_d(0) what
they began from, m-hat over those who made a step, and thetabar_d = sum_i m-hat_i theta_i,

    w_d <- w_d - s_d thetabar_d sum_i m-hat_i (w_d(0) - w_i) / theta_i        normalised

which is eq. (3) where all theta_i are equal and neighbours left w_d alone. Every tau2-th time d
then mixes with its neighbours, delta_j the number of aggregations, by any server, since j's last:

    mean-preserving  c_dj = psi(delta_j) min(m~_d, m~_j) / (1 + the largest degree)
                     w_d <- w_d + sum_j (c_dj / m~_d) (w_j - w_d)
                     w_j <- w_j - (c_dj / m~_j) (w_j - w_d)             with the w_d from before
    stale-weights    w_d <- the mean of w_d and w_j, weights m~_d psi(0) and m~_j psi(delta_j)

The first leaves the weighted mean of all servers where it is. The second is our reading of arXiv
2112.04737 and 2112.10313, whose text we do not have. Fast clusters pull the model to their data, so

    s_d = (the slowest rate / rate_d)^a,     rate_d = thetabar_d / T_d: steps a second

a being `compensation`, to which it rises from 0 within the first `anneal` seconds. Where all
servers are ready at the same moment, they do what Algorithm 1 does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator

from sdfeel.algorithm.events import Array, Event, Group, Indices
from sdfeel.algorithm.paces.pace import Pace, bytes_sent
from sdfeel.clock import EventClock
from sdfeel.errors import InputError, closest
from sdfeel.network import Averager
from sdfeel.validation import Anything, NotNegative, OneOrEach, checked, real

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm

# psi(delta, servers): how much an old model of a neighbour counts.
PSI: dict[str, Callable[[int, int], float]] = {
    "aggregations": lambda delta, _: 1 / (2 * (delta + 1)),
    "rounds": lambda delta, servers: 1 / (2 * (delta / servers + 1)),
    "constant": lambda *_: 0.5,
}


def _psi(value: Any) -> Any:
    if not callable(value) and value not in PSI:
        raise InputError("pace.psi", value, closest(str(value), PSI))
    return value


Compensation = Annotated[float, real(lambda x: 0 <= x <= 1, "a number from 0 to 1")]


@checked("pace")
class Asynchronous(Pace):
    """Asynchronous servers: no cluster waits for another one.

    Args:
        deadline: T_d in seconds, for computing and uploading: one for all servers, or a list. By
            default the median client of a cluster (of two, the slower one) makes tau1 steps, and
            every client at least one.
        mixing: "mean-preserving", or "stale-weights": only the server that is ready moves.
        compensation: a from 0 to 1: 1 takes all advantage from fast clusters, 0 leaves it to them.
        anneal: seconds within which a rises from 0 to `compensation`.
        psi: "aggregations": 1 / (2 (delta + 1)); "rounds": delta counted in rounds of all servers;
            "constant": 1/2; or a function of delta with values from 0 to 1.

    >>> sdfeel.Asynchronous(deadline=2.0, compensation=0.5).mixing
    'mean-preserving'
    """

    needs: ClassVar[frozenset[str]] = frozenset({"one schedule", "one mixing"})
    breaks: ClassVar[frozenset[str]] = frozenset({"rounds"})
    counts_steps: ClassVar[bool] = True

    deadline: OneOrEach | None = None
    mixing: Literal["mean-preserving", "stale-weights"] = "mean-preserving"
    compensation: Compensation = 1.0
    anneal: NotNegative = 0.0
    psi: Annotated[Anything, BeforeValidator(_psi)] = "aggregations"

    @property
    def kind(self) -> str:
        return f"asynchronous, compensation {self.compensation:g}"

    def deadlines(self, algorithm: Algorithm) -> list[float]:
        of_servers: list[float] = times_of(self, algorithm).deadline.tolist()
        return of_servers

    def check(self, algorithm: Algorithm) -> None:
        times_of(self, algorithm)

    def weight(self, delta: int, servers: int) -> float:
        """psi(delta)."""
        if not callable(self.psi):
            return PSI[self.psi](delta, servers)
        psi = float(self.psi(delta))
        if not 0 <= psi <= 1:
            raise InputError("pace.psi", psi, f"psi({delta}) must lie between 0 and 1")
        return psi

    def scale(self, rate: float, slowest: float, at: float) -> float:
        """s_d of a server with this rate, at this second."""
        exponent = self.compensation * (min(1.0, at / self.anneal) if self.anneal else 1.0)
        return 1.0 if rate == slowest else float((slowest / rate) ** exponent)

    def flow(self, share: float, other: float, psi: float, degree: int) -> float:
        """c_dj between servers with these shares; `degree` is the largest of all."""
        return psi * min(share, other) / (1 + degree)

    def stale_weights(
        self, share_of_server: float, others: Sequence[float], psi: Sequence[float], servers: int
    ) -> tuple[float, ...]:
        """Return each neighbour's weight where only the server that is ready moves."""
        weights = [share * each for share, each in zip(others, psi, strict=True)]
        total = sum(weights) + share_of_server * self.weight(0, servers)
        return tuple(float(each / total) if total > 0 else 0.0 for each in weights)

    def events(self, algorithm: Algorithm, steps: float = math.inf) -> Iterator[Event]:
        clusters = _Clusters(self, algorithm)
        for number in count():
            at = clusters.ready
            together = clusters.are_together
            servers = list(range(len(at))) if together else [int(np.argmin(at))]
            groups = tuple(clusters.hand_in(server) for server in servers)
            yield clusters.event(number, at, servers, groups, together)


class _Clusters:
    """The variables of an asynchronous run: where every cluster stands.

    begun       when its present period began; turns: how many it has ended
    iterations  of each client
    latest      the number of each server's last aggregation, of `aggregations` by any server
    """

    def __init__(self, pace: Asynchronous, algorithm: Algorithm) -> None:
        self.pace, self.algorithm = pace, algorithm
        network = algorithm.network
        self.times = times_of(pace, algorithm)
        self.members = [np.array(clients) for clients in network.clusters.members]
        self.samples = np.array(network.shares.samples)
        self.sending = algorithm.uplink.seconds(np.ones(network.clients, dtype=bool))
        self.begun, self.waited = np.zeros(network.servers), np.zeros(network.servers)
        self.turns = np.zeros(network.servers, dtype=np.int64)
        self.latest, self.aggregations = self.turns.copy(), 0
        self.iterations = np.zeros(network.clients, dtype=np.int64)
        self.tau2 = algorithm.schedule.at(0).tau2
        self.degree = max(int(degree) for _, degree in network.graph.degree())

    @property
    def ready(self) -> Array:
        """Return when the deadline of each cluster is over."""
        return self.begun + self.times.deadline

    @property
    def made(self) -> Indices:
        """Iterations of each cluster."""
        return np.floor(self.turns * self.times.mean + 1e-6).astype(np.int64)

    @property
    def are_together(self) -> bool:
        """Return whether all servers are ready at the same moment, after as many periods."""
        ready, turns = self.ready, self.turns
        return len(ready) > 1 and bool((ready == ready[0]).all() and (turns == turns[0]).all())

    def hand_in(self, server: int) -> Group:
        """Count the period that a server ends now: the normalised aggregation."""
        members, pace, times = self.members[server], self.pace, self.times
        present = self.algorithm.participation.among(members, int(self.turns[server]))
        present &= times.steps[members] > 0
        clients = members[present]
        begin, length = (np.full(len(clients), x[server]) for x in (self.begun, times.deadline))
        clients = clients[self.algorithm.uplink.stay(clients, begin, length)]
        steps, samples = times.steps[clients], self.samples[clients]
        shares = samples / samples.sum() if len(clients) else samples
        is_unequal = len(clients) > 0 and bool((steps != steps[0]).any())
        rate, at = times.rate, float(self.ready[server])
        scale = pace.scale(float(rate[server]), float(rate.min()), at)
        first = self.iterations[clients] + 1
        last = first + steps - 1
        self.iterations[clients] = last
        self.turns[server] += 1
        self.aggregations += 1
        self.latest[server] = self.aggregations
        stretch = (shares @ steps) / steps if is_unequal else None
        k = int(self.made[server])
        return Group(server, server, k, clients, first, last, shares, stretch, scale, follow=scale)

    def event(
        self, number: int, at: Array, servers: list[int], groups: tuple[Group, ...], together: bool
    ) -> Event:
        """Mix the models of these servers, if it is time, and begin their next periods."""
        algorithm = self.algorithm
        is_inter = self.turns[servers[0]] % self.tau2 == 0
        mixing: Averager | None = None
        done, wait = at, np.zeros(len(at))
        if is_inter and together:
            mixing = algorithm.mixing(0)
            clock = EventClock(algorithm.network, algorithm.uplink)
            clock.at = at.copy()
            clock.exchange(mixing)
            done, wait = clock.at, clock.waited
        elif is_inter:
            mixing = self._swap(servers[0])
        exchange = np.zeros(len(at))
        if mixing is not None and not together:
            times = algorithm.uplink.latencies
            exchange[servers[0]] = max(times.link(*link) for link in mixing.links or ())
            exchange[servers[0]] += times.per_message
        down = np.array([self._seconds_down(group, mixing is not None) for group in groups])
        begun = self.begun[servers]
        self.begun = self.begun.copy()
        self.begun[servers] = done[servers] + (exchange[servers] + down)
        self.waited = self.waited + wait
        compute, done_by = (
            np.array([part.max(initial=0.0) for part in parts])
            for parts in zip(*(self._seconds_of(group) for group in groups), strict=True)
        )
        return Event(
            number=number,
            k=int(self.made.min()),
            at=float(at[servers].max()),
            ends=float(self.begun.max()),
            groups=groups,
            mixing=mixing,
            begun=begun,
            spans={
                "compute": compute,
                "upload": done_by - compute,
                "slack": np.maximum(self.times.deadline[servers] - done_by, 0.0),
                "wait": wait[servers],
                "exchange": (done - at - wait + exchange)[servers],
                "download": down,
            },
            waited=self.waited,
            bytes=bytes_sent(algorithm, sum(len(group.clients) for group in groups), mixing),
        )

    def _seconds_of(self, group: Group) -> tuple[Array, Array]:
        """Return the seconds of each client's local updates, and of those with its upload."""
        steps = self.times.steps[group.clients]
        computing: Array = steps * self.algorithm.uplink.latencies.t_cmp[group.clients]
        return computing, computing + self.sending[group.clients]

    def _swap(self, server: int) -> Averager | None:
        """Return how a server mixes with its neighbours alone: an exchange among them."""
        network, pace = self.algorithm.network, self.pace
        near = network.neighbours(server)
        if not near:
            return None
        among, many, m = sorted([server, *near]), network.servers, network.shares.cluster
        psi = [pace.weight(self.aggregations - int(self.latest[j]), many) for j in near]
        place, others = among.index(server), [among.index(j) for j in near]
        weights = np.zeros((len(among), len(among)))
        if pace.mixing == "stale-weights":
            weights[others, place] = pace.stale_weights(m[server], list(m[near]), psi, many)
        else:
            pairs = zip(near, psi, strict=True)
            flow = np.array([pace.flow(m[server], m[j], each, self.degree) for j, each in pairs])
            weights[others, place], weights[place, others] = flow / m[server], flow / m[near]
        A = np.diag(weights.sum(axis=0)) - weights
        links = tuple((server, j) for j in near)
        return Averager(
            "swap", "neighbours", m[among], A, (1.0,), 1.0, 1.0, links=links, among=tuple(among)
        )

    def _seconds_down(self, group: Group, is_mixed: bool) -> float:
        """Until the slowest of those who come next has its server's model.

        A client that took no part in the period before gets the whole of it, whatever the codec.
        """
        if not self.algorithm.uplink.has_downlink:
            return 0.0
        away = np.ones(self.algorithm.network.clients, dtype=bool)
        away[group.clients] = False
        seconds = self.algorithm.uplink.down(away, self.algorithm.vectors_down(is_mixed))
        assert seconds is not None  # noqa: S101 - there is a downlink
        members = self.members[group.server]
        coming = self.algorithm.participation.among(members, int(self.turns[group.server]))
        return float(seconds[members][coming].max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Times:
    """The deadlines of all clusters, and what their clients do in them if all are there.

    deadline  T_d of each server; steps: theta_i, 0 for a client that cannot make one
    mean      thetabar_d; rate: thetabar_d / T_d
    """

    deadline: Array
    steps: Indices
    mean: Array
    rate: Array


def times_of(pace: Asynchronous, algorithm: Algorithm) -> Times:
    """Work out deadlines and steps; a deadline in which a cluster gets nothing done is refused."""
    network, uplink = algorithm.network, algorithm.uplink
    tau1 = algorithm.schedule.at(0).tau1
    step, server_of = uplink.latencies.t_cmp, network.clusters.server_of
    sending = uplink.seconds(np.ones(network.clients, dtype=bool))
    members = [np.array(clients) for clients in network.clusters.members]
    if pace.deadline is None:
        usual = [
            np.sort((tau1 * step + sending)[clients])[len(clients) // 2] for clients in members
        ]
        once = [(step + sending)[clients].max() for clients in members]
        deadline = np.maximum(usual, once)
    elif isinstance(pace.deadline, tuple) and len(pace.deadline) != network.servers:
        remedy = f"one number, or a list of {network.servers}: one a server"
        raise InputError("pace.deadline", list(pace.deadline), remedy)
    else:
        deadline = np.broadcast_to(np.array(pace.deadline, dtype=float), network.servers).copy()
    # A client that needs just as long is in time, whatever the last digits of a quotient say.
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
