"""Who computes, sends and waits: the clock of a run played again, period by period.

The clock is the one that the run itself had, from the settings in its folder, so its seconds are
those of metrics.csv. It is played from the beginning, and goes on from where it was.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.pace import Deadline, Event, Synchronous
from sdfeel.algorithm.schemes import Algorithm
from sdfeel.clock import EventClock
from sdfeel.errors import InputError
from sdfeel.network import Clusters, Network
from sdfeel.simulation.settings import Settings

__all__ = ["PARTS", "Timeline", "algorithm_of", "network_of"]

PARTS = ("compute", "upload", "exchange", "waiting", "download")
Seconds = NDArray[np.float64]
PATIENCE = 1.0  # real seconds that one look may take; the next goes on from there
KEPT = 64  # upload periods that are kept to be shown


def network_of(drawn: Mapping[str, Any], config: Mapping[str, Any]) -> Network:
    """From network.json; of a run that has none, from the names in its run.json."""
    try:
        if drawn:
            clusters = (
                Clusters.of(drawn["clusters"])
                if drawn.get("clusters")
                else Clusters.of_sizes(drawn["sizes"])
            )
            sizes = np.array([len(members) for members in clusters.members])
            each = np.array(drawn["samples"], dtype=float) / sizes
            links = [(int(a), int(b)) for a, b in drawn["links"]]
            return Network(clusters, links, each[clusters.server_of])
        table = config["network"]
        return Network.build(
            table["graph"],
            table["servers"],
            table["clients_per_server"],
            **(table.get("options") or {}),
        )
    except (KeyError, TypeError, ValueError):
        raise InputError(
            "network.json", "", "is not there or damaged, so the network is not known"
        ) from None


def algorithm_of(drawn: Mapping[str, Any], config: Mapping[str, Any]) -> Algorithm:
    """What the run does, from its folder; InputError where something of it is not a name."""
    if not drawn:
        raise InputError("network.json", "", "is not there: the run is of an earlier version")
    if config.get("engine") == "deployment":
        raise InputError("engine", "deployment", "real edges need no simulated clock")
    given = Settings.take_from(copy.deepcopy(dict(config)))
    settings = Settings.of({name: value for name, value in given.items() if value is not None})
    profile = settings.latency
    if profile.flops_per_step is None:
        profile = profile.with_flops(float(drawn["flops_per_step"]))
    return settings.algorithm(network_of(drawn, config), profile, int(drawn["parameters"]))


@dataclass
class Period:
    """One upload period: when each server began, and its seconds by part."""

    first: int
    last: int
    mixed: bool
    start: Seconds
    parts: dict[str, Seconds]

    def as_dict(self) -> dict[str, Any]:
        parts = {name: seconds.tolist() for name, seconds in self.parts.items()}
        about = {"first": self.first, "last": self.last, "mixed": self.mixed}
        return {**about, "start": self.start.tolist(), "parts": parts}


def _rounded(seconds: Seconds, at: Seconds) -> Seconds:
    """Without what is only the last digits of a difference between two times."""
    return np.where(seconds > 1e-12 * (1 + at), seconds, 0.0)


@dataclass
class Timeline:
    """The clock of an algorithm, and the last periods it went through."""

    algorithm: Algorithm
    clock: EventClock = field(init=False)
    k: int = 0
    periods: deque[Period] = field(default_factory=lambda: deque(maxlen=KEPT))

    def __post_init__(self) -> None:
        if not isinstance(self.algorithm.pace, Synchronous | Deadline):
            name = type(self.algorithm.pace).__name__
            raise InputError("pace", name, "has no timeline here: only synchronous and deadline")
        self.clock = self.algorithm.clock()

    def advance(self, iteration: int) -> bool:
        """Up to the last period that has ended by then; False if it takes more than a look."""
        end = time.monotonic() + PATIENCE
        while (event := self._next()).last <= iteration:
            self.periods.append(self._play(event))
            self.k = event.last
            if time.monotonic() > end:
                return False
        return True

    def _next(self) -> Event:
        return self.algorithm.rounds.next(self.k + 1, self.algorithm, self.clock.at)

    def _play(self, event: Event) -> Period:
        """The clock itself says how long a period takes; what it went into is taken apart here."""
        algorithm, clock = self.algorithm, self.clock
        clock.local_updates(event.last - event.first + 1)
        start, steps = clock.at.copy(), clock.steps
        look = copy.copy(clock)
        algorithm.rounds.end(replace(event, mixing=None), look)
        uploaded = look.at.copy()
        if event.mixing is not None:
            look.exchange(event.mixing)
        exchanged, waited = look.at.copy(), look.waited - clock.waited
        algorithm.end(event, clock)
        compute, done = self._cluster_seconds(event, steps)
        whole = uploaded - start
        compute, done = np.minimum(compute, whole), np.minimum(done, whole)
        spent = exchanged - uploaded
        parts = {
            "compute": compute,
            "upload": done - compute,
            "exchange": spent - waited,
            "waiting": _rounded(whole - done, start) + _rounded(waited, start),
            "download": clock.at - exchanged,
        }
        return Period(event.first, event.last, event.mixing is not None, start, parts)

    def _cluster_seconds(self, event: Event, steps: int) -> tuple[Seconds, Seconds]:
        """Of each server's slowest client: its local updates, and those with its upload."""
        uplink, servers = self.clock.uplink, self.algorithm.network.servers
        server_of = self.algorithm.network.clusters.server_of[event.clients]
        computing = (steps * uplink.latencies.t_cmp)[event.clients]
        sending = uplink.seconds(event.clients)[event.clients]
        compute, done = np.zeros(servers), np.zeros(servers)
        np.maximum.at(compute, server_of, computing)
        np.maximum.at(done, server_of, computing + sending)
        return compute, done

    def shown(self, rounds: int) -> dict[str, Any]:
        """The last rounds, and where a round's seconds went: the mean over them and servers."""
        tau2 = self.algorithm.schedule.tau2
        wanted = min(max(rounds, 1) * tau2, KEPT)
        whole = list(self.periods)[-wanted:]
        count = max(len(whole) / tau2, 1e-300)
        mean = {
            name: float(sum(p.parts[name].mean() for p in whole) / count) if whole else 0.0
            for name in PARTS
        }
        cost = self.algorithm.round_cost()
        return {
            "iteration": self.k,
            "servers": self.algorithm.network.servers,
            "seconds": float(self.clock.at.max()),
            "periods": [period.as_dict() for period in whole],
            "mean": mean,
            "clock": {
                "compute": cost.compute,
                "upload": cost.upload,
                "exchange": cost.exchange,
                "download": cost.download,
                "total": cost.total,
            },
        }
