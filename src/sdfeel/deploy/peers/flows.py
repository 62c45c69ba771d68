"""Swaps of edges that wait for no other cluster.

An edge d that is ready swaps with each neighbour j by itself, over links that may fail:

    d, which is ready                            j, whatever its cluster does meanwhile
    1. w_d, a new id, what it has heard of  -->
                                                 2. takes its w_j of this moment, works out its
                                                    change, and promises to do as it is told
                                       <--  w_j, delta_j, PREPARED
    3. works out its own change, decides
       COMMIT and adds it                   -->
                                                 4. adds its change

with the flow c_dj of `sdfeel.algorithm.paces.asynchronous` and the w_d and w_j that were sent,

    change_d = (c_dj / m~_d) (w_j - w_d),        change_j = (c_dj / m~_j) (w_d - w_j)

**Who initiates.** Whoever is ready; it coordinates. If both are, each does, under an id of its own,
and both swaps go through: neither knows of the other.

**What is locked.** Nothing. A change is fixed when it is worked out, m~_d change_d + m~_j change_j
= 0, and it is added to whatever the model has become when the decision is known. Of an edge's model
all changes that are under way at the same time take less than one whole: those of its own swaps
together less than psi(0), which is 1/2, and so do those of its neighbours'. Nobody waits for a
cluster: j answers from its event loop, and d waits for the way there and back, for
`deadlines.exchange` at most; who did not answer is waited for half as long the next time.

**What is durable.** Nothing before a message; each end writes a checkpoint in its own time. The
agreement of the links (`peers.agreement`, the same table as in rounds) sees to the rest:

    d dies after 1    if j has promised, it asks d on the next contact, hears ABORT and forgets
    j dies after 2    before d has decided: d leaves the link out
                      after that: d has added its change, asks j in its next life, hears ABORT,
                      and takes it back
    d dies after 3    without a checkpoint that has it: if j has heard COMMIT, it asks d in its
                      next life, hears ABORT, and takes its change back; if not, it forgets it
                      with one: j asks, hears COMMIT, and adds its change then
    j dies after 4    without a checkpoint that has it: d takes its change back, as above
                      with one: nothing is left to do
    the way is cut    as if the other end had died, but that its memory is whole

Both ends keep a change until the other has a checkpoint with it; above a few that are not on its
disk, an edge writes a checkpoint before its period is over, so that its neighbours can forget.

`stale-weights` needs none of this: d asks for its neighbours' models, and only its own moves.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sdfeel.algorithm.paces.asynchronous import Asynchronous
from sdfeel.deploy.facts import facts
from sdfeel.deploy.model.vectors import Change, Vector, distance
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.agreement import Action, Id, Owed
from sdfeel.deploy.peers.counts import Counts
from sdfeel.deploy.peers.exchange_timeout import ExchangeTimeout
from sdfeel.deploy.peers.hearing import Hearing
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.peers.messages import Messages
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.token_bucket import TokenBucket
from sdfeel.deploy.waiting import offload

__all__ = ["Flows"]

FULL = 4  # swaps over one link that no checkpoint has, above which one is written
# Of the time between two swaps of a neighbour, after which the next is allowed: clocks differ.
# Every swap pulls us towards its model, and one that lies could ask all the time.
SLACK = 0.9
ANY = -1  # no period


@dataclass(frozen=True)
class Heard:
    """A neighbour's model, and what it says with it: its delta, and its bound."""

    vector: Vector
    staleness: int
    bound: float


@dataclass
class Flows:
    """The swaps of one edge, those that it asks for and those that it is asked for.

    is_open   whether we answer: not before we have a model worth swapping
    current   our model with all that links have given
    on_full   a checkpoint should be written soon
    unsaved   by neighbour, swaps since the last checkpoint began
    """

    node: Node
    pace: Asynchronous
    links: Links
    counts: Counts
    timeout: ExchangeTimeout
    hearing: Hearing

    def __post_init__(self) -> None:
        self.me, self.topology = self.node.name, self.node.topology
        self.is_open = False
        self.current: Callable[[], Awaitable[Vector]]
        self.on_full: Callable[[], None] = lambda: None
        self.unsaved: Counter[str] = Counter()
        self._answers: dict[tuple[str, Id], Heard | None] = {}
        often = {peer: self.topology.tau2 * self.topology.seconds(peer) for peer in self.links}
        self._allowed = {peer: TokenBucket(SLACK * each) for peer, each in often.items()}
        self.links.on_use, self.links.moved = self._used, self._moved
        self.links.counts = self.counts.tell
        self.links.on_progress = lambda peer, word: self._hear(peer, word.counts)
        for peer, link in self.links.items():
            link.hooks.swap = partial(self._came, peer)
            link.hooks.wanted = partial(self._wanted, peer, link.hooks.wanted)

    def _hear(self, peer: str, counts: Iterable[v1.Count]) -> None:
        if not self.counts.hear(peer, counts):
            self._refuse(peer, "counts", "turns or steps that cannot be")

    def _refuse(self, peer: str, kind: str, reason: str) -> None:
        self.node.tell(facts.MessageRefused(kind=kind, reason=reason, peer=peer))

    def _weight(self, peer: str, id_: Id, staleness: int) -> float:
        """c_dj / m~_d, of a flow c_dj that is the same at both ends of a link."""
        members = self.topology.at(id_.period)
        psi = self.pace.weight(staleness, len(members.edges))
        own, other = members.share(self.me), members.share(peer)
        return self.pace.flow(own, other, psi, members.degree) / own

    # What we ask for.

    async def run(self, turn: int, model: Vector) -> list[str]:
        """Swaps with all neighbours at once; those with whom it came about."""
        answered = await asyncio.gather(*(self._swap(peer, turn, model) for peer in self.links))
        found = {
            peer: answer
            for peer, answer in zip(self.links, answered, strict=True)
            if answer is not None
        }
        if self.pace.mixing == "stale-weights":
            await self._move_alone(turn, model, found)
        for peer, heard in found.items():
            apart = await offload(model.is_large, partial(distance, model, heard.vector))
            self.node.metrics.disagreement.labels(peer).set(apart)
            self.node.metrics.staleness.labels(peer).set(heard.staleness)
        return list(found)

    async def _swap(self, peer: str, turn: int, model: Vector) -> Heard | None:
        """The neighbour's model, once both ends use the link; by stale weights, once it is here."""
        link, agreement = self.links[peer], self.links.agreement
        if not link.up or agreement.is_crowded(peer, ANY):
            link.count(use=False)
            return None
        id_ = agreement.draw(turn, 0)
        if self.pace.mixing == "stale-weights":
            counts = self.counts.tell()
            wanted = v1.Wanted(period=turn, ballot=id_.ballot, counts=counts)
            link.tell(v1.LinkMessage(wanted=wanted))
            answer = await self._answer_of(link, id_, lambda: True)
            link.count(use=answer is not None)
            return answer
        generation, messages = link.generation, self._messages(model)
        message = await messages.to(link.bases)
        if link.has_declined(id_[:2], generation):
            link.count(use=False)
            return None
        transaction = agreement.begin(peer, id_)
        fields = {"ballot": id_.ballot, **self._about()}
        link.offer(message.load, id_[:2], stage=v1.Stage.OFFER, **fields)
        answer = await self._answer_of(link, id_, lambda: transaction.vote is not None)
        change = None if answer is None else await self._change(peer, id_, message.shown, answer)
        if answer is None or not change or not transaction.has_vote(answer.vector.sha256):
            self.links.abort(transaction)
            return None
        agreement.voted(transaction, change, messages.base(message.shown, answer.vector))
        self.links.commit(transaction)
        return answer

    async def _change(self, peer: str, id_: Id, shown: Vector, heard: Heard) -> Change:
        """What the link gives this end."""
        weight = self._weight(peer, id_, heard.staleness)
        return await self.hearing.change(peer, shown, heard.vector, weight, heard.bound)

    def _about(self) -> dict[str, Any]:
        """What is told with a model."""
        return {"counts": self.counts.tell(), "bound": self.hearing.bound}

    def _messages(self, model: Vector) -> Messages:
        return Messages(self.node, model, self.counts.aggregations - 1, 0)

    async def _answer_of(self, link: Link, id_: Id, heard: Callable[[], bool]) -> Heard | None:
        slot, generation = (link.peer, id_), link.generation
        start = asyncio.get_running_loop().time()
        self._answers[slot] = None

        def over() -> bool:
            return link.has_declined(id_[:2], generation)

        def here() -> bool:
            return self._answers[slot] is not None and heard()

        try:
            await self.timeout.until(lambda: over() or here(), [link])
            if not here() and not over():
                link.was_missed(start)
            return self._answers[slot] if here() and not over() else None
        finally:
            del self._answers[slot]

    async def _move_alone(self, turn: int, model: Vector, found: dict[str, Heard]) -> None:
        """By stale weights: the mean of our model and those that are here."""
        members = self.topology.at(turn)
        many, share = len(members.edges), members.share
        psi = [self.pace.weight(heard.staleness, many) for heard in found.values()]
        weights = self.pace.stale_weights(share(self.me), [share(p) for p in found], psi, many)
        for (peer, heard), weight in zip(found.items(), weights, strict=True):
            change = await self.hearing.change(peer, model, heard.vector, weight, heard.bound)
            self.links.agreement.owed.append(Owed(peer, change, is_late=False))

    # What we are asked for.

    def _came(self, peer: str, announced: v1.ModelHeader, vector: Vector) -> None:
        """A neighbour's model is here: an answer that we wait for, or an offer."""
        id_ = Id(announced.period, announced.exchange, announced.ballot)
        if announced.stage == v1.Stage.ANSWER:
            if announced.staleness > self.counts.most:
                self._refuse(peer, "counts", "older than all turns together")
            elif (peer, id_) in self._answers:
                self._hear(peer, announced.counts)
                heard = Heard(vector, announced.staleness, announced.bound)
                self._answers[peer, id_] = heard
        elif self.pace.mixing == "mean-preserving":
            self._consider(peer, id_, announced.counts, Heard(vector, 0, announced.bound))

    def _wanted(self, peer: str, lend: Callable[[v1.Wanted], None], wanted: v1.Wanted) -> None:
        """A neighbour has no model at all; or it mixes by stale weights, and moves alone."""
        if not wanted.ballot:
            lend(wanted)
        elif self.pace.mixing == "stale-weights":
            self._consider(peer, Id(wanted.period, 0, wanted.ballot), wanted.counts, None)

    def _consider(
        self, peer: str, id_: Id, counts: Iterable[v1.Count], offered: Heard | None
    ) -> None:
        self._hear(peer, counts)
        now = asyncio.get_running_loop().time()
        reason = ""
        if not self.is_open:
            reason = "no model here yet"
        elif not self._allowed[peer].take(now):
            reason = "more often than your time lets you be ready"
            self._refuse(peer, "often", reason)
        elif self.links.agreement.is_crowded(peer, ANY):
            reason = "too much is open on this link"
        if reason:
            self.links[peer].refuse(id_[:2], reason)
            return
        self.node.background.spawn(self._answer(peer, id_, offered))

    async def _answer(self, peer: str, id_: Id, offered: Heard | None) -> None:
        """Our model of this moment; with theirs, also the promise to do as they decide."""
        link, generation = self.links[peer], self.links[peer].generation
        messages = self._messages(await self.current())
        load, shown = await messages.to(link.bases)
        if link.generation != generation or not link.up:
            return
        staleness = self.counts.staleness
        fields = {"ballot": id_.ballot, "staleness": staleness, **self._about()}
        if offered is not None:
            heard = replace(offered, staleness=staleness)
            change = await self._change(peer, id_, shown, heard)
            base = messages.base(shown, heard.vector)
            self.links.prepare(peer, id_, change, shown.sha256, base)
        link.offer(load, id_[:2], stage=v1.Stage.ANSWER, **fields)

    def _used(self, action: Action[Change]) -> None:
        """Both ends use a link: what it gives is added before anything is done with the model."""
        if action.change is None:
            return
        self.links.agreement.owed.append(Owed(action.peer, action.change, is_late=False))
        self.links.is_unsaved = True
        self.unsaved[action.peer] += 1
        moved = self._moved(action.change, 1)
        if moved is not None:
            id_, since = action.id, self.links.agreement.checkpoint
            self.node.tell(
                facts.Swap(
                    peer=action.peer, key=id_[:2], ballot=id_.ballot, since=since, moved=moved
                )
            )
        if self.unsaved[action.peer] >= FULL:
            self.on_full()

    def _moved(self, change: Change | None, times: int) -> float | None:
        """For the audit: by how much a linear function of our model moves with a change."""
        if not self.topology.deployment.audit or change is None:
            return None
        return times * change.probe()
