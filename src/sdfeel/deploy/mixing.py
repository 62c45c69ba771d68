"""The exchanges of one period, eq. (5), over links that may fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sdfeel.deploy.bell import Bell
from sdfeel.deploy.links import Key, Link, Pending
from sdfeel.deploy.logs import Log
from sdfeel.deploy.metrics import Metrics
from sdfeel.deploy.plan import Plan, View
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.vectors import Vector, combine, distance, probe
from sdfeel.deploy.views import LinkStates

__all__ = ["Mixer", "beside"]

Result = TypeVar("Result")


async def beside(large: bool, work: Callable[[], Result]) -> Result:
    """Long work goes to a thread, so that pings and timers are answered meanwhile."""
    return await asyncio.to_thread(work) if large else work()


@dataclass
class Mixer:
    """Carries out an averager's exchanges for one edge."""

    me: str
    plan: Plan
    links: dict[str, Link]
    folder: Path
    bell: Bell
    log: Log
    metrics: Metrics
    states: LinkStates
    patience: float

    async def agree(self, period: int) -> View:
        """The part of the network to count on, once all neighbours in it see the same one.

        Costs nothing for averagers that take each link by itself.
        """
        view = self._view()
        if not view.digest:
            return view
        told = ""

        def same() -> bool:
            nonlocal view, told
            view = self._view()
            if told != view.digest:
                told = view.digest
                for link in self.links.values():
                    announce = v1.Announce(period=period, view=told)
                    link.tell(v1.LinkMessage(announce=announce))
            return all(
                link.announced == (period, told) or link.peer_done >= period
                for peer, link in self.links.items()
                if peer in view.edges and self._linked(view, peer)
            )

        await self.bell.until(same, self._deadline(*self.links.values()))
        return view

    def _view(self) -> View:
        self.states.refresh()
        return self.plan.view(self.me, self.states.up())

    async def run(self, period: int, model: Vector, view: View) -> tuple[Vector, int]:
        """The model after all exchanges, and how many times a link was used."""
        if view.averager.route == "all-reduce" and len(view.edges) > 1:
            return await self._all_reduce(period, model, view)
        total = 0
        lost: set[str] = set()
        for number in range(view.averager.exchanges):
            model, used, missing = await self._exchange((period, number), model, view, lost)
            total += used
            # The later exchanges of these undo what the earlier ones overdid, link by link.
            if view.averager.name in ("chebyshev", "finite-time"):
                lost |= missing
        return model, total

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
            self.links[peer].unconfirmed[key] = Pending(model, theirs, weight)
        models = [model, *used.values()]
        large = model.is_large
        mixed = model
        if used:
            own = 1 - sum(weights)
            mixed = await beside(large, lambda: combine(models, [own, *weights], self.folder))
        if key[1] == 0:
            for peer, theirs in used.items():
                apart = await beside(large, lambda theirs=theirs: distance(model, theirs))  # type: ignore[misc]
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
        if self.plan.deployment.audit:
            fields |= {"before": probe(before), "after": probe(after)}
        if missing or self.plan.deployment.audit:
            self.log("exchange", period=key[0], exchange=key[1], **fields)

    def _deadline(self, *links: Link) -> Callable[[], float]:
        """A neighbour that still makes progress is worth waiting for."""
        start = asyncio.get_running_loop().time()
        return lambda: max(start, *(link.heard_at for link in links)) + self.patience

    async def _swap(self, link: Link, key: Key, model: Vector, view: View) -> Vector | None:
        """One link in one exchange: the neighbour's model if both ends use it."""
        link.words.pop(key, None)
        if not link.up or link.peer_done >= key[0]:
            link.record(key, use=False)
            return None
        link.deciding.add(key)
        generation = link.generation
        link.offer(model, key, view=view.digest)
        if self.plan.leads(self.me, link.peer):
            return await self._lead(link, key, generation, view)
        return await self._follow(link, key, generation, model, view)

    async def _lead(self, link: Link, key: Key, generation: int, view: View) -> Vector | None:
        slot = (key, v1.Stage.SWAP)
        await self.bell.until(
            lambda: link.passed(key, generation) or (slot in link.offers and key in link.ready),
            self._deadline(link),
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
        await self.bell.until(
            lambda: link.passed(key, generation) or slot in link.offers or key in link.words,
            self._deadline(link),
        )
        announced, theirs = link.offers.pop(slot, (None, None))
        if announced is None or theirs is None or link.passed(key, generation):
            link.record(key, use=False)
            return None
        if announced.view != view.digest:
            link.record(key, use=False)
            link.say(key, v1.Word.REFUSE, "another view of the network")
            return None
        weight = view.weight(key[1], link.peer, self.me)
        use = await self._obey(link, key, Pending(model, theirs, weight))
        return theirs if use else None

    async def _obey(self, link: Link, key: Key, pending: Pending) -> bool:
        """Says READY and does as told; without a word by the deadline goes on, and remembers."""
        link.uncertain[key] = pending
        link.say(key, v1.Word.READY)
        told = await self.bell.until(lambda: key in link.words, self._deadline(link))
        if not told:
            link.record(key, use=False)
            self.log("undecided", peer=link.peer, key=key)
            return False
        del link.uncertain[key]
        use = link.words.pop(key) == v1.Word.USE
        link.record(key, use)
        return use

    async def _all_reduce(self, period: int, model: Vector, view: View) -> tuple[Vector, int]:
        """The weighted mean over the whole part: sums up a tree, the result down, then the word.

        All of the part use the result or nobody does: the root decides once everybody holds it.
        """
        key = (period, 0)
        root, parents = view.tree()
        children = [self.links[name] for name, parent in parents.items() if parent == self.me]
        parent = None if root == self.me else self.links[parents[self.me]]
        for link in [*children, *([parent] if parent else [])]:
            link.deciding.add(key)
        result = await self._sum_and_share(key, model, view, children, parent)
        use = result is not None
        known = parent is None or key not in parent.uncertain
        for child in children:
            if known:
                child.record(key, use)
                child.say(key, v1.Word.USE if use else v1.Word.SKIP)
        if parent is not None and key in parent.deciding:
            parent.record(key, use=False)
            parent.say(key, v1.Word.REFUSE, "not everybody below is there")
        after = result or model
        used = [link.peer for link in children] + ([parent.peer] if parent else []) if use else []
        missing = [] if use else [*(c.peer for c in children), *([parent.peer] if parent else [])]
        self._audit(key, model, after, used, missing)
        return after, len(used)

    async def _sum_and_share(
        self, key: Key, model: Vector, view: View, children: list[Link], parent: Link | None
    ) -> Vector | None:
        parts = await self._from_children(key, children, view)
        if parts is None:
            return None
        share = self.plan.share(self.me)
        masses = [share, *(mass for mass, _ in parts)]
        total = sum(masses)
        models = [model, *(vector for _, vector in parts)]
        weights = [mass / total for mass in masses]
        mean = await beside(model.is_large, lambda: combine(models, weights, self.folder))
        if parent is not None:
            from_parent = await self._from_parent(key, mean, total, parent, view)
            if from_parent is None:
                return None
            mean = from_parent
        if not await self._hand_down(key, mean, children, view):
            return None
        if parent is None:
            return mean
        use = await self._obey(parent, key, Pending(model, mean, 1.0, children))
        return mean if use else None

    async def _from_children(
        self, key: Key, children: Sequence[Link], view: View
    ) -> list[tuple[float, Vector]] | None:
        slot = (key, v1.Stage.UP)
        generations = [child.generation for child in children]

        def over() -> bool:
            return any(
                child.passed(key, generation)
                for child, generation in zip(children, generations, strict=True)
            )

        await self.bell.until(
            lambda: over() or all(slot in child.offers for child in children),
            self._deadline(*children) if children else lambda: 0.0,
        )
        found = [child.offers.pop(slot, None) for child in children]
        parts = [(f[0].mass, f[1]) for f in found if f is not None and f[0].view == view.digest]
        return parts if len(parts) == len(children) and not over() else None

    async def _from_parent(
        self, key: Key, mean: Vector, mass: float, parent: Link, view: View
    ) -> Vector | None:
        slot, generation = (key, v1.Stage.DOWN), parent.generation
        if parent.passed(key, generation):
            return None
        parent.offer(mean, key, view=view.digest, mass=mass, stage=v1.Stage.UP)
        await self.bell.until(
            lambda: parent.passed(key, generation) or slot in parent.offers or key in parent.words,
            self._deadline(parent),
        )
        announced, result = parent.offers.pop(slot, (None, None))
        if announced is None or announced.view != view.digest:
            return None
        return result if not parent.passed(key, generation) else None

    async def _hand_down(
        self, key: Key, mean: Vector, children: Sequence[Link], view: View
    ) -> bool:
        generations = [child.generation for child in children]
        for child in children:
            child.offer(mean, key, view=view.digest, stage=v1.Stage.DOWN)

        def over() -> bool:
            return any(
                child.passed(key, generation)
                for child, generation in zip(children, generations, strict=True)
            )

        await self.bell.until(
            lambda: over() or all(key in child.ready for child in children),
            self._deadline(*children) if children else lambda: 0.0,
        )
        return all(key in child.ready for child in children) and not over()
