"""Losses over time, and what time costs: sums over the stream of events that a run folds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.costs import cost_of
from sdfeel.algorithm.events import Event
from sdfeel.errors import InputError
from sdfeel.records.curves import first_reach

__all__ = ["NOTHING", "Amount", "Array", "LossCurve", "Price", "price_of", "with_everyone"]

Array = NDArray[np.float64]
# Any number of a run is in here; arithmetic with others ends in infinities.
Amount = Annotated[float, Field(ge=0.0, le=1e15, allow_inf_nan=False)]
TURNS = 20  # of the slowest cluster, from which the price of a pace without rounds is taken
MOST_EVENTS = 100_000  # that are read for it


@dataclass(frozen=True)
class LossCurve:
    """A run as it was seen or is predicted; `losses` are what the target is about."""

    iterations: NDArray[Any]
    seconds: Array
    losses: Array

    @property
    def best(self) -> float:
        return float(self.losses.min())

    @property
    def diverged(self) -> bool:
        """Whether it ended without a loss."""
        return not bool(np.isfinite(self.losses[-1]))

    def iterations_to(self, level: float) -> float:
        """Where the loss first reaches `level`; infinity if it never does."""
        return self._reach(self.iterations.astype(float), level)

    def seconds_to(self, level: float) -> float:
        return self._reach(self.seconds, level)

    def loss_at(self, seconds: float) -> float:
        """The lowest loss that was evaluated until then."""
        return float(self.losses[: max(1, int(np.sum(self.seconds <= seconds)))].min())

    def _reach(self, axis: Array, level: float) -> float:
        at = first_reach(axis, self.losses, level, is_falling=True)
        return float("inf") if at is None else at


NOTHING = LossCurve(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))


@dataclass(frozen=True, eq=False)
class Price:
    """What training takes, read off a stream of events until it repeats.

    iterations, seconds  at ends of upload periods, from 0 on; afterwards the last so many, which
                         `repeats` counts, follow each other again and again
    parts                seconds of tau1 tau2 iterations by what takes them
    gain                 iterations of all clusters that count, for one of the slowest cluster
    """

    iterations: Array
    seconds: Array
    repeats: int
    parts: Mapping[str, float]
    gain: float = 1.0

    @property
    def shares(self) -> dict[str, float]:
        total = sum(self.parts.values())
        return {name: part / total for name, part in self.parts.items()}

    @property
    def bottleneck(self) -> str:
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def per_iteration(self) -> float:
        """Seconds of one iteration, in the long run."""
        first = -1 - self.repeats
        seconds = self.seconds[-1] - self.seconds[first]
        return float(seconds / (self.iterations[-1] - self.iterations[first]))

    def seconds_of(self, iterations: ArrayLike) -> Array:
        """When so many iterations are done; inside of a period by a straight line."""
        return _continued(iterations, self.iterations, self.seconds, self.repeats)

    def iterations_at(self, seconds: ArrayLike) -> Array:
        """The inverse of `seconds_of`."""
        return _continued(seconds, self.seconds, self.iterations, self.repeats)

    def iterations_within(self, seconds: float) -> int:
        """The most whole iterations whose time is at most `seconds`."""
        return int(np.floor(self.iterations_at(seconds) * (1 + 1e-12)))


def _continued(at: ArrayLike, x: Array, y: Array, repeats: int) -> Array:
    """A line through points of which the last so many repeat."""
    at, first = np.asarray(at, dtype=float), -1 - repeats
    length, height = x[-1] - x[first], y[-1] - y[first]
    rounds = np.maximum(np.ceil((at - x[-1]) / length), 0.0)
    return np.asarray(np.interp(at - rounds * length, x, y) + rounds * height)


def with_everyone(algorithm: Algorithm) -> Algorithm:
    """The same with every client present, but for those that a pace leaves out."""
    everyone = replace(algorithm.participation, beta=1.0)
    always = replace(algorithm.uplink, presence=None)
    return replace(algorithm, participation=everyone, uplink=always)


def price_of(algorithm: Algorithm) -> Price:
    """Read a price off the first events of an algorithm's stream."""
    algorithm = with_everyone(algorithm)
    is_steady = "rounds" not in algorithm.pace.breaks
    events, repeats = _steady_rounds(algorithm) if is_steady else _turns(algorithm)
    iterations, firsts = np.unique([0, *(event.k for event in events)], return_index=True)
    seconds = np.array([0.0, *(event.ends for event in events)])[firsts]
    repeats = repeats or len(iterations) - 1
    spans = cost_of(events[-repeats:] if is_steady else events).seconds
    parts = {
        "compute": spans["compute"],
        "uplink": spans["upload"] + spans["slack"] + spans["download"],
        "exchange": spans["wait"] + spans["exchange"],
    }
    rounds = (iterations[-1] - iterations[-1 - repeats]) / algorithm.schedule.tau
    parts = {name: part / float(rounds) for name, part in parts.items()}
    gain = 1.0 if is_steady else _gain_of(events, algorithm)
    return Price(iterations.astype(float), seconds, repeats, parts, gain)


def _steady_rounds(algorithm: Algorithm) -> tuple[list[Event], int]:
    """Events until a round leaves servers as far apart as the one before; the last round repeats.

    Where devices are equal the first one does. Else servers wait for their neighbours, and through
    them for theirs, so that as many rounds as there are servers suffice.
    """
    stream, tau2 = algorithm.events(), algorithm.schedule.at(0).tau2
    events: list[Event] = []
    before = np.zeros(algorithm.network.servers)
    for _ in range(algorithm.network.servers + 2):
        events += islice(stream, tau2)
        ends = events[-1].begun + sum(events[-1].spans.values())
        apart = ends - ends.max()
        if np.allclose(apart, before, rtol=0, atol=1e-9 * ends.max()):
            break
        before = apart
    return events, tau2


def _turns(algorithm: Algorithm) -> tuple[list[Event], int]:
    """Events until every cluster has ended some periods; the mean of all of them goes on."""
    events: list[Event] = []
    periods = np.zeros(algorithm.network.servers)
    for event in islice(algorithm.events(), MOST_EVENTS):
        events.append(event)
        periods[[group.server for group in event.groups]] += 1
        if periods.min() >= TURNS:
            break
    if events[-1].k == 0:
        remedy = "a cluster is so much slower than others that no price can be worked out"
        raise InputError("pace", type(algorithm.pace).__name__, remedy)
    return events, 0


def _gain_of(events: list[Event], algorithm: Algorithm) -> float:
    """sum_d m~_d s_d (iterations of d), for an iteration of the slowest cluster."""
    made = np.zeros(algorithm.network.servers)
    counted = 0.0
    for event in events:
        for group in event.groups:
            share = algorithm.network.shares.cluster[group.server]
            counted += share * group.scale * (group.k - made[group.server])
            made[group.server] = group.k
    return float(counted / events[-1].k)
