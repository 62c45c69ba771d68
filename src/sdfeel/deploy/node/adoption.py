"""An edge that has no checkpoint, while its neighbours are under way, goes on from their model.

It lost its disk, or it comes late. With the first model it would pull everybody back by its weight;
so it asks the neighbour that is farthest for the model of its last finished period, and makes that
its own. It comes over a link, hence from an edge of this deployment, and is checked like any model.
"""

from __future__ import annotations

from dataclasses import dataclass

from sdfeel.deploy.link.link import Link
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.observe.logs import Log
from sdfeel.deploy.waiting import Bell

__all__ = ["Adopter"]


@dataclass
class Adopter:
    """Asks one neighbour after the other, each for as long as an exchange may take."""

    links: dict[str, Link]
    bell: Bell
    log: Log
    periods: int
    patience: float

    async def run(self, start: float) -> tuple[int, Vector] | None:
        """A finished period and its model; None if nobody is ahead, or nobody answers."""
        tried: set[str] = set()
        while True:
            await self.bell.until(
                lambda: bool(self._ahead(tried)) or all(link.up for link in self.links.values()),
                lambda: start + self.patience,
            )
            left = self._ahead(tried)
            if not left:
                return None
            link = max(left, key=lambda link: link.done)
            tried.add(link.peer)
            found = await link.borrow(self.patience)
            if found is not None and 0 < found[0] <= self.periods:
                self.log("adopted", peer=link.peer, period=found[0])
                return found
            self.log("not-adopted", peer=link.peer, reason="no valid model in time")

    def _ahead(self, tried: set[str]) -> list[Link]:
        """Who was under way when we met: progress since then is no sign that we are late."""
        links = self.links.values()
        return [link for link in links if link.up and link.met_at > 0 and link.peer not in tried]
