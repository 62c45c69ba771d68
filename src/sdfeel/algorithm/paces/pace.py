"""A pace: who waits for whom. What all paces have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.events import Array, Event, Group, Indices
from sdfeel.network import Averager

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm

Mask = NDArray[np.bool_]


class Pace(ABC):
    """A pace says who waits for whom. Yours is a subclass with `events`.

    groups  whether clients begin together by "servers", or each of the "clients" for itself
    needs   words of `sdfeel.algorithm.compatibility` that must hold for it
    breaks  words that do not hold with it
    counts_steps  whether clients make as many steps as fit into a time

    >>> isinstance(sdfeel.Deadline(seconds=1.0), sdfeel.Pace)
    True
    """

    groups: ClassVar[Literal["servers", "clients"]] = "servers"
    needs: ClassVar[frozenset[str]] = frozenset()
    breaks: ClassVar[frozenset[str]] = frozenset()
    counts_steps: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """What paces like it are called."""
        return type(self).__name__.lower()

    @property
    def label(self) -> str:
        """What it is called, with its numbers."""
        return self.kind

    def deadlines(self, algorithm: Algorithm) -> list[float]:
        """Return the seconds that clients have in a period: of all, or of each server's."""
        return []

    @abstractmethod
    def events(self, algorithm: Algorithm, steps: float = math.inf) -> Iterator[Event]:
        """Yield all events in the order of time: always the same for the same algorithm.

        Args:
            algorithm: clients, servers, their devices and links, and the schedule.
            steps: where a run ends; a pace in rounds makes its last period shorter to meet it.
        """

    def check(self, algorithm: Algorithm) -> None:  # noqa: B027 - most have nothing to refuse
        """Raise InputError where nothing could come of it."""


class Members:
    """The clients of each server, and groups of those who take part."""

    def __init__(self, algorithm: Algorithm) -> None:
        network = algorithm.network
        self.servers, self.server_of = network.servers, network.clusters.server_of
        self._samples = np.array(network.shares.samples)
        self._order = np.concatenate([np.array(clients) for clients in network.clusters.members])
        self._everyone: list[tuple[Indices, Array]] = []

    def present(self, present: Mask) -> Sequence[tuple[Indices, Array]]:
        """Return the clients of each server that are present, and their shares m-hat."""
        if present.all():
            self._everyone = self._everyone or self._split(self._order)
            return self._everyone
        return self._split(self._order[present[self._order]])

    def _split(self, clients: Indices) -> list[tuple[Indices, Array]]:
        servers, samples = self.server_of[clients], self._samples[clients]
        ends = np.cumsum(np.bincount(servers, minlength=self.servers))
        totals = np.bincount(servers, weights=samples, minlength=self.servers)
        shares = samples / totals[servers]
        parts = (slice(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True))
        return [(clients[part], shares[part]) for part in parts]

    def groups(self, present: Mask, first: int, last: int) -> tuple[Group, ...]:
        """A group for each server, whose clients all make the same iterations."""
        present_by_server = self.present(present)
        most = max(len(clients) for clients, _ in present_by_server)
        firsts, lasts = np.full(most, first), np.full(most, last)
        return tuple(
            Group(
                server, server, last, clients, firsts[: len(clients)], lasts[: len(clients)], shares
            )
            for server, (clients, shares) in enumerate(present_by_server)
        )


def bytes_sent(algorithm: Algorithm, clients: int, mixing: Averager | None) -> dict[str, float]:
    """Bytes of an event in which so many clients upload, by way."""
    bits, vectors = algorithm.uplink.bits, algorithm.vectors_down(mixing is not None)
    sent = 0 if mixing is None else mixing.models_sent
    return {
        "up": clients * bits["up"] / 8,
        "between": sent * bits["between"] / 8,
        "down": clients * (bits["down"] + vectors * bits["whole"]) / 8,
    }
