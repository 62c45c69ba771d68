"""What happens when: groups of clients hand in, their servers take them, and servers mix.

The stream of events is a function of profile, seed and pace, and of no model. So a run is a fold
over it, and whoever asks what a run costs sums over it: the clock, the page and the planner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sdfeel.network import Averager

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# What the time of a group goes into, in this order: `slack` until its server's deadline, `wait` for
# other clusters.
SPANS = ("compute", "upload", "slack", "wait", "exchange", "download")


@dataclass(frozen=True, eq=False)
class Group:
    """Clients that began together from one server's model, and how that server takes them.

        w <- keep w + follow h - (keep + follow - 1) w0 + sum_i weights_i (w_i - h)

    w is the server's model, w0 what it was when the group began, and h what the clients got of it
    (h = w0 unless a codec rounds on the way down); weights = scale shares stretch. In rounds keep,
    follow and scale are 1 and nobody moved w meanwhile: w <- sum_i shares_i w_i, eq. (3).

    number       its row among the groups: one for each server or, in a star, for each client
    k            its iterations, this period included
    clients      those who take part, in order; first, last: the iterations of each
    shares       m-hat over those who take part
    stretch      brings moves to one number of steps; None where clients made equally many
    follow       how much of the server's model becomes what its clients held
    waits        the server puts the group aside until one comes that does not wait
    """

    number: int
    server: int
    k: int
    clients: Indices
    first: Indices
    last: Indices
    shares: Array
    stretch: Array | None = None
    scale: float = 1.0
    keep: float = 1.0
    follow: float = 1.0
    waits: bool = False

    @cached_property
    def weights(self) -> Array:
        """Return how much each client's move counts."""
        weights = self.shares if self.stretch is None else self.shares * self.stretch
        return weights if self.scale == 1 else self.scale * weights

    @cached_property
    def total(self) -> float:
        """The sum of the weights; exactly `scale` where clients made equally many steps."""
        if self.stretch is None:
            return self.scale
        return self.scale * float((self.shares * self.stretch).sum())

    @property
    def is_mean(self) -> bool:
        """Whether, were w still w0, the server would take the mean of its clients, eq. (3)."""
        return self.stretch is None and self.scale == self.keep == self.follow == 1

    @property
    def steps(self) -> int:
        """Local updates of all its clients."""
        return int((self.last - self.first).sum()) + len(self.clients)


@dataclass(frozen=True, eq=False)
class Event:
    """A moment of the simulated clock at which servers change.

    number  from 0
    k       iterations of the slowest group, this event included
    at      seconds when its groups hand in; ends: when the last of them begins anew
    groups  in the order in which their servers take them
    mixing  how servers then exchange models, eq. (5); None where they do not
    begun   of each group, the second at which it began
    spans   by name of `SPANS`, the seconds of each group
    waited  of each server, the seconds that it has waited for other clusters since the start
    bytes   sent "up", "between" servers and "down"
    round   the number of its round, from 0, where a pace has rounds
    is_short  whether the end of the run cuts its period off: a longer run has another event here
    """

    number: int
    k: int
    at: float
    ends: float
    groups: tuple[Group, ...]
    mixing: Averager | None
    begun: Array
    spans: Mapping[str, Array]
    waited: Array
    bytes: Mapping[str, float]
    round: int = 0
    is_short: bool = False

    @property
    def idle_share(self) -> float:
        """The share of time that servers have waited for other clusters, on average."""
        return float(self.waited.mean() / self.ends) if self.ends > 0 else 0.0


def windows(
    events: Iterable[Event], is_last: Callable[[Event], bool] = lambda _: False
) -> Iterator[list[Event]]:
    """Split a stream into lists in which no group comes twice.

    What a group trains depends only on the model that it began from and on what its clients
    remember, so the groups of a window can be trained in one call.

    Args:
        events: the stream.
        is_last: whether a window ends with an event, because something looks at the models then.
    """
    window: list[Event] = []
    seen: set[int] = set()
    for event in events:
        numbers = {group.number for group in event.groups}
        if numbers & seen:
            yield window
            window, seen = [], set()
        window.append(event)
        seen |= numbers
        if is_last(event):
            yield window
            window, seen = [], set()
    if window:
        yield window
