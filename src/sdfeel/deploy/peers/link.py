"""A link to a neighbour: its stream while it is up, and what the neighbour has said on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sdfeel.deploy.facts import facts
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.damper import REFUSED, Damper
from sdfeel.deploy.peers.inbox import Inbox, Key, Offer
from sdfeel.deploy.peers.messages import Bases
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.shared_settings import check_done
from sdfeel.deploy.waiting import end
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.outbox import Outbox
from sdfeel.deploy.wire.packing import Load
from sdfeel.deploy.wire.transport import Stream, StreamLost

__all__ = ["Key", "Link", "Offer"]

WORDS = 1024
HOPELESS = 3
OPENED = 8  # models whose beginning is remembered


@dataclass
class Hooks:
    """What a link passes on: see `Links`."""

    word: Callable[[v1.Decision], None] = lambda _: None
    state: Callable[[v1.LinkState], None] = lambda _: None
    evidence: Callable[[v1.Evidence], None] = lambda _: None
    wanted: Callable[[v1.Wanted], None] = lambda _: None
    swap: Callable[[v1.ModelHeader, Vector], None] = lambda *_: None
    vouch: Callable[[], None] = lambda: None
    met: Callable[[v1.Hello], None] = lambda _: None
    progress: Callable[[v1.Progress], None] = lambda _: None
    lost: Callable[[], None] = lambda: None


@dataclass
class Link:
    """One neighbour. `serve` keeps it up for as long as a stream lasts.

    generation   counts streams: an exchange that began on another one has lost messages
    done         the neighbour's last finished period
    moved_at     when that last became more, on the loop's clock
    waits        something is open at the neighbour's end
    heading      the period of our next exchanges
    lost_at      when its last stream ended, on the loop's clock
    missed       exchanges in which it was waited for in vain, since it last did something
    is_barred    it has signed two states that contradict each other
    held         exchanges of everybody that it held up, since one went well
    damper       whether the exchanges of everybody can count on it
    sent         bytes of models, in this life of the edge; received: those of the neighbour
    bases        what both ends hold of each other's models
    opened       when the models of the last exchanges began to come, on the loop's clock
    """

    node: Node
    peer: str
    bases: Bases
    hooks: Hooks = field(default_factory=Hooks)
    generation: int = 0
    done: int = 0
    met_at: int = 0
    moved_at: float = 0.0
    waits: bool = False
    heading: int = 0
    lost_at: float = 0.0
    missed: int = 0
    held: int = 0
    is_barred: bool = False
    announced: tuple[int, str] = (0, "")
    used: int = 0
    skipped: int = 0
    sent: int = 0
    received: int = 0
    opened: dict[Key, float] = field(default_factory=dict)
    damper: Damper = field(default_factory=Damper)

    def __post_init__(self) -> None:
        self._keeps_mean = True
        self._missed_in = -1
        self._is_paused, self._was_at = False, -1
        self._is_leaving = False
        self._stream: Stream | None = None
        self._outbox: Outbox | None = None
        self._refused: Key = (0, 0)
        self._hops = 0
        self._inbox = Inbox(
            self.node,
            self._came,
            self._tell_refusal,
            self._swap,
            self.bases.find,
        )
        self._has_codec = not self.node.deployment.codecs.between.exact
        self.periods = self.node.topology.plan(self.peer)

    @property
    def up(self) -> bool:
        """Whether it can be used: the peer is there, honest as far as we know, and means the same
        weighted mean.
        """
        return self._stream is not None and self._keeps_mean and not self.is_barred

    @property
    def differs(self) -> bool:
        """Whether the neighbour is there, and means another weighted mean."""
        return self._stream is not None and not self._keeps_mean

    @property
    def is_paused(self) -> bool:
        """Whether its disk did not keep up, and it has not come to our next exchanges since."""
        if not self._is_paused and self._was_at >= 0 and self._was_at < self._at <= self.heading:
            self._was_at = -1
        return self._is_paused or self._was_at >= 0

    @property
    def _at(self) -> int:
        """The period of the last exchanges that the neighbour has come to."""
        return max(self._inbox.reached[0], self.announced[0])

    @property
    def counts(self) -> bool:
        """Whether an exchange that depends on every link can depend on this one."""
        is_known_to_come = self.missed < HOPELESS and not self.damper.is_out
        return self.up and is_known_to_come and not self.is_paused

    # The stream.

    async def serve(self, stream: Stream, hello: v1.Hello, states: list[v1.LinkState]) -> None:
        """Reads until the stream ends. A newer stream ends the older one, at both ends."""
        if self._stream is not None:
            self._stream.close("a newer stream took its place")
            self._ended()
        self._stream = stream
        self._outbox = Outbox(stream, lambda chunk: v1.LinkMessage(chunk=chunk), self._sent, WORDS)
        self._inbox.clear()
        self.announced, self._refused = (0, ""), (0, 0)
        self.generation += 1
        self.missed = 0
        self._is_paused, self._was_at = False, -1
        self._is_leaving = False
        self.done, self.met_at, self.waits = hello.done, hello.done, True
        self.moved_at = asyncio.get_running_loop().time()
        self.node.tell(facts.LinkUp(peer=self.peer, done=hello.done))
        self._keeps_mean = hello.weights in ("", self.node.topology.at(self.done).weights_digest)
        if not self._keeps_mean:
            reason = "the clients' samples differ there"
            self.node.tell(facts.WeightsDiffer(peer=self.peer, reason=reason))
        for state in states:
            self.tell(v1.LinkMessage(state=state))
        if self._has_codec:
            self.tell(v1.LinkMessage(held=self.bases.begin()))
        self.hooks.met(hello)
        self.node.signal.notify()
        pump = asyncio.ensure_future(self._outbox.pump())
        try:
            while (message := await stream.read()) is not None:
                if self._stream is not stream:
                    break
                await self._take(message)
                self.node.signal.notify()
        except StreamLost:
            pass  # link-down says it
        finally:
            if self._stream is stream:
                self._ended()
            await end(pump)

    def _ended(self) -> None:
        problem = self._outbox.problem if self._outbox is not None else ""
        self._stream = self._outbox = None
        self._inbox.end()
        if self.heading and self.node.topology.at(self.heading).averager.whole_graph:
            self._damp()
        self.lost_at = asyncio.get_running_loop().time()
        self.node.tell(facts.LinkDown(peer=self.peer, reason=problem, left=self._is_leaving))
        self.hooks.lost()
        self.node.signal.notify()

    def _sent(self, size: int) -> None:
        self.sent += size
        self.node.metrics.bytes.labels("edges", "out").inc(size)

    def tell(self, message: v1.LinkMessage) -> None:
        """Sends without waiting, if the link is up."""
        if self._outbox is not None:
            self._outbox.tell(message)

    async def flush(self) -> None:
        """Until the neighbour has been told everything."""
        if self._outbox is not None:
            await self._outbox.flush()

    def say(self, decision: v1.Decision) -> None:
        self.tell(v1.LinkMessage(decision=decision))

    def refuse(self, key: Key, reason: str, hops: int = 0) -> None:
        """Says that the link will not be used in this exchange, and how far away the reason is."""
        word = v1.Word.REFUSE
        self.say(v1.Decision(period=key[0], exchange=key[1], word=word, reason=reason, hops=hops))

    def offer(self, load: Load, key: Key, **fields: Any) -> None:
        """Sends a model, or a change of one, without waiting."""
        if self._outbox is not None:
            announced = frames.header(load, key[0], exchange=key[1], **fields)
            self._outbox.offer(v1.LinkMessage(model=announced), load)

    # A loan: for an edge that has no model.

    def lend(self, vector: Vector, period: int) -> None:
        """To a neighbour that asked; not again while the last loan is on its way."""
        if self._outbox is not None and self._inbox.lending.give(self._outbox, vector, period):
            self.node.tell(facts.Lent(peer=self.peer, period=period))

    async def borrow(self, seconds: float) -> tuple[int, Vector] | None:
        """The model of the neighbour's last finished period; None if it does not come."""
        if not self.up:
            return None
        self.tell(v1.LinkMessage(wanted=v1.Wanted()))
        return await self._inbox.lending.take(seconds)

    # What comes in.

    async def _take(self, message: v1.LinkMessage) -> None:
        kind = message.WhichOneof("body")
        if kind in ("model", "chunk"):
            self._note_model(message)
        if kind == "model":
            await self._inbox.open(message.model)
        elif kind == "chunk":
            await self._inbox.feed(message.chunk)
        elif kind == "decision":
            if message.decision.word == v1.Word.REFUSE:
                self._refused = (message.decision.period, message.decision.exchange)
                self._hops = message.decision.hops
            else:
                self.hooks.word(message.decision)
        elif kind == "progress":
            self._move(message.progress)
        elif kind == "announce":
            self.announced = (message.announce.period, message.announce.view)
            self.damper.came(self._exchange)
        elif kind == "vouch":
            self.hooks.vouch()
        elif kind == "held":
            self.bases.hear(message.held)
        elif kind in ("state", "evidence", "wanted"):
            getattr(self.hooks, kind)(getattr(message, kind))

    def _note_model(self, message: v1.LinkMessage) -> None:
        """How much came, and when a model began to come; of a few, whatever a peer invents."""
        self.received += len(message.model.data) + len(message.chunk.data)
        if message.HasField("model"):
            key = (message.model.period, message.model.exchange)
            self.opened.setdefault(key, asyncio.get_running_loop().time())
            while len(self.opened) > OPENED:
                del self.opened[next(iter(self.opened))]

    def _move(self, progress: v1.Progress) -> None:
        """Only progress renews timeout, not the word for it."""
        try:
            check_done(progress.done, self.periods)
        except Refused as refusal:
            self._count(refusal)
            if self._stream is not None:
                self._stream.close(refusal.reason)
            return
        if progress.done > self.done:
            self.done = progress.done
            self.moved_at = asyncio.get_running_loop().time()
        self.waits = progress.waiting
        if self._is_paused and not progress.paused:
            self._was_at = self._at
        self._is_paused = progress.paused
        self._is_leaving = progress.leaving
        self.hooks.progress(progress)

    def _swap(self, announced: v1.ModelHeader, vector: Vector) -> None:
        self.hooks.swap(announced, vector)

    def _came(self, period: int) -> None:
        """A model that comes after it was waited for in vain is no reason to wait again."""
        if period > self._missed_in or not self.heading:
            self.missed = 0

    def _tell_refusal(self, refusal: Refused, key: Key | None) -> None:
        self._count(refusal, key)
        if key is not None:
            self._refused, self._hops = key, 0
            self.refuse(key, refusal.reason)
            if refusal.kind == "base":
                self.tell(v1.LinkMessage(held=self.bases.word))

    def _count(self, refusal: Refused, key: Key | None = None) -> None:
        kind, reason = refusal.kind, refusal.reason
        self.node.tell(facts.MessageRefused(kind=kind, reason=reason, peer=self.peer, key=key))

    # What an exchange asks.

    def has(self, key: Key, stage: v1.Stage, view: str | None = None) -> bool:
        return self._inbox.has(key, stage, view)

    def take(self, key: Key, stage: v1.Stage) -> Offer | None:
        """The neighbour's model in this exchange, if it has come; once."""
        return self._inbox.take(key, stage)

    def is_at(self, period: int) -> bool:
        """Whether the neighbour has come to the exchanges of a period."""
        return self.up and self._at >= period

    def has_left(self, key: Key, generation: int) -> bool:
        """Whether this exchange can no longer use the link."""
        return (
            not self.up
            or self.is_paused
            or self.generation != generation
            or self._refused == key
            or self.announced[0] > key[0]
            or self.done >= key[0]
            or self._inbox.reached > key  # models come in order: the peer has left this exchange
        )

    def has_declined(self, key: Key, generation: int) -> bool:
        """Whether a swap that was offered on this stream will not be answered."""
        is_gone = not self.up or self.is_paused or self.generation != generation
        return is_gone or self._refused == key

    def was_missed(self, start: float) -> None:
        """An exchange has waited since `start` in vain; one that makes progress is only late."""
        if self.moved_at <= start:
            self.missed += 1
            self._missed_in = self.heading
            self.node.tell(facts.Missed(peer=self.peer, times=self.missed))

    # What an exchange of everybody counts.

    def head_for(self, period: int) -> None:
        """The next exchanges are those of this period."""
        self.heading = period
        self.damper.begin(self._exchange)

    def held_up(self, elsewhere: bool = False) -> None:
        """It has waited for the neighbour in vain, whatever progress that reports.

        One that is there and sees another part of the network may have heard other news than we.
        """
        self.held += 1
        self.node.tell(facts.Missed(peer=self.peer, times=self.held))
        self._damp(REFUSED if elsewhere else 1.0)

    def went_well(self) -> None:
        """The neighbour did its part of an exchange."""
        self.held = 0
        self.damper.went_well()

    def refused_everybody(self, key: Key, farthest: int) -> int | None:
        """Count an exchange that the neighbour refused, and return how far away the reason is.

        Who only passes a refusal on is blamed less than who it has it from; nothing is farther
        away than the farthest edge behind the neighbour, whatever that says.
        """
        if self._refused != key:
            return None
        hops = min(self._hops, farthest)
        self._damp(REFUSED * 0.5**hops)
        return hops

    def _damp(self, by: float = 1.0) -> None:
        exchanges = self.damper.failed(self._exchange, by)
        if exchanges:
            self.node.tell(facts.LeftOut(peer=self.peer, exchanges=exchanges))

    @property
    def _exchange(self) -> int:
        """The number of the exchange that we head for."""
        return self.heading // self.node.topology.tau2

    def count(self, use: bool) -> None:
        self.used, self.skipped = self.used + use, self.skipped + (not use)
        self.node.metrics.exchanges.labels(self.peer, "used" if use else "skipped").inc()

    def forget(self, period: int) -> None:
        """Drops what belongs to finished periods."""
        self._inbox.forget(period)
