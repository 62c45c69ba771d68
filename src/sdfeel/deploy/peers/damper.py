"""Whether exchanges of everybody can count on a neighbour.

In an all-reduce one silent edge costs everybody the exchange, so an edge that holds up too many is
left out for a while, each time for twice as long, as routers damp routes that flap. What it has
done well is forgiven slowly: one that takes part in every second exchange is left out too.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REFUSED", "Damper"]

MOST = 3.0  # exchanges held up, from which on it is left out
# What an exchange that it refused counts: an honest edge refuses for as long as another one, which
# it has not left out yet, keeps it waiting.
REFUSED = 0.25
FORGIVEN = 0.5 ** (1 / 8)  # what is left of that after each exchange that went well
DOUBLINGS = 6
TRUSTED = 16  # exchanges that went well, after which it is left out for half as long


@dataclass
class Damper:
    """Of one neighbour.

    penalty   exchanges that it held up, or before which its stream ended
    is_out    left out until it has come to an exchange from number `back` on
    """

    penalty: float = 0.0
    is_out: bool = False
    back: int = 0
    _came: int = 0
    _times: int = 0
    _well: int = 0

    def went_well(self) -> None:
        self.penalty *= FORGIVEN
        self._well += 1
        if self._well >= TRUSTED:
            self._times, self._well = max(0, self._times - 1), 0

    def failed(self, number: int, by: float = 1.0) -> int:
        """Count a failure before or in exchange `number`; for how many it is left out now."""
        self.penalty += by
        if self.is_out or self.penalty < MOST:
            return 0
        self._times, self._well = min(self._times + 1, DOUBLINGS), 0
        exchanges: int = 2**self._times
        self.is_out, self.back = True, number + exchanges
        return exchanges

    def came(self, number: int) -> None:
        """It has come to an exchange, although nobody counts on it."""
        self._came = number

    def begin(self, number: int) -> None:
        """The next exchange is this one: who was there for the last has another chance.

        Not in the middle of an exchange, when others have agreed on who takes part.
        """
        if self.is_out and number > self._came >= self.back:
            self.is_out, self.penalty = False, min(self.penalty, MOST - REFUSED)
