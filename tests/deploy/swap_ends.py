"""Two or three edges that swap numbers without rounds, by the real `Agreement`, over streams that
break when told to. Whoever holds a `SwapTrial` decides what happens next; see `ends`.

Every edge may begin a swap whenever it likes, also while others do, and save at any time.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ends import Edge, Message, Trial

from sdfeel.deploy.peers.agreement import Do, Owed, Standing


class SwapTrial(Trial):
    """As `exchange.flows` does it, with models that are one number."""

    def __init__(self, parents: dict[str, str | None], shares: dict[str, int]) -> None:
        super().__init__(parents, shares)
        self.degree = max(len(self._near(edge)) for edge in self.edges.values())

    def _near(self, edge: Edge) -> tuple[str, ...]:
        return (*edge.children, *([edge.parent] if edge.parent else []))

    def moves(self) -> list[Message]:
        found = [move for move in super().moves() if move[0] != "save"]
        for name, edge in self.edges.items():
            if edge.alive and edge.saving is None and self._is_unsaved(edge):
                found.append(("save", name))
                found = [move for move in found if move != ("start", name) or not edge.over]
        return found

    def _is_unsaved(self, edge: Edge) -> bool:
        """Whether its model is not the one on its disk, or a turn of its is over."""
        return edge.over or bool(edge.agreement.owed) or edge.model != edge.disk.model

    def _start(self, name: str) -> None:
        edge = self.edges[name]
        self._clear(edge)
        edge.busy, edge.up = True, self._given(edge)
        for peer in self._near(edge):
            if self._is_up(name, peer):
                id_ = edge.agreement.draw(edge.done + 1, 0)
                edge.below[peer] = edge.agreement.begin(peer, id_)
                self._send(edge, peer, "offer", id_, edge.up)
        self._advance(edge)

    def _given(self, edge: Edge) -> Fraction:
        while edge.agreement.owed:
            edge.model += edge.agreement.owed.pop(0).change
        return edge.model

    def _weight(self, edge: Edge, peer: str) -> Fraction:
        flow = min(edge.share, self.edges[peer].share) / (2 * (1 + self.degree))
        return flow / edge.share

    def _take(self, edge: Edge, peer: str, message: Message) -> None:
        kind, *rest = message
        if kind == "offer":
            id_, theirs = rest
            own = self._given(edge)
            change = self._weight(edge, peer) * (theirs - own)
            self._act(edge, edge.agreement.prepare(peer, id_, change)[1])
            self._send(edge, peer, "answer", id_, own)
        elif kind == "answer":
            id_, theirs = rest
            if peer in edge.below and edge.below[peer].id == id_:
                edge.ups[peer] = theirs
            self._look(edge)
        else:
            super()._take(edge, peer, message)

    def _advance(self, edge: Edge) -> None:
        for peer, transaction in edge.below.items():
            is_here = peer in edge.ups and transaction.vote is not None
            if transaction.state is Standing.ACTIVE and is_here:
                assert edge.up is not None
                change = self._weight(edge, peer) * (edge.ups[peer] - edge.up)
                edge.agreement.voted(transaction, change)
                self._act(edge, edge.agreement.commit(transaction))
        if not any(t.state is Standing.ACTIVE for t in edge.below.values()):
            edge.busy, edge.over = False, True

    def _deadline(self, name: str) -> None:
        edge = self.edges[name]
        for transaction in edge.below.values():
            if transaction.state is Standing.ACTIVE:
                self._act(edge, edge.agreement.abort(transaction))
        edge.busy, edge.over = False, True

    def _act(self, edge: Edge, actions: list[Any]) -> None:
        super()._act(edge, actions)
        for action in actions:
            if action.do is Do.USE:
                edge.agreement.owed.append(Owed(action.peer, action.change))
