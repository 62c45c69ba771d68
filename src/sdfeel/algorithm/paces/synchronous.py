"""Paces in rounds of all servers: Algorithm 1, and the same with a deadline.

synchronous  a server waits for all its clients, and servers for their neighbours (the paper)
deadline     a client that is not done within `seconds` is left out of the period
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sdfeel.algorithm.events import Array, Event
from sdfeel.algorithm.paces.pace import Mask, Members, Pace, bytes_sent
from sdfeel.clock import EventClock
from sdfeel.errors import InputError, warn
from sdfeel.validation import Flag, Positive, checked

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm

Collected = tuple[Array, Array, Array]

# A client that needs just as long is in time, whatever the last digits of a sum say.
SLACK = 1 + 1e-9


@checked("pace")
class Synchronous(Pace):
    """Algorithm 1: a period lasts until the slowest present client has uploaded its model.

    >>> sdfeel.train(
    ...     model, data, network=network, steps=4, pace=sdfeel.Synchronous()
    ... ).iterations
    4
    """

    limit: ClassVar[float] = math.inf

    def events(self, algorithm: Algorithm, steps: float = math.inf) -> Iterator[Event]:
        clock, members = EventClock(algorithm.network, algorithm.uplink), Members(algorithm)
        k = period = 0
        for number in count():
            schedule = algorithm.schedule.at(number)
            for turn in range(schedule.tau2):
                begun = clock.at
                last = int(min(k + schedule.tau1, steps))
                is_short = last < k + schedule.tau1
                present = self._present(algorithm, period, last - k, begun)
                compute, upload, slack = self._collect(clock, present, last - k)
                collected, waited = clock.at, clock.waited
                is_inter = turn == schedule.tau2 - 1 and not is_short
                mixing = algorithm.mixing(number) if is_inter else None
                if mixing is not None:
                    clock.exchange(mixing)
                wait, exchanged = clock.waited - waited, clock.at
                if algorithm.uplink.has_downlink:
                    coming = self._present(algorithm, period + 1, schedule.tau1, clock.at)
                    vectors = algorithm.vectors_down(mixing is not None)
                    clock.broadcast(coming, ~present, vectors)
                yield Event(
                    number=period,
                    k=last,
                    at=float(collected.max()),
                    ends=float(clock.at.max()),
                    groups=members.groups(present, k + 1, last),
                    mixing=mixing,
                    begun=begun,
                    spans={
                        "compute": compute,
                        "upload": upload,
                        "slack": slack,
                        "wait": wait,
                        "exchange": exchanged - collected - wait,
                        "download": clock.at - exchanged,
                    },
                    waited=clock.waited,
                    bytes=bytes_sent(algorithm, int(present.sum()), mixing),
                    round=number,
                    is_short=is_short,
                )
                k, period = last, period + 1
                if k >= steps:
                    return

    def _present(self, algorithm: Algorithm, period: int, steps: int, begun: Array) -> Mask:
        """Return the clients that take part in a period, which begins at `begun` at each server."""
        return algorithm.present(period, steps, begun)

    def _collect(self, clock: EventClock, present: Mask, steps: int) -> Collected:
        """Local updates and uploads: the seconds of each server that go into them, and slack."""
        return clock.upload(present, steps)


@checked("pace")
class Deadline(Synchronous):
    """Upload periods of `seconds`, in which clients compute and upload.

    A client that needs longer counts as absent: it does not train, and takes the server's model
    next time.

    Args:
        seconds: the length of every period; with `ends_early` a bound on it.
        ends_early: a period ends once all clients that can be in time have uploaded.

    >>> sdfeel.Deadline(seconds=1.0, ends_early=True).ends_early
    True
    """

    breaks: ClassVar[frozenset[str]] = frozenset({"everyone"})

    seconds: Positive
    ends_early: Flag = False

    @property
    def label(self) -> str:
        return f"{self.kind} {self.seconds:.3g} s"

    def deadlines(self, algorithm: Algorithm) -> list[float]:
        return [self.seconds]

    def check(self, algorithm: Algorithm) -> None:
        needed = self._needed(algorithm, algorithm.schedule.at(0).tau1)
        if needed.min() > self.seconds * SLACK:
            raise InputError(
                "pace.seconds",
                self.seconds,
                f"nobody is done by then: tau1 steps and an upload take {needed.min():.4g} s at "
                f"the fastest client and {needed.max():.4g} s at the slowest",
            )
        members = algorithm.network.clusters.members
        fastest = np.array([needed[list(clients)].min() for clients in members])
        late = np.flatnonzero(fastest > self.seconds * SLACK)
        if len(late):
            warn(
                f"no client of server {late[0]} is done within {self.seconds:g} s: the data of "
                f"{len(late)} cluster(s) never counts",
            )

    def _present(self, algorithm: Algorithm, period: int, steps: int, begun: Array) -> Mask:
        in_time = self._needed(algorithm, steps) <= self.seconds * SLACK
        return algorithm.present(period, steps, begun) & in_time

    def _collect(self, clock: EventClock, present: Mask, steps: int) -> Collected:
        begun = clock.at
        compute, upload, slack = clock.upload(present, steps, most=self.seconds)
        if not self.ends_early:
            clock.at, slack = begun + self.seconds, self.seconds - compute - upload
        return compute, upload, slack

    def _needed(self, algorithm: Algorithm, steps: int) -> Array:
        """Seconds that each client takes for so many steps and an upload, were all there."""
        everyone = np.ones(algorithm.network.clients, dtype=bool)
        uplink = algorithm.uplink
        needed: Array = steps * uplink.latencies.t_cmp + uplink.seconds(everyone)
        return needed
