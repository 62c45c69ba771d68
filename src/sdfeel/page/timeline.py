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

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.pace import Event, TurnPace
from sdfeel.clock import EventClock
from sdfeel.errors import InputError
from sdfeel.network import ChangingNetwork, Clusters, Network
from sdfeel.page.lanes import MOST, PATIENCE, Box, shares
from sdfeel.page.turns import TurnTimeline
from sdfeel.simulation.settings import Settings

__all__ = ["Timeline", "algorithm_of", "network_of", "timeline_of"]

Seconds = NDArray[np.float64]
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
            network = Network(clusters, links, each[clusters.server_of])
            # of a function of the round nothing is written down, and that is named below
            return ChangingNetwork.of(network, drawn["graphs"]) if "graphs" in drawn else network
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


def timeline_of(algorithm: Algorithm) -> Timeline | TurnTimeline:
    """By rounds, or by turns where nobody waits."""
    is_by_turns = isinstance(algorithm.pace, TurnPace)
    return TurnTimeline(algorithm) if is_by_turns else Timeline(algorithm)


@dataclass
class Period:
    """One upload period: when each server began, and its seconds by part."""

    first: int
    last: int
    mixed: bool
    start: Seconds
    parts: dict[str, Seconds]

    def boxes(self) -> list[Box]:
        """One for each server."""
        parts = {name: seconds.tolist() for name, seconds in self.parts.items()}
        return [
            Box(d, self.first, self.last, start, {name: own[d] for name, own in parts.items()})
            for d, start in enumerate(self.start.tolist())
        ]


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
        self.clock = self.algorithm.clock()

    def is_past(self, row: Mapping[str, float]) -> bool:
        return self.k > row["iteration"]

    def advance(self, row: Mapping[str, float]) -> bool:
        """Up to the last period that has ended by a row; False if it takes more than a look."""
        end = time.monotonic() + PATIENCE
        while (event := self._next()).last <= row["iteration"]:
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
        tau2, servers = self.algorithm.schedule.tau2, self.algorithm.network.servers
        wanted = min(max(rounds, 1) * tau2, KEPT, max(MOST // servers, 1))
        boxes = [box for period in list(self.periods)[-wanted:] for box in period.boxes()]
        count = max(len(boxes) / tau2, 1e-300)
        cost = self.algorithm.round_cost()
        return {
            "iteration": self.k,
            "seconds": float(self.clock.at.max()),
            "names": [f"server {d}" for d in range(servers)],
            "boxes": [box.as_dict() for box in boxes],
            "mean": shares(boxes, count),
            "mean_of": "mean over servers, last rounds",
            "clock": {
                "compute": cost.compute,
                "upload": cost.upload,
                "exchange": cost.exchange,
                "download": cost.download,
                "total": cost.total,
            },
        }
