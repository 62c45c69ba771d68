"""What an edge may do to its client: ask for other work, flood it, leave it in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest
from packings import PACKINGS
from twin import Door
from twin_world import SIZE, Still, TwinWorld, make_deployment
from virtual import VirtualLoop

from sdfeel.algorithm.methods.codecs import Draw
from sdfeel.deploy.client.client import ClientProgram
from sdfeel.deploy.model.vectors import Vector, as_vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.packing import Packed, pack
from sdfeel.deploy.wire.transport import Call

PERIODS = 40
MODEL = as_vector(np.zeros(SIZE))

Serve = Callable[[Any], Awaitable[None]]


class Watched(Still):
    """It notes what it was asked to train."""

    def __init__(self, samples: int) -> None:
        super().__init__(samples)
        self.asked: list[tuple[int, int]] = []
        self.given: list[np.ndarray] = []

    def train(self, model: np.ndarray, first: int, steps: int) -> np.ndarray:
        self.asked.append((first, steps))
        self.given.append(model)
        return model


async def give_task(stream: Any, **changed: int) -> None:
    """The honest task of period 3, but for what is changed."""
    task = v1.Task(period=3, first=3, steps=1, model=frames.header(MODEL, 3))
    for field, value in changed.items():
        setattr(task, field, value)
    await stream.write(v1.FromEdge(task=task))
    for chunk in frames.chunks(MODEL):
        await stream.write(v1.FromEdge(chunk=chunk))


def attend(
    serve: Serve,
    seconds: float,
    cuts: Sequence[float] = (),
    loop: VirtualLoop | None = None,
    **tables: Any,
) -> tuple[ClientProgram, Watched, bool]:
    """A client of an edge that only does `serve`: it, its trainer, whether it is still there.

    cuts  when the stream between the two breaks
    """
    deployment = make_deployment((1, 1), [("e00", "e01")], PERIODS, "paper", **tables)
    loop = loop or VirtualLoop()

    async def greet(stream: Any) -> None:
        await stream.read()
        await stream.write(v1.FromEdge(hello=v1.Hello()))
        await serve(stream)

    async def main() -> tuple[ClientProgram, Watched, bool]:
        world = TwinWorld(deployment, Topology(deployment), seed=1, loop=loop)
        await Door(world.net, "edge", "e00").listen(dict.fromkeys(Call, greet), greet)
        door: Any = Door(world.net, "client", "c0")
        trainer = Watched(deployment.client("c0").samples)
        client = ClientProgram(deployment, "c0", trainer, None, door)
        running = asyncio.ensure_future(client.run())
        for cut in cuts:
            await asyncio.sleep(cut - loop.time())
            world.net.cut("c0", "e00")
        await asyncio.sleep(seconds)
        is_there = not running.done()
        running.cancel()
        return client, trainer, is_there

    return loop.run(main())


@pytest.mark.parametrize(
    "fields",
    [
        {"first": 0},
        {"first": 10**9},
        {"steps": 10**6},
        {"steps": 0},
        {"period": 0},
        {"period": PERIODS + 1, "first": PERIODS + 1},
        {"period": 2**63, "first": 2**63},
    ],
    ids=str,
)
def test_a_client_does_only_the_work_that_the_file_says(fields: dict[str, int]) -> None:
    """An edge asks for more steps, or others: the client does not even begin."""

    async def serve(stream: Any) -> None:
        await give_task(stream, **fields)
        await give_task(stream)
        while await stream.read() is not None:
            pass

    client, trainer, _ = attend(serve, 1.0)
    refused = [line["kind"] for line in client.log.recent if line["event"] == "refused"]
    assert refused == ["task"]
    assert trainer.asked == [(3, 1)], "the honest task only"


def test_an_edge_that_floods_its_client_with_receipts_fills_neither_memory_nor_disk() -> None:
    async def serve(stream: Any) -> None:
        await give_task(stream)
        await stream.read()
        for period in (*range(1000), 3):
            for verdict in (v1.Verdict.ACCEPTED, v1.Verdict.LATE, v1.Verdict.REFUSED):
                receipt = v1.Receipt(period=period, verdict=verdict)
                await stream.write(v1.FromEdge(receipt=receipt))
            await stream.write(v1.FromEdge(task=v1.Task(period=PERIODS + 1)))
        await stream.read()

    client, _, _ = attend(serve, 5.0)
    assert client.accepted == [3], "what was sent, once"
    assert len(client.log.recent) <= 40


def test_a_client_whose_stream_breaks_twice_while_it_trains_goes_on() -> None:
    """Its old training cannot be stopped; waiting for it must not end it, or the client."""
    loop = VirtualLoop()

    def slow(_executor: Any, work: Any, *asked: Any) -> asyncio.Future[Any]:
        future = loop.create_future()
        loop.call_later(5.0, lambda: future.done() or future.set_result(work(*asked)))
        return future

    loop.run_in_executor = slow  # type: ignore[method-assign]
    uploaded: list[bool] = []

    async def serve(stream: Any) -> None:
        await give_task(stream)
        while (message := await stream.read()) is not None:
            uploaded.append(message.WhichOneof("body") == "model")

    _, _, is_there = attend(serve, 15.0, cuts=(1.0, 2.0, 3.0), loop=loop)
    assert is_there
    assert sum(uploaded) == 1


def change(base: Vector, by: float, name: str = "int8") -> Packed:
    """All values become larger by so much."""
    packed = Packed(PACKINGS[name], base.size, base.sha256)
    draw = Draw(0, np.array([0]), 1, 1)
    list(pack(PACKINGS[name], lambda *_: np.full(SIZE, by, "f4"), packed, draw))
    return packed


async def give_change(stream: Any, packed: Packed, period: int) -> None:
    task = v1.Task(period=period, first=period, steps=1, model=frames.header(packed, period))
    await stream.write(v1.FromEdge(task=task))


@pytest.mark.parametrize("down", ["float32", "bfloat16"])
def test_a_change_in_another_codec_than_the_files_is_refused(down: str) -> None:
    async def serve(stream: Any) -> None:
        await give_task(stream)
        await give_change(stream, change(MODEL, 1.0), 4)
        while await stream.read() is not None:
            pass

    client, trainer, _ = attend(serve, 1.0, codecs={"down": down})
    refused = [line["kind"] for line in client.log.recent if line["event"] == "refused"]
    assert refused == ["dtype"]
    assert trainer.asked == [(3, 1)]


@pytest.mark.parametrize("before", [False, True], ids=["nothing", "another"])
def test_a_change_of_a_model_that_the_client_does_not_have_ends_the_stream(before: bool) -> None:
    """It dials again, and an honest edge then gives it the whole model."""
    streams: list[int] = []

    async def serve(stream: Any) -> None:
        streams.append(len(streams))
        if len(streams) == 1:
            if before:
                await give_task(stream)
            await give_change(stream, change(as_vector(np.ones(SIZE)), 1.0), 4)
        else:
            await give_task(stream)
            await give_change(stream, change(MODEL, 0.5), 4)
        while await stream.read() is not None:
            pass

    client, trainer, is_there = attend(serve, 3.0, codecs={"down": "int8"})
    assert is_there
    assert streams[:2] == [0, 1]
    kinds = [line["event"] for line in client.log.recent]
    assert kinds.count("edge-lost") + kinds.count("refused") >= 1
    assert trainer.asked[-1] == (4, 1)
    np.testing.assert_allclose(trainer.given[-1], 0.5, rtol=0.01)
