"""What waits to be sent over a stream, and what becomes of it when a disk cannot be read."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from twin_world import TwinWorld, small
from virtual import VirtualLoop

from sdfeel.deploy.model.vectors import BLOCK, Vector, as_vector
from sdfeel.deploy.wire.outbox import MODELS, Outbox


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
