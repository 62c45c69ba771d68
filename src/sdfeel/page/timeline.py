"""Who computes, sends and waits: the stream of a run's events played again.

It is the one that the run itself had, from the settings in its folder, so its seconds are those of
metrics.csv. It is played from the beginning, and goes on from where it was.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.costs import round_cost
from sdfeel.algorithm.events import Event
from sdfeel.clock import LatencyProfile, profile_of
from sdfeel.errors import InputError
from sdfeel.network import GRAPHS, ChangingNetwork, Clusters, Network
from sdfeel.page.lanes import MOST, Box, parts_of, shares
from sdfeel.page.sample import Sample
from sdfeel.page.work import MOST_WORK, Budget, work_of_event
from sdfeel.records.reading import UnusableFile, read_regular
from sdfeel.simulation.settings import Settings
from sdfeel.toml import read_toml

__all__ = ["Timeline", "algorithm_of", "boxes_of", "network_of", "profile_of_run"]

# Its eigenvalues take half a second, for a request.
MOST_SERVERS, MOST_CLIENTS = 1000, 200_000
MOST_TOML, MOST_TRACE = 8 * 2**20, 64 * 2**20  # bytes of a profile, and of a trace that it names


def network_of(drawn: Mapping[str, Any], config: Mapping[str, Any]) -> Network:
    """From network.json; of a run that has none, from the names in its run.json."""
    try:
        if drawn:
            listed = drawn.get("clusters")
            sizes = _bounded([len(each) for each in listed] if listed else drawn["sizes"])
            clusters = Clusters.of(listed) if listed else Clusters.of_sizes(sizes)
            samples = np.array(drawn["samples"], dtype=float) / np.array(sizes)
            links = [(int(a), int(b)) for a, b in drawn["links"]]
            network = Network(clusters, links, samples[clusters.server_of])
            # of a function of the round nothing is written down, and that is named below
            return ChangingNetwork.of(network, drawn["graphs"]) if "graphs" in drawn else network
        table = config["network"]
        if isinstance(table["graph"], str) and table["graph"] not in GRAPHS:
            raise ValueError("a file elsewhere")
        each = table["clients_per_server"]
        servers = min(table["servers"], MOST_SERVERS + 1)
        _bounded(each if isinstance(each, list) else [each] * servers)
        _bounded([0] * servers)
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


def _bounded(sizes: Any) -> list[int]:
    """Of clusters; ValueError before anything is made of what an answer could not bear."""
    whole = isinstance(sizes, list) and all(type(size) is int and size >= 0 for size in sizes)
    if not whole or len(sizes) > MOST_SERVERS or sum(sizes) > MOST_CLIENTS:
        raise ValueError(f"up to {MOST_SERVERS} servers with {MOST_CLIENTS} clients")
    return list(sizes)


def algorithm_of(drawn: Mapping[str, Any], config: Mapping[str, Any]) -> Algorithm:
    """What the run does, from its folder; InputError where something of it is not a name."""
    if not drawn:
        raise InputError("network.json", "", "is not there: the run is of an earlier version")
    if config.get("engine") == "deployment":
        raise InputError("engine", "deployment", "real edges need no simulated clock")
    given = Settings.take_from(copy.deepcopy(dict(config)))
    settings = Settings.of({name: value for name, value in given.items() if value is not None})
    network = network_of(drawn, config)
    budget, graphs = Budget("run.json"), network.turns or [(network.graph.edges(), 1)]
    for links, _ in graphs:
        budget.spend(network.servers, network.clients, len(links), settings)
    return settings.algorithm(network, profile_of_run(drawn, settings), int(drawn["parameters"]))


def profile_of_run(drawn: Mapping[str, Any], settings: Settings) -> LatencyProfile:
    """The profile of a run, with what its model's updates take."""
    profile = _profile(settings)
    if profile.flops_per_step is not None:
        return profile
    if "flops_per_step" not in drawn:
        raise InputError("network.json", "", "is of an earlier version: no flops_per_step")
    return profile.with_flops(float(drawn["flops_per_step"]))


def _profile(settings: Settings) -> LatencyProfile:
    """Return the profile of a run; one that lies in a file is read as files of others are."""
    given = settings.profile
    if not isinstance(given, str) or not given.endswith(".toml"):
        return settings.latency
    path = Path(given)
    try:
        text = read_regular(path, MOST_TOML).decode("utf-8")
        table = read_toml(text, "profile")
        availability = table.get("availability")
        if isinstance(availability, dict) and isinstance(availability.get("trace"), str):
            read_regular(path.parent / availability["trace"], MOST_TRACE)
    except (OSError, UnusableFile, ValueError) as problem:
        raise InputError("profile", given, f"cannot be read: {problem}") from None
    return profile_of(table, path.stem, path.parent)


class Timeline:
    """The stream of an algorithm's events, and the last of them; a lane is a group.

    steps  where the run ends; event: the last one that is played
    """

    def __init__(self, algorithm: Algorithm, steps: float = math.inf) -> None:
        self.algorithm = algorithm
        self.has_rounds = "rounds" not in algorithm.pace.breaks
        network, by_clients = algorithm.network, algorithm.pace.groups == "clients"
        self.kind = "client" if by_clients else "server"
        self.lanes = network.clients if by_clients else network.servers
        self._events = algorithm.events(steps)
        self.event: Event | None = None
        self._next: Event | None = None
        self.boxes: deque[Box] = deque(maxlen=max(MOST, self.lanes))
        tau2 = algorithm.schedule.at(0).tau2 if self.has_rounds else 1
        self.sample = Sample(self.lanes * tau2)

    def is_past(self, row: Mapping[str, float]) -> bool:
        """Whether it has gone beyond a row of the metrics."""
        return self.event is not None and self.event.ends > row["seconds"] * (1 + 1e-12)

    def advance(self, row: Mapping[str, float]) -> bool:
        """Up to the last event that has ended by a row; False if it takes more than a look."""
        left = MOST_WORK
        while left > 0:
            self._next = self._next or next(self._events, None)
            if self._next is None or self._next.ends > row["seconds"] * (1 + 1e-12):
                return True
            self.event, self._next = self._next, None
            boxes = list(boxes_of(self.event))
            self.boxes.extend(boxes)
            self.sample.add(boxes)
            left -= work_of_event(self.event)
        return False

    def shown(self, rounds: int) -> dict[str, Any]:
        """The last rounds, and where a round's seconds went: the mean over them and lanes."""
        boxes = self._last(max(rounds, 1))
        mean_of = f"mean over {self.kind}s, last rounds"
        return {
            "iteration": 0 if self.event is None else self.event.k,
            "seconds": self._seconds,
            "names": [f"{self.kind} {number}" for number in range(self.lanes)],
            "boxes": [box.as_dict() for box in boxes],
            "mean": self._mean(boxes),
            "mean_of": mean_of if self.has_rounds else f"mean of the last {len(boxes)} periods",
            "clock": self._cost(),
        }

    @property
    def _seconds(self) -> float:
        return 0.0 if self.event is None else self.event.ends

    def _last(self, rounds: int) -> list[Box]:
        """The boxes of whole rounds; where there are none, so many periods of the slowest lane."""
        if self.has_rounds:
            periods = min(rounds * self.algorithm.schedule.at(0).tau2, MOST // self.lanes)
            return list(self.boxes)[-max(periods, 1) * self.lanes :]
        longest = max((box.end - box.start for box in self.boxes), default=0.0)
        return [box for box in self.boxes if box.end > self._seconds - rounds * longest]

    def _mean(self, boxes: Sequence[Box]) -> dict[str, float]:
        tau2 = self.algorithm.schedule.at(0).tau2 if self.has_rounds else 1
        return shares(boxes, max(len(boxes) / tau2, 1e-300))

    def _cost(self) -> dict[str, float] | None:
        """What a round costs with everyone present, where there are rounds."""
        if not self.has_rounds:
            return None
        cost = round_cost(self.algorithm)
        return {**parts_of(cost.seconds), "total": cost.total}


def boxes_of(event: Event) -> Iterator[Box]:
    """A box for each group of an event."""
    spans = {name: seconds.tolist() for name, seconds in event.spans.items()}
    for at, group in enumerate(event.groups):
        parts = parts_of({name: seconds[at] for name, seconds in spans.items()})
        # What is only the last digits of a difference between two times is no waiting.
        parts["waiting"] *= parts["waiting"] > 1e-9 * (1 + event.at)
        first = int(group.first.min(initial=group.k)) if len(group.clients) else group.k
        yield Box(group.number, first, group.k, float(event.begun[at]), parts)
