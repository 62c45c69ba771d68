"""Which links are up anywhere: every edge tells its own, and passes on what it hears."""

from __future__ import annotations

import time

from sdfeel.deploy.link.link import Link
from sdfeel.deploy.protocol import v1

__all__ = ["LinkStates"]


class LinkStates:
    """The newest word of every edge about its links, flooded over the links themselves."""

    def __init__(self, me: str, links: dict[str, Link]) -> None:
        self.me = me
        self.links = links
        # A start later than any number before a restart.
        self._number = time.time_ns()
        self._states: dict[str, v1.LinkState] = {}
        self._last: set[str] | None = None

    def all(self) -> list[v1.LinkState]:
        return list(self._states.values())

    def _now(self) -> set[str]:
        return {peer for peer, link in self.links.items() if link.up}

    @property
    def is_stale(self) -> bool:
        """Whether a link has changed since the others were told."""
        return self._now() != self._last

    def refresh(self) -> None:
        """Tells the others if a link has changed."""
        now = self._now()
        if now != self._last:
            self._last = now
            self._number += 1
            self.take(v1.LinkState(edge=self.me, number=self._number, up=sorted(now)), None)

    def take(self, state: v1.LinkState, origin: str | None) -> None:
        """Keeps a state that is news, and passes it on."""
        known = self._states.get(state.edge)
        if known is not None and known.number >= state.number:
            return
        if origin is not None and state.edge == self.me:
            return
        self._states[state.edge] = state
        for peer, link in self.links.items():
            if peer != origin:
                link.tell(v1.LinkMessage(state=state))

    def up(self) -> set[tuple[str, str]]:
        """The links that both ends call up."""
        claims = {(edge, peer) for edge, state in self._states.items() for peer in state.up}
        return {(a, b) for a, b in claims if (b, a) in claims}
