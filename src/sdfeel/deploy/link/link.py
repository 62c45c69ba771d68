"""A link to a neighbour, and how its two ends decide together whether to use it.

For each exchange one end leads (it dialled; in an all-reduce it is the parent), the other follows:

    both      -> model                    each sends its own and checks the other's
    follower  -> READY                    it holds both models and will do as it is told
    leader    -> USE or SKIP              it decides once it holds both models and READY

- Before READY the follower may leave the link out by itself: the leader cannot decide USE.
- After READY it must learn the decision. If the stream breaks, it asks again on the next one; the
  leader remembers what it decided, and its checkpoints do.
- If nothing is heard until the deadline, it goes on without the link and keeps both models. Should
  it turn out later that the leader used the link, it adds what it left out then: the weighted
  mean is whole again from that moment on.

An end that dies in the period it used a link, before that period is on its disk, comes back without
it. So each end keeps what a link gave it until the other end's progress confirms the period; if the
other end comes back without it, the gift is taken out again.

So a link is used by both ends or by neither, except when the decision itself and its connection are
lost together, or when an end dies with it: then the other end knows the difference, keeps it (see
`memory`), and makes it good on the next contact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from sdfeel.deploy.link.ledger import Doubt, Key, Memory
from sdfeel.deploy.model import wire
from sdfeel.deploy.model.vectors import Change, Vector
from sdfeel.deploy.observe.logs import Log
from sdfeel.deploy.observe.metrics import Metrics
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.waiting import Bell

__all__ = ["Link"]

OFFERS = 3


class Link:
    """One neighbour: its stream while it is up, what it offered, what was decided."""

    def __init__(
        self, peer: str, size: int, folder: Path, bell: Bell, log: Log, metrics: Metrics
    ) -> None:
        self.peer = peer
        self.size = size
        self.peer_done = self.met_at = 0
        self.generation = 0
        self.heard_at = 0.0
        self.announced: tuple[int, str] = (0, "")
        self.reached: Key = (0, 0)
        self.memory = Memory(peer, log)
        self.others: dict[str, Link] = {}
        self.offers: dict[tuple[Key, int], tuple[v1.ModelHeader, Vector]] = {}
        self.ready: set[Key] = set()
        self.words: dict[Key, int] = {}
        self.refused: set[Key] = set()
        self.deciding: set[Key] = set()
        self.is_asking = False
        self.lent: tuple[int, Vector] | None = None
        self.on_wanted: Callable[[], None] = lambda: None
        self._loan: asyncio.Task[None] | None = None
        self._incarnation = 0
        self.used = self.skipped = 0
        self.weights = ""
        self._keeps_mean = True
        self.on_state: Callable[[v1.LinkState], None] = lambda _: None
        self._folder, self._bell, self._log, self._metrics = folder, bell, log, metrics
        self._stream: Any = None
        self._incoming: wire.Incoming | None = None
        self._model_lock = asyncio.Lock()
        self._write_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def up(self) -> bool:
        """Whether it can be used: the peer is there, and means the same weighted mean."""
        return self._stream is not None and self._keeps_mean

    def note(self, event: str, **fields: Any) -> None:
        """Something about this link for the edge's log."""
        self._log(event, **fields)

    # The stream.

    async def serve(self, stream: Any, hello: v1.Hello, states: list[v1.LinkState]) -> None:
        """Reads until the stream ends. A newer stream takes the place of an older one."""
        self._stream = stream
        self._incoming = None
        self.announced, self.reached = (0, ""), (0, 0)
        self.generation += 1
        self._incarnation, self.met_at = hello.incarnation, hello.done
        self._heard(hello.done)
        self._log("link-up", peer=self.peer, done=hello.done)
        self._keeps_mean = hello.weights in ("", self.weights)
        if not self._keeps_mean:
            self._log("weights-differ", peer=self.peer, reason="the clients' samples differ there")
        for state in states:
            self.tell(v1.LinkMessage(state=state))
        for key in self.memory.meet(hello.done, hello.incarnation):
            self.say(key, v1.Word.ASK)
        self._bell.ring()
        try:
            while (message := await stream.read()) is not grpc.aio.EOF:
                self._take(message)
                self._bell.ring()
        finally:
            if self._stream is stream:
                self._stream = None
                self._log("link-down", peer=self.peer)
            self._bell.ring()

    def _heard(self, done: int) -> None:
        self.peer_done = done
        self.heard_at = asyncio.get_running_loop().time()
        self.memory.confirm(done, self._incarnation)

    def tell(self, message: v1.LinkMessage) -> None:
        """Sends without waiting; a broken stream is noticed by its reader."""
        if self._stream is not None:
            self._spawn(self._write(self._stream, message))

    def say(self, key: Key, word: v1.Word, reason: str = "") -> None:
        decision = v1.Decision(period=key[0], exchange=key[1], word=word, reason=reason)
        self.tell(v1.LinkMessage(decision=decision))

    def offer(self, vector: Vector, key: Key, **fields: Any) -> None:
        """Sends a model without waiting."""
        announced = wire.header(vector, key[0], exchange=key[1], **fields)
        self._spawn(self._send_model(self._stream, announced, vector))

    def lend(self, vector: Vector, period: int) -> None:
        """For a neighbour that has no model; not a second time while the first is on its way."""
        if self._loan is None or self._loan.done():
            announced = wire.header(vector, period, stage=v1.Stage.LENT)
            self._loan = self._spawn(self._send_model(self._stream, announced, vector))
            self._log("lent", peer=self.peer, period=period)

    async def _send_model(self, stream: Any, announced: v1.ModelHeader, vector: Vector) -> None:
        async with self._model_lock:
            await self._write(stream, v1.LinkMessage(model=announced))
            async for chunk in wire.chunks(vector):
                if stream is not self._stream:
                    return
                await self._write(stream, v1.LinkMessage(chunk=chunk))
                self._metrics.bytes.labels("edges", "out").inc(len(chunk.data))

    async def _write(self, stream: Any, message: v1.LinkMessage) -> None:
        async with self._write_lock:
            if stream is not self._stream or stream is None:
                return
            try:
                await stream.write(message)
            except (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
                return  # its reader sees the end as well, and tells

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # What comes in.

    def _take(self, message: v1.LinkMessage) -> None:
        kind = message.WhichOneof("body")
        if kind == "model":
            self._open(message.model)
        elif kind == "chunk":
            self._feed(message.chunk)
        elif kind == "decision":
            self._hear(message.decision)
        elif kind == "progress":
            self._heard(message.progress.done)
        elif kind == "state":
            self.on_state(message.state)
        elif kind == "announce":
            self.announced = (message.announce.period, message.announce.view)
        elif kind == "wanted":
            self.on_wanted()

    def _open(self, announced: v1.ModelHeader) -> None:
        is_lent = announced.stage == v1.Stage.LENT
        if not is_lent:
            self.reached = max(self.reached, (announced.period, announced.exchange))
        if self._incoming is not None:
            self._refuse(wire.Refused("truncated", "a new model before the last one was whole"))
        try:
            if is_lent and not self.is_asking:
                raise wire.Refused("unasked", "a model that was not asked for")
            self._incoming = wire.Incoming(announced, self.size, self._folder)
        except wire.Refused as refusal:
            self._incoming = None
            self._tell_refusal(announced, refusal)

    def _feed(self, chunk: v1.Chunk) -> None:
        if self._incoming is None:
            return  # the rest of a model that was refused
        self._metrics.bytes.labels("edges", "in").inc(len(chunk.data))
        try:
            vector = self._incoming.feed(chunk)
        except wire.Refused as refusal:
            self._refuse(refusal)
            return
        if vector is not None:
            announced = self._incoming.announced
            self._incoming = None
            if announced.stage == v1.Stage.LENT:
                self.lent, self.is_asking = (announced.period, vector), False
                return
            self.offers[(announced.period, announced.exchange), announced.stage] = (
                announced,
                vector,
            )
            while len(self.offers) > OFFERS:
                del self.offers[min(self.offers)]

    def _refuse(self, refusal: wire.Refused) -> None:
        assert self._incoming is not None  # noqa: S101 - by its callers
        self._incoming.abandon()
        self._tell_refusal(self._incoming.announced, refusal)
        self._incoming = None

    def _tell_refusal(self, announced: v1.ModelHeader, refusal: wire.Refused) -> None:
        key = (announced.period, announced.exchange)
        self._metrics.refused.labels(refusal.kind).inc()
        self._log("refused", peer=self.peer, kind=refusal.kind, reason=refusal.reason, key=key)
        if announced.stage == v1.Stage.LENT:
            self.is_asking = False
            return
        self.refused.add(key)
        self.say(key, v1.Word.REFUSE, refusal.reason)

    def _hear(self, decision: v1.Decision) -> None:
        key = (decision.period, decision.exchange)
        word = decision.word
        if word == v1.Word.READY:
            self.ready.add(key)
        elif word == v1.Word.REFUSE:
            self.refused.add(key)
        elif word == v1.Word.ASK:
            if key not in self.deciding:
                self.say(key, v1.Word.USE if self.memory.holds(key) else v1.Word.SKIP)
        elif key in self.deciding:
            self.words[key] = word
        elif key in self.memory.doubts:
            self._resolve(key, word == v1.Word.USE)
        else:
            self.memory.settle(key, word == v1.Word.USE)

    def _resolve(self, key: Key, use: bool) -> None:
        """A decision that comes after the exchange went on without it."""
        doubt = self.memory.doubts.pop(key)
        self._log("resolved", peer=self.peer, key=key, used=use)
        if use:
            self.memory.repairs.append(doubt.change)
            self.memory.used(key)
            if key[0] > self.peer_done:
                self.give(key, doubt.change)
        self._pass_on(key, doubt, use)

    def _pass_on(self, key: Key, doubt: Doubt, use: bool) -> None:
        """Those below in an all-reduce were waiting for the same decision."""
        for child in doubt.children:
            self.others[child].record(key, use)
            self.others[child].say(key, v1.Word.USE if use else v1.Word.SKIP)

    def give(self, key: Key, change: Change) -> None:
        """The link was used: what it gave is remembered until the peer confirms the period."""
        self.memory.give(key, change, self._incarnation)

    # The decision.

    def passed(self, key: Key, generation: int) -> bool:
        """Whether this exchange can no longer use the link."""
        return (
            not self.up
            or self.generation != generation
            or key in self.refused
            or self.peer_done >= key[0]
            or self.reached > key  # models come in order: the peer has left this exchange
        )

    def record(self, key: Key, use: bool) -> None:
        """Remembers a decision and counts it."""
        self.deciding.discard(key)
        if use:
            self.memory.used(key)
        self.used, self.skipped = self.used + use, self.skipped + (not use)
        self._metrics.exchanges.labels(self.peer, "used" if use else "skipped").inc()

    def forget(self, period: int) -> None:
        """Drops what belongs to finished periods."""
        self.offers = {slot: offer for slot, offer in self.offers.items() if slot[0][0] > period}
        self.ready = {key for key in self.ready if key[0] > period}
        self.refused = {key for key in self.refused if key[0] > period}
        self.words = {key: word for key, word in self.words.items() if key[0] > period}
        for key, doubt in self.memory.forget(period):
            self._pass_on(key, doubt, use=False)
