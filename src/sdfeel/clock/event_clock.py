"""The event clock: every local update, upload and exchange takes the time it takes.

With equal devices and links it shows K t_cmp + floor(K/tau1) t_ct-sr + floor(K/(tau1 tau2)) x the
averager's cost, the paper's formula at multiples of tau1 tau2. With unequal ones every server has
its own time: it waits for the slowest of its clients at an upload, and for its neighbours (and
through them, in later exchanges, for theirs) at an exchange. Where a profile has rates for it, a
period begins when the slowest of its clients has the server's model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sdfeel.clock.availability import Presence
from sdfeel.clock.profiles import Latencies, LatencyProfile
from sdfeel.network import Averager, Network

Mask = NDArray[np.bool_]
Seconds = NDArray[np.float64]
Destination = Literal["server", "cloud", "nobody"]


@dataclass(frozen=True)
class Uplink:
    """The way of a client's model: to its edge server, to the cloud, or to its neighbours alone.

    `shared` is the `shared-backhaul` reading: over the air to the server, then one after the other
    over the one link that the server has to the cloud.
    """

    latencies: Latencies
    network: Network
    to: Destination = "server"
    shared: bool = False
    bits: Mapping[str, float] = field(default_factory=dict)  # of a message, by way; and "whole"
    presence: Presence | None = None  # when each client is on; None: always

    @classmethod
    def of(
        cls,
        profile: LatencyProfile,
        network: Network,
        servers: Network,
        parameters: int,
        to: Destination,
        messages: Mapping[str, float],
        seed: int,
    ) -> Uplink:
        """Return the way from a network's clients; `servers` is the network of the scheme.

        messages  bits by way, where it is not the model as it is; seed: of the devices
        """
        latencies = profile.latencies(parameters, network.clients, network.servers, messages, seed)
        shared = profile.cloud_uplink == "shared-backhaul"
        given = profile.availability
        presence = None if given is None else given.draw(network.clients, seed)
        bits = profile.bits(parameters, messages)
        uplink = cls(latencies, network, to, shared, bits, presence)
        return uplink._between_clients(servers) if to == "nobody" else uplink

    def _between_clients(self, apart: Network) -> Uplink:
        """Return the uplink of clients without servers; `apart` is the network of the clients.

        A link between two of them is as fast as the slower one's link to its server, and nothing
        goes up or down.
        """
        bits = {**self.bits, "up": 0.0, "down": 0.0}
        each = self.latencies.t_ct_sr * (bits["between"] / self.bits["up"])
        links = {
            (min(a, b), max(a, b)): float(max(each[a], each[b])) for a, b in apart.graph.edges()
        }
        none = np.zeros_like(each)
        latencies = replace(self.latencies, t_ct_sr=none, links=links, from_server=None)
        return replace(self, latencies=latencies, network=apart, bits=bits)

    def seconds(self, present: Mask) -> Seconds:
        """Upload time of every client, given who uploads at the same time."""
        times = self.latencies
        if self.to == "nobody":
            return np.zeros_like(times.t_ct_sr)
        if self.to == "server":
            return times.t_ct_sr + times.per_message
        if not self.shared:
            return times.t_ct_cd + times.per_message
        server_of = self.network.clusters.server_of
        sharing = np.bincount(server_of[present], minlength=self.network.servers)
        length = self.bits["up"] / self.bits["between"] if self.bits else 1.0
        backhaul = (sharing * times.t_sr_cd * length)[server_of]
        return times.t_ct_sr + backhaul + times.per_message

    def stay(self, clients: NDArray[np.int64], begin: Seconds, seconds: Seconds) -> Mask:
        """Return which clients are on from `begin` for so many seconds."""
        if self.presence is None:
            return np.ones(len(clients), dtype=bool)
        return self.presence.stay(clients, begin, seconds)

    def there(self, drawn: Mask, begin: Seconds, steps: int) -> Mask:
        """Return the drawn clients that are on from `begin` until their models are uploaded."""
        if self.presence is None:
            return drawn
        needed = steps * self.latencies.t_cmp + self.seconds(drawn)
        clients = np.flatnonzero(drawn)
        there = drawn.copy()
        there[clients] = self.presence.stay(clients, begin[clients], needed[clients])
        return there

    @property
    def has_downlink(self) -> bool:
        """Whether sending models down to clients takes any time."""
        times = self.latencies
        return (times.from_cloud if self.to == "cloud" else times.from_server) is not None

    def down(self, away: Mask, vectors: int) -> Seconds | None:
        """Seconds of a broadcast to every client; None where it takes no time.

        away     who missed the one before, and gets the whole model
        vectors  how many more of a model's length go along
        """
        times = self.latencies
        link = times.from_cloud if self.to == "cloud" else times.from_server
        if link is None:
            return None
        model = np.where(away, link.whole, link.message)
        seconds: Seconds = model + vectors * link.whole + times.per_message
        return seconds


@dataclass
class EventClock:
    """The simulated time of every server of `network` (the scheme's: one for the cloud schemes).

    at      seconds of each server; waited: of each, for other clusters at exchanges
    """

    network: Network
    uplink: Uplink
    at: Seconds = field(init=False)
    waited: Seconds = field(init=False)

    def __post_init__(self) -> None:
        self.at = np.zeros(self.network.servers)
        self.waited = np.zeros(self.network.servers)

    def upload(
        self, present: Mask, steps: int, most: float = math.inf
    ) -> tuple[Seconds, Seconds, Seconds]:
        """So many local updates and an upload: a server waits for the slowest of its clients.

        A server none of whose clients came has waited as long as the slowest could have taken,
        `most` seconds at most. Returns the seconds of computing, of uploading and of slack.
        """
        uploads = self.uplink.seconds(present)
        spent, upload = self._slowest(
            steps * self.uplink.latencies.t_cmp + uploads, uploads, present
        )
        self.at = self.at + np.minimum(spent, most)
        compute = np.minimum(spent - upload, most)
        return compute, np.minimum(upload, most - compute), np.zeros_like(spent)

    def exchange(self, averager: Averager) -> None:
        """Inter-cluster aggregation by the averager's route."""
        times = self.uplink.latencies
        if averager.route == "cloud":
            sent = times.t_sr_cd[: len(self.at)] + times.per_message
            self.waited = self.waited + ((self.at + sent).max() - (self.at + sent))
            self.at = np.full_like(self.at, (self.at + sent).max())
        elif averager.route == "all-reduce":
            slowest = self._links_of(averager)[1].max(initial=0.0)
            waiting = averager.messages * times.per_message
            spent = averager.model_times * slowest + waiting
            self.waited = self.waited + (self.at.max() - self.at)
            self.at = np.full_like(self.at, self.at.max() + spent)
        elif averager.arcs is not None:
            arcs = self._timed(averager.arcs)
            for _ in range(averager.exchanges):
                self._hear_once(*arcs)
        else:
            links = self._links_of(averager)
            for _ in range(averager.exchanges):
                self._exchange_once(*links)

    def broadcast(self, coming: Mask, away: Mask, vectors: int = 0) -> None:
        """Servers send their models down to the clients of the next period.

        coming  those clients; away: who missed the broadcast before
        vectors  how many more of a model's length go along
        """
        seconds = self.uplink.down(away, vectors)
        if seconds is not None:
            slowest = np.zeros(self.network.servers)
            np.maximum.at(slowest, self.network.clusters.server_of[coming], seconds[coming])
            self.at = self.at + slowest

    def _exchange_once(self, ends: NDArray[np.int64], seconds: Seconds) -> None:
        """Every server waits until it holds the models of all its neighbours."""
        begun = self.at[ends].max(axis=1, keepdims=True)
        self._arrive(ends, begun, seconds[:, None])

    def _hear_once(self, arcs: NDArray[np.int64], seconds: Seconds) -> None:
        """Every server waits for those that it hears, and for nobody that only hears it."""
        self._arrive(arcs[:, 1], self.at[arcs[:, 0]], seconds)

    def _arrive(self, ends: NDArray[np.int64], begun: Seconds, seconds: Seconds) -> None:
        """Models that are sent at `begun` arrive; a server goes on with the last of its own."""
        after, per_message = self.at.copy(), self.uplink.latencies.per_message
        np.maximum.at(after, ends, begun + seconds + per_message)
        unhindered = np.zeros_like(self.at)  # what it would have taken without waiting
        np.maximum.at(unhindered, ends, seconds + per_message)
        # A difference of sums has last digits of its own: equal servers wait for nobody.
        waited = after - (self.at + unhindered)
        self.waited = self.waited + np.where(waited > 1e-9 * after, waited, 0.0)
        self.at = after

    def _links_of(self, averager: Averager) -> tuple[NDArray[np.int64], Seconds]:
        return self._links if averager.links is None else self._timed(averager.links)

    @cached_property
    def _links(self) -> tuple[NDArray[np.int64], Seconds]:
        return self._timed([(a, b) for a, b in self.network.graph.edges()])

    def _timed(self, links: Sequence[tuple[int, int]]) -> tuple[NDArray[np.int64], Seconds]:
        seconds = np.array([self.uplink.latencies.link(a, b) for a, b in links])
        return np.array(links, dtype=np.int64).reshape(-1, 2), seconds

    def _slowest(self, spent: Seconds, uploads: Seconds, present: Mask) -> tuple[Seconds, Seconds]:
        """Return the seconds of each server's slowest client, and its seconds of upload."""
        server_of = self.network.clusters.server_of
        slowest = np.full(self.network.servers, -np.inf)
        np.maximum.at(slowest, server_of[present], spent[present])
        nobody = np.isneginf(slowest)[server_of]
        if nobody.any():
            np.maximum.at(slowest, server_of[nobody], spent[nobody])
        upload = np.zeros(self.network.servers)
        which = (present | nobody) & (spent == slowest[server_of])
        upload[server_of[which]] = uploads[which]
        return slowest, upload
