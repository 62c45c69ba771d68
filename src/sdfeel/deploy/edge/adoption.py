"""An edge that has no checkpoint, while its neighbours are under way, goes on from their model.

It lost its disk, or it comes late. With the first model it would pull everybody back by its weight;
so it asks its neighbours for the model of their last finished period, and makes one its own. They
come over links, hence from edges of this deployment, and are checked like any model. No single one
is believed where there are more: of three models it takes the one that is nearest to another, of
two the one that is nearer to the first model, and a single one only if no other neighbour could be
asked until `deadlines.exchange` was over. It goes to no period that only one edge claims (see
`LinkStates.reached`); then it has the model, and begins to count anew. A neighbour that is cut off
while it answers is asked again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from sdfeel.deploy.facts import facts
from sdfeel.deploy.model.vectors import Vector, distance
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.peers.link_states import LinkStates
from sdfeel.deploy.peers.links import Links

__all__ = ["Adopter"]

ASKED = 3

Found = tuple[int, Vector]


@dataclass
class Adopter:
    """Asks a few neighbours at a time, for as long as an exchange may take."""

    node: Node
    links: Links
    states: LinkStates

    async def run(self, start: float, first: Vector) -> Found | None:
        """A finished period and its model; None if nobody is ahead, or nobody answers."""
        tried: list[str] = []
        found: dict[str, Found] = {}
        timeout = self.node.deployment.deadlines.exchange
        end = start + timeout
        while True:
            clear = partial(self._is_clear, [*tried, *found])
            await self.node.signal.until(clear, lambda: end)
            reached, left = self.states.reached(), self._ahead([*tried, *found])
            if not found and (not left or (not reached and len(self.states.others()) > 1)):
                return None
            candidates = sorted(left, key=lambda link: -link.done)[:ASKED]
            streams = {link.peer: link.generation for link in candidates}
            answers = await asyncio.gather(*(link.borrow(timeout) for link in candidates))
            is_late = asyncio.get_running_loop().time() >= end
            for link, answer in zip(candidates, answers, strict=True):
                if answer is not None and 0 < answer[0] <= link.periods:
                    found[link.peer] = answer
                elif link.up and link.generation == streams[link.peer]:
                    tried.append(link.peer)
                    self._pass_over(link.peer, "no valid model in time")
                elif is_late:
                    tried.append(link.peer)
                    self._pass_over(link.peer, "its stream ended")
            if found and (is_late or self._is_enough(found, tried)):
                models = {name: model for name, (_, model) in found.items()}
                peer = _most_believable(models, first)
                counted = self.node.topology.counted
                period = min(counted(found[peer][0], peer, self.node.name), reached)
                voices = sorted(name for name in found if name != peer)
                self.node.tell(facts.Adopted(peer=peer, period=period, beside=voices))
                return period, found[peer][1]

    def _is_enough(self, models: dict[str, Found], tried: list[str]) -> bool:
        """Whether nobody else could still give a model beside which these can be held.

        Three show by themselves which one is far away; fewer are held against all that come.
        """
        others = [k for k in self.links.values() if k.peer not in (*models, *tried)]
        return len(models) >= ASKED or all(link.up and not link.met_at for link in others)

    def _pass_over(self, peer: str, reason: str) -> None:
        self.node.tell(facts.NotAdopted(peer=peer, reason=reason))

    def _is_clear(self, tried: list[str]) -> bool:
        """Whether somebody can be asked for sure, or everybody is here and nobody can."""
        can_be_asked = bool(self._ahead(tried))
        if can_be_asked:
            return bool(self.states.reached())
        return all(link.up for link in self.links.values())

    def _ahead(self, tried: list[str]) -> list[Link]:
        """Who was under way when we met: progress since then is no sign that we are late."""
        links = self.links.values()
        return [k for k in links if k.up and k.met_at > 0 and k.peer not in tried]


def _most_believable(models: dict[str, Vector], first: Vector) -> str:
    """The one nearest to another; if there are two, the one nearer to the first model."""
    if len(models) < 3:
        return min(models, key=lambda name: distance(first, models[name]))

    def nearest(name: str) -> float:
        return min(distance(models[name], model) for peer, model in models.items() if peer != name)

    return min(models, key=nearest)
