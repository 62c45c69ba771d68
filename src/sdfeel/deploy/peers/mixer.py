"""The exchanges of one period, eq. (5), over links that may fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sdfeel.deploy.facts import facts
from sdfeel.deploy.members import View
from sdfeel.deploy.model.vectors import Change, Vector, distance, probe
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.agreement import Standing, Transaction
from sdfeel.deploy.peers.allreduce import AllReduce
from sdfeel.deploy.peers.exchange_timeout import ExchangeTimeout, Stages
from sdfeel.deploy.peers.hearing import Hearing
from sdfeel.deploy.peers.link import Key, Link, Offer
from sdfeel.deploy.peers.link_states import LinkStates
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.peers.messages import Message, Messages
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.waiting import offload

__all__ = ["Mixer"]

SWAP = v1.Stage.SWAP
STAGES = 2  # of one exchange: models and votes, then the decision
ATTEMPTS = 3  # at one all-reduce, while the neighbours hear of links that come and go


@dataclass
class Mixer:
    """Carries out an averager's exchanges for one edge."""

    node: Node
    links: Links
    states: LinkStates
    timeout: ExchangeTimeout
    hearing: Hearing
    move: Callable[[Change], Awaitable[Vector]] = field(init=False)  # adds to the model
    waited: float = 0.0  # seconds of the last `run` until neighbours had begun to send

    def __post_init__(self) -> None:
        self._has_agreed = True
        self.me, self.topology = self.node.name, self.node.topology

    async def agree(self, period: int, was_paused: bool = False) -> View:
        """The part of the network to count on, once all neighbours in it see the same one.

        An edge that was paused waits until its neighbours count on it again. Costs nothing for
        averagers that take each link by itself.
        """
        view = self._view(period)
        self._has_agreed = True
        if not view.digest:
            return view
        told: dict[str, tuple[int, str]] = {}

        def same() -> bool:
            nonlocal view
            view = self._view(period)
            for peer, link in self.links.items():
                now = (link.generation, view.digest)
                if told.get(peer) != now:
                    told[peer] = now
                    announce = v1.Announce(period=period, view=view.digest)
                    link.tell(v1.LinkMessage(announce=announce))
            if was_paused and not self._is_counted_on(view):
                return False
            return not [link for link in waited() if link.announced != (period, view.digest)]

        def waited() -> list[Link]:
            near = [self.links[peer] for peer in self._neighbours(view)]
            return [link for link in near if link.done < period]

        self._has_agreed = await self.timeout.until_agreed(same, self.links.values())
        if not self._has_agreed:
            for link in waited():
                if link.up and link.announced != (period, view.digest):
                    link.held_up(elsewhere=link.announced[0] == period)
        return view

    def _is_counted_on(self, view: View) -> bool:
        return all(peer in view.edges for peer, link in self.links.items() if link.counts)

    def _view(self, period: int) -> View:
        self.states.refresh()
        return self.topology.at(period).view(self.me, self.states.up())

    async def run(self, period: int, model: Vector, view: View) -> int:
        """Move the model by all exchanges; how many times a link was used."""
        self.waited = 0.0
        if not self._has_agreed:
            return self._leave_out(period, model, view)
        if view.averager.route == "all-reduce" and len(view.edges) > 1:
            return await self._all_reduce((period, 0), model, view)
        total = 0
        lost: list[str] = []
        stages = self.timeout.stages() if view.digest else None
        for number in range(view.averager.exchanges):
            model, used, missing = await self._exchange((period, number), model, view, lost, stages)
            total += used
            # The later exchanges of these undo what the earlier ones overdid, link by link.
            if view.averager.overshoots:
                lost += [peer for peer in missing if peer not in lost]
        for peer in self._neighbours(view) if view.digest else ():
            if peer not in lost:
                self.links[peer].went_well()
        return total

    def _leave_out(self, period: int, model: Vector, view: View) -> int:
        """No exchange, because the neighbours do not see the same network: no link is used."""
        peers = self._neighbours(view)
        for peer in peers:
            self.links[peer].count(use=False)
            reason = "not everybody has come, or sees the same network"
            self.links[peer].refuse((period, 0), reason, hops=1)
        self._audit((period, 0), model, model, [], peers)
        return 0

    async def _all_reduce(self, key: Key, model: Vector, view: View) -> int:
        start = asyncio.get_running_loop().time()
        for _ in range(ATTEMPTS):
            part = AllReduce(self.node, view, self.links, self.timeout, key)
            result = await part.run(model)
            if not part.is_elsewhere:
                break
            view = await self.agree(key[0])
            if not self._has_agreed:
                return self._leave_out(key[0], model, view)
        self._note_waiting(key, part.children, start)
        if result is None:
            self._audit(key, model, model, [], part.peers)
            return 0
        # What the links give is known to the agreement; together it is exactly this.
        mean = await self.move(Change.towards(model, result, 1.0))
        self._audit(key, model, mean, part.peers, [])
        return len(part.peers)

    async def _exchange(
        self, key: Key, model: Vector, view: View, lost: list[str], stages: Stages | None
    ) -> tuple[Vector, int, list[str]]:
        """Eq. (5): W <- W P with the weight of missing links given back to the diagonal."""
        neighbours = self._neighbours(view)
        weights = {peer: view.weight(key[1], peer, self.me) for peer in neighbours}
        asked = [peer for peer in neighbours if peer not in lost]
        for peer in lost:
            self.links[peer].refuse(key, "lost in an earlier exchange of the period")
        messages = Messages(self.node, model, key[0] * self.topology.tau1, key[1])
        swaps = [
            Swap(
                peer, self.links, self.timeout, self.hearing, view, key, weights[peer], stages
            ).run(messages, coordinates=self.topology.at(key[0]).leads(self.me, peer))
            for peer in asked
        ]
        start = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*swaps)
        self._note_waiting(key, asked, start)
        used = {peer: change for peer, change in zip(asked, answers, strict=True) if change}
        large = model.is_large
        gift = await self.hearing.together(model, list(used.values()))
        mixed = model if gift is None else await self.move(gift)
        if key[1] == 0:
            for peer, change in used.items():
                theirs = change.vectors[0]
                apart = await offload(large, lambda theirs=theirs: distance(model, theirs))  # type: ignore[misc]
                self.node.metrics.disagreement.labels(peer).set(apart)
        missing = [peer for peer in neighbours if peer not in used]
        self._audit(key, model, mixed, list(used), missing)
        return mixed, len(used), missing

    def _note_waiting(self, key: Key, peers: list[str], start: float) -> None:
        """One whose model has not begun to come was waited for to the end."""
        now = asyncio.get_running_loop().time()
        begun = [self.links[peer].opened.get(key, now) for peer in peers]
        for peer in peers:
            if key in self.links[peer].opened:
                seconds = max(0.0, self.links[peer].opened[key] - start)
                self.timeout.times.answered(peer, seconds)
            else:
                self.timeout.times.missed(peer)
        self.waited += max(0.0, max(begun, default=start) - start)

    def _neighbours(self, view: View) -> list[str]:
        """Those with whom this edge exchanges models in this part of the network."""
        me, edges = view.edges.index(self.me), view.edges
        return [p for p in self.links if p in edges and view.graph.has_edge(me, edges.index(p))]

    def _audit(
        self, key: Key, before: Vector, after: Vector, used: list[str], missing: list[str]
    ) -> None:
        is_audited = self.topology.deployment.audit
        if missing or is_audited:
            self.node.tell(
                facts.Exchange(
                    period=key[0],
                    exchange=key[1],
                    used=used,
                    missing=missing,
                    before=probe(before) if is_audited else None,
                    after=probe(after) if is_audited else None,
                )
            )


@dataclass
class Swap:
    """One link in one exchange: two neighbours swap their models, or neither does. Our part of it.

    weight   p[j, d], what the neighbour's model counts here
    stages   of an exchange that needs everybody
    """

    peer: str
    links: Links
    timeout: ExchangeTimeout
    hearing: Hearing
    view: View
    key: Key
    weight: float
    stages: Stages | None = None

    async def run(self, messages: Messages, coordinates: bool) -> Change | None:
        """What the link gives, if both ends use it."""
        self._link = self.links[self.peer]
        self._generation = self._link.generation
        self._start = asyncio.get_running_loop().time()
        crowded = self.links.agreement.is_crowded(self.peer, self.key[0])
        if crowded or self._is_over():
            self._link.count(use=False)
            return None
        message = await messages.to(self._link.bases)
        if self._is_over():
            self._link.count(use=False)
            return None
        transaction = await (self._lead if coordinates else self._follow)(messages, message)
        return transaction.change if transaction is not None and transaction.used else None

    def _is_over(self) -> bool:
        return self._link.has_left(self.key, self._generation)

    def _take(self) -> Offer | None:
        """The neighbour's model; if we waited for it in vain, that is noted."""
        theirs = self._link.take(self.key, SWAP)
        if theirs is None and not self._is_over():
            self._missed()
        return theirs

    def _missed(self) -> None:
        if self.stages is None:
            self._link.was_missed(self._start)
        else:
            self._link.held_up()

    async def _until(self, condition: Callable[[], bool], stage: int) -> None:
        """Wait for the neighbour's models and votes (stage 1), or its decision (2)."""
        if self.stages is None:
            await self.timeout.until(condition, [self._link])
        else:
            await self.stages.until(condition, self.key[1] * STAGES + stage)

    async def _lead(self, messages: Messages, message: Message) -> Transaction[Change] | None:
        link, key, agreement = self._link, self.key, self.links.agreement
        transaction = agreement.begin(self.peer, agreement.draw(*key))
        fields = {"view": self.view.digest, "bound": self.hearing.bound}
        link.offer(message.load, key, ballot=transaction.id.ballot, **fields)
        await self._until(
            lambda: self._is_over() or (link.has(key, SWAP) and transaction.vote is not None), 1
        )
        theirs = self._take()
        is_good = theirs is not None and theirs.view == self.view.digest
        if theirs is None or not is_good or not transaction.has_vote(theirs.vector.sha256):
            if theirs is not None and not self._is_over() and self.stages is not None:
                link.held_up(elsewhere=not is_good)  # or it voted too late, or for another model
            self.links.abort(transaction)
            return None
        change = await self._change(message.shown, theirs)
        if self._is_over():
            self.links.abort(transaction)
            return None
        base = messages.base(message.shown, theirs.vector)
        agreement.voted(transaction, change, base)
        self.links.commit(transaction)
        return transaction

    async def _change(self, shown: Vector, theirs: Offer) -> Change:
        vector, bound = theirs.vector, theirs.bound
        return await self.hearing.change(self.peer, shown, vector, self.weight, bound)

    async def _follow(self, messages: Messages, message: Message) -> Transaction[Change] | None:
        link, key = self._link, self.key
        link.offer(message.load, key, view=self.view.digest, bound=self.hearing.bound)
        await self._until(lambda: self._is_over() or link.has(key, SWAP), 1)
        theirs = self._take()
        if theirs is None or theirs.view != self.view.digest or self._is_over():
            link.count(use=False)
            link.refuse(key, "too late, or another view of the network")
            return None
        shown = message.shown
        change = await self._change(shown, theirs)
        base = messages.base(shown, theirs.vector)
        transaction = self.links.prepare(self.peer, theirs.id, change, shown.sha256, base)
        await self._until(lambda: transaction.state is not Standing.PREPARED, 2)
        if transaction.state is Standing.PREPARED and self.stages is not None:
            link.held_up()
        self.links.give_up_waiting(transaction)
        return transaction
