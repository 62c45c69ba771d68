"""The exchanges of one period, eq. (5), over links that may fail."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from sdfeel.deploy.exchange.allreduce import AllReduce
from sdfeel.deploy.exchange.decision import Decider
from sdfeel.deploy.link.ledger import Doubt, Key
from sdfeel.deploy.link.link import Link
from sdfeel.deploy.link.link_states import LinkStates
from sdfeel.deploy.model.offload import offload
from sdfeel.deploy.model.vectors import Change, Vector, combine, distance, probe
from sdfeel.deploy.observe.logs import Log
from sdfeel.deploy.observe.metrics import Metrics
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology, View

__all__ = ["Mixer"]


@dataclass
class Mixer:
    """Carries out an averager's exchanges for one edge."""

    me: str
    topology: Topology
    links: dict[str, Link]
    folder: Path
    decider: Decider
    log: Log
    metrics: Metrics
    states: LinkStates

    async def agree(self, period: int) -> View:
        """The part of the network to count on, once all neighbours in it see the same one.

        Costs nothing for averagers that take each link by itself.
        """
        view = self._view()
        if not view.digest:
            return view
        told: dict[str, tuple[int, str]] = {}

        def same() -> bool:
            nonlocal view
            view = self._view()
            for peer, link in self.links.items():
                now = (link.generation, view.digest)
                if told.get(peer) != now:
                    told[peer] = now
                    announce = v1.Announce(period=period, view=view.digest)
                    link.tell(v1.LinkMessage(announce=announce))
            return all(
                link.announced == (period, view.digest) or link.peer_done >= period
                for peer, link in self.links.items()
                if peer in view.edges and self._linked(view, peer)
            )

        await self.decider.until(same, *self.links.values())
        return view

    def _view(self) -> View:
        self.states.refresh()
        return self.topology.view(self.me, self.states.up())

    async def run(self, period: int, model: Vector, view: View) -> tuple[Vector, int]:
        """The model after all exchanges, and how many times a link was used."""
        if view.averager.route == "all-reduce" and len(view.edges) > 1:
            return await self._all_reduce((period, 0), model, view)
        total = 0
        lost: set[str] = set()
        for number in range(view.averager.exchanges):
            model, used, missing = await self._exchange((period, number), model, view, lost)
            total += used
            # The later exchanges of these undo what the earlier ones overdid, link by link.
            if view.averager.name in ("chebyshev", "finite-time"):
                lost |= missing
        return model, total

    async def _all_reduce(self, key: Key, model: Vector, view: View) -> tuple[Vector, int]:
        part = AllReduce(self.me, self.topology, view, self.links, self.folder, self.decider, key)
        result = await part.run(model)
        if result is None:
            self._audit(key, model, model, [], part.peers)
            return model, 0
        self._audit(key, model, result, part.peers, [])
        return result, len(part.peers)

    async def _exchange(
        self, key: Key, model: Vector, view: View, lost: set[str]
    ) -> tuple[Vector, int, set[str]]:
        """Eq. (5): W <- W P with the weight of missing links given back to the diagonal."""
        neighbours = [
            peer for peer in self.links if peer in view.edges and self._linked(view, peer)
        ]
        asked = [peer for peer in neighbours if peer not in lost]
        answers = await asyncio.gather(
            *(self._swap(self.links[peer], key, model, view) for peer in asked)
        )
        used = {peer: theirs for peer, theirs in zip(asked, answers, strict=True) if theirs}
        weights = [view.weight(key[1], peer, self.me) for peer in used]
        for (peer, theirs), weight in zip(used.items(), weights, strict=True):
            self.links[peer].give(key, Change.towards(model, theirs, weight))
        models = [model, *used.values()]
        large = model.is_large
        mixed = model
        if used:
            own = 1 - sum(weights)
            mixed = await offload(large, lambda: combine(models, [own, *weights], self.folder))
        if key[1] == 0:
            for peer, theirs in used.items():
                apart = await offload(large, lambda theirs=theirs: distance(model, theirs))  # type: ignore[misc]
                self.metrics.disagreement.labels(peer).set(apart)
        missing = set(neighbours) - set(used)
        self._audit(key, model, mixed, list(used), sorted(missing))
        return mixed, len(used), missing

    def _linked(self, view: View, peer: str) -> bool:
        return bool(view.graph.has_edge(view.edges.index(self.me), view.edges.index(peer)))

    def _audit(
        self, key: Key, before: Vector, after: Vector, used: list[str], missing: list[str]
    ) -> None:
        fields: dict[str, object] = {"used": used, "missing": missing}
        if self.topology.deployment.audit:
            fields |= {"before": probe(before), "after": probe(after)}
        if missing or self.topology.deployment.audit:
            self.log("exchange", period=key[0], exchange=key[1], **fields)

    async def _swap(self, link: Link, key: Key, model: Vector, view: View) -> Vector | None:
        """One link in one exchange: the neighbour's model if both ends use it."""
        link.words.pop(key, None)
        if not link.up or link.peer_done >= key[0]:
            link.record(key, use=False)
            return None
        link.deciding.add(key)
        generation = link.generation
        link.offer(model, key, view=view.digest)
        if self.topology.leads(self.me, link.peer):
            return await self._lead(link, key, generation, view)
        return await self._follow(link, key, generation, model, view)

    async def _lead(self, link: Link, key: Key, generation: int, view: View) -> Vector | None:
        slot = (key, v1.Stage.SWAP)
        await self.decider.until(
            lambda: link.passed(key, generation) or (slot in link.offers and key in link.ready),
            link,
        )
        announced, theirs = link.offers.pop(slot, (None, None))
        use = (
            announced is not None
            and announced.view == view.digest
            and key in link.ready
            and not link.passed(key, generation)
        )
        link.record(key, use)
        link.say(key, v1.Word.USE if use else v1.Word.SKIP)
        return theirs if use else None

    async def _follow(
        self, link: Link, key: Key, generation: int, model: Vector, view: View
    ) -> Vector | None:
        slot = (key, v1.Stage.SWAP)
        await self.decider.until(
            lambda: link.passed(key, generation) or slot in link.offers or key in link.words,
            link,
        )
        announced, theirs = link.offers.pop(slot, (None, None))
        if announced is None or theirs is None or link.passed(key, generation):
            link.record(key, use=False)
            link.say(key, v1.Word.REFUSE, "too late")
            return None
        if announced.view != view.digest:
            link.record(key, use=False)
            link.say(key, v1.Word.REFUSE, "another view of the network")
            return None
        weight = view.weight(key[1], link.peer, self.me)
        change = Change.towards(model, theirs, weight)
        use = await self.decider.obey(link, key, Doubt(change))
        return theirs if use else None
