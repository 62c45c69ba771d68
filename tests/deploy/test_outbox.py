"""What waits to be sent over a stream, and what becomes of it when a disk cannot be read."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from packings import PACKINGS
from twin_world import TwinWorld, small
from virtual import VirtualLoop

from sdfeel.deploy.model.vectors import BLOCK, LARGE, Vector, as_vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.outbox import MODELS, Outbox
from sdfeel.deploy.wire.packing import Packed


class Unreadable(Vector):
    """A model whose file lies on a disk that has just failed."""

    def __init__(self, model: Vector) -> None:
        super().__init__(model.size, model.sha256, None, None)

    def read_bytes(self, start: int, stop: int) -> bytes:
        raise OSError(5, "Input/output error")


class Sink:
    """A stream that takes everything."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.closed: list[str] = []

    async def write(self, message: Any) -> None:
        self.written.append(message)

    def close(self, reason: str = "") -> None:
        self.closed.append(reason)


def test_a_model_that_cannot_be_read_ends_the_stream_with_the_reason() -> None:
    stream: Any = Sink()
    outbox = Outbox(stream, lambda chunk: chunk, lambda _: None, 8)

    async def main() -> None:
        pump = asyncio.ensure_future(outbox.pump())
        outbox.tell("a word")
        outbox.offer("a model", Unreadable(as_vector(np.zeros(3))))
        await outbox.flush()
        await pump

    VirtualLoop().run(main())
    assert "a word" in stream.written
    assert "Input/output error" in stream.closed[0]
    assert outbox.problem == stream.closed[0]


class Slow(Vector):
    """A model on a disk that answers once a ping has been answered."""

    pinged = threading.Event()

    def read_bytes(self, start: int, stop: int) -> bytes:
        assert self.pinged.wait(30), "the loop stands still"
        return bytes(4 * (stop - start))


async def pings(of: threading.Event, done: asyncio.Future[Any]) -> None:
    """The loop goes round a few times, and then the disk answers."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert not done.done()
    of.set()


def test_a_slow_read_of_a_large_model_stops_no_ping() -> None:
    stream: Any = Sink()
    outbox = Outbox(stream, lambda chunk: chunk, lambda _: None, 8)
    model = Slow(LARGE + 1, b"", None, None)

    async def main() -> None:
        pump = asyncio.ensure_future(outbox.pump())
        outbox.offer("a model", model)
        sent = asyncio.ensure_future(outbox.flush())
        await pings(model.pinged, sent)
        await sent
        pump.cancel()

    asyncio.run(main())
    assert len(stream.written) == 1 + 9


def test_a_slow_disk_under_a_model_that_comes_in_stops_no_ping() -> None:
    """What its change is added to is read, chunk by chunk."""
    start, answers = Slow(LARGE + 1, b"x" * 32, None, None), threading.Event()
    start.pinged = answers
    packed = Packed(PACKINGS["bfloat16"], start.size, start.sha256)
    packed.write(bytes(2 * BLOCK))
    incoming = frames.Incoming(
        frames.header(packed, 1), start.size, 1.0, None, start, PACKINGS["bfloat16"]
    )

    async def main() -> None:
        taken = asyncio.ensure_future(incoming.take(v1.Chunk(data=packed.read_bytes(0, BLOCK))))
        await pings(answers, taken)
        assert await taken is None

    asyncio.run(main())


@pytest.mark.parametrize(("models", "is_closed"), [(MODELS, False), (MODELS + 1, True)])
def test_a_peer_that_never_reads_does_not_fill_the_memory(models: int, is_closed: bool) -> None:
    stream: Any = Sink()
    outbox = Outbox(stream, lambda chunk: chunk, lambda _: None, 8)
    for _ in range(models):
        outbox.offer("a model", as_vector(np.zeros(3)))
    assert stream.closed == ["you do not read"] * is_closed
    assert outbox.has_models != is_closed


@pytest.mark.usefixtures("cheap")
def test_a_link_whose_model_cannot_be_read_comes_back_and_says_why() -> None:
    deployment, topology = small("pair", "paper", 10**6)
    loop = VirtualLoop(1, longest=0.3)

    async def main() -> None:
        world = TwinWorld(deployment, topology, 1, loop)
        await world.start_all()
        await asyncio.sleep(3.0)
        edge = world.edges["e00"]
        link = edge.links["e01"]
        before = link.generation
        link.offer(Unreadable(as_vector(np.zeros(BLOCK + 1))), (10**6, 0))
        await asyncio.sleep(5.0)
        assert link.up
        assert link.generation == before + 1
        (down,) = [line for line in edge.log.recent if line["event"] == "link-down"]
        assert "Input/output error" in down["reason"]

    loop.run(main())
