"""Paces: who waits for whom.

    synchronous   a server waits for all its clients, and servers for their neighbours (the paper)
    deadline      upload periods of one length: who is not done by then is left out of this one
    asynchronous  every server has its own deadline, and waits for no other cluster

A pace says what happens next, and what the clock shows when it has happened.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sdfeel.clock import EventClock
from sdfeel.errors import InputError
from sdfeel.network import Averager

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm
    from sdfeel.algorithm.turns import Agenda

__all__ = ["Deadline", "Event", "Mask", "Pace", "RoundPace", "Synchronous", "TurnPace"]

Mask = NDArray[np.bool_]
Seconds = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Event:
    """What happens next: who trains how long, and how the servers agree after it.

    clients      who takes part in this upload period and is aggregated at its end
    first, last  their iterations
    mixing       how the servers then exchange models; None where it is not their turn
    """

    clients: Mask
    first: int
    last: int
    mixing: Averager | None


class Pace(ABC):
    """Who waits for whom: in rounds of all servers, or by turns."""

    @abstractmethod
    def check(self, algorithm: Algorithm) -> None:
        """Refuse what cannot work, before any training."""


class TurnPace(Pace):
    """Where groups of clients are ready one after the other, and nobody waits."""

    @abstractmethod
    def agenda(self, algorithm: Algorithm) -> Agenda:
        """Where every group stands at the beginning."""


class RoundPace(Pace):
    """From the state of affairs to the next event, which is everybody's."""

    @abstractmethod
    def next(self, k: int, algorithm: Algorithm, at: Seconds | None = None) -> Event:
        """The upload period that iteration k belongs to.

        at  when it begins at each server; None: all devices are taken to be on
        """

    @abstractmethod
    def end(self, event: Event, clock: EventClock) -> None:
        """The clock, once the event is over."""


@dataclass(frozen=True)
class Synchronous(RoundPace):
    """Algorithm 1: everybody waits for the slowest."""

    def check(self, algorithm: Algorithm) -> None:
        pass

    def next(self, k: int, algorithm: Algorithm, at: Seconds | None = None) -> Event:
        schedule = algorithm.schedule
        last = schedule.next_intra(k - 1)
        return Event(
            clients=algorithm.present(schedule.period(k), at),
            first=last - schedule.tau1 + 1,
            last=last,
            mixing=algorithm.mixing_after(last) if schedule.is_inter(last) else None,
        )

    def end(self, event: Event, clock: EventClock) -> None:
        clock.upload(event.clients)
        if event.mixing is not None:
            clock.exchange(event.mixing)


@dataclass(frozen=True)
class Deadline(RoundPace):
    """Upload periods of `seconds`, for computing and uploading; who needs longer is left out.

    Who is left out counts as absent: it does not train, and takes the server's model next time.
    """

    seconds: float

    def __post_init__(self) -> None:
        real = isinstance(self.seconds, int | float)
        if not real or not (math.isfinite(self.seconds) and self.seconds > 0):
            raise InputError("pace.seconds", self.seconds, "the length of a period, above 0")

    def check(self, algorithm: Algorithm) -> None:
        needed = self._needed(algorithm)
        if needed.min() > self._limit:
            raise InputError(
                "pace.seconds",
                self.seconds,
                f"nobody is done by then: tau1 steps and an upload take {needed.min():.4g} s at "
                f"the fastest client and {needed.max():.4g} s at the slowest",
            )
        members = algorithm.network.clusters.members
        empty = [d for d, own in enumerate(members) if needed[list(own)].min() > self._limit]
        if empty:
            warnings.warn(
                f"no client of server {empty[0]} is done within {self.seconds:g} s: the data of "
                f"{len(empty)} cluster(s) never counts",
                UserWarning,
                stacklevel=2,
            )

    def next(self, k: int, algorithm: Algorithm, at: Seconds | None = None) -> Event:
        asked = Synchronous().next(k, algorithm, at)
        done = asked.clients & (self._needed(algorithm) <= self._limit)
        return Event(done, asked.first, asked.last, asked.mixing)

    def end(self, event: Event, clock: EventClock) -> None:
        clock.close_upload(self.seconds)
        if event.mixing is not None:
            clock.exchange(event.mixing)

    @property
    def _limit(self) -> float:
        """Who needs just as long is in time, whatever the last digits of a sum say."""
        return self.seconds * (1 + 1e-9)

    def _needed(self, algorithm: Algorithm) -> NDArray[np.float64]:
        """Seconds that each client takes for an upload period, were all there."""
        uplink = algorithm.uplink
        everyone = np.ones(algorithm.network.clients, dtype=bool)
        computing = algorithm.schedule.tau1 * uplink.latencies.t_cmp
        needed: NDArray[np.float64] = computing + uplink.seconds(everyone)
        return needed
