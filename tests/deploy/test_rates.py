"""What one certificate may ask for in a second; the time is handed in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from harness import World, deploy
from rogue import Rogue

from sdfeel.deploy.refused import Refused
from sdfeel.deploy.token_bucket import TokenBucket
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.wire import rates
from sdfeel.deploy.wire.grpc_transport import GrpcTransport, call_status, open_channel
from sdfeel.deploy.wire.rates import CallerRates, Rates
from sdfeel.deploy.wire.transport import Call


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def make(clock: Clock, retry: float = 1.0, role: str = "client") -> CallerRates:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rates, "name_of", lambda _: f"{role}/x")
        caller = Rates(retry, exchanges=3, now=clock).of(b"certificate")
    caller.sleep = clock.sleep
    return caller


# The bucket.


def test_a_bucket_gives_what_it_holds_and_then_what_comes_back() -> None:
    bucket = TokenBucket(seconds=0.5, most=3)
    assert [bucket.take(10.0) for _ in range(4)] == [True] * 3 + [False]
    assert not bucket.take(10.49)
    assert bucket.take(10.5)
    assert not bucket.take(10.5)
    assert [bucket.take(100.0) for _ in range(4)] == [True] * 3 + [False], "no more than it holds"


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(seconds=1.0, most=1)
    assert bucket.take(10.0)
    assert not bucket.take(0.0)
    assert bucket.take(1.0)


def test_what_is_owed_is_paid_with_time_and_bounded() -> None:
    bucket = TokenBucket(seconds=0.5, most=1, debt=3)
    assert [bucket.charge(0.0) for _ in range(6)] == [0.0, 0.5, 1.0, 1.5, 1.5, 1.5]
    assert bucket.charge(1.5, cost=2) == 1.0


# Streams.


def test_streams_of_one_certificate_come_as_often_as_they_may() -> None:
    """Whatever it tries: as many as at once, and 10 a second after that."""
    clock = Clock()
    caller = make(clock)

    async def run() -> None:
        for _ in range(int(rates.STREAMS_AT_ONCE) + 100):
            await caller.open_stream()

    asyncio.run(run())
    assert clock.now == pytest.approx(100 / rates.STREAMS)


def test_of_streams_at_once_a_few_wait_and_the_rest_is_refused_unseen() -> None:
    clock = Clock()
    caller = make(clock)

    async def forever(_: float) -> None:
        await asyncio.Event().wait()

    async def run() -> int:
        caller.sleep = forever
        tasks = [asyncio.ensure_future(caller.open_stream()) for _ in range(1000)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        refused = [task for task in tasks if task.done() and task.exception() is not None]
        assert all(isinstance(task.exception(), Refused) for task in refused)
        assert caller.waiting == rates.WAITING
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert caller.waiting == 0
        return len(refused)

    assert asyncio.run(run()) == 1000 - rates.STREAMS_AT_ONCE - rates.WAITING
    assert caller.streams.left >= -rates.WAITING, "ended early, they do not keep it out for hours"


@pytest.mark.parametrize("retry", [0.01, 1.0, 60.0])
def test_a_node_that_dials_as_the_file_says_never_waits(retry: float) -> None:
    """Pauses are half of `deadlines.retry` at least; three edges may be tried in each."""
    clock = Clock()
    caller = make(clock, retry)

    async def run() -> None:
        for _ in range(500):
            await caller.open_stream()
            clock.now += retry / 2

    asyncio.run(run())
    assert not clock.slept


def test_certificates_are_counted_apart_and_the_last_of_many_known() -> None:
    known = Rates(1.0, now=Clock())
    first = known.of(b"0")
    assert known.of(b"0") is first
    assert known.of(b"1") is not first
    for number in range(2 * rates.KNOWN):
        known.of(b"%d" % number)
    assert len(known._callers) <= rates.KNOWN


# Messages.


@pytest.mark.parametrize(
    ("role", "cost", "each"),
    [("client", 1.0, 500), ("client", rates.CHUNK, 2000), ("edge", 1.0, 3 * 4 * 500)],
)
def test_messages_are_read_as_often_as_they_may_be(role: str, cost: float, each: int) -> None:
    """Neighbours say more, in each of three exchanges."""
    clock = Clock()
    caller = make(clock, role=role)
    count = 50_000

    async def run() -> None:
        for _ in range(count):
            await caller.read_message(cost)

    asyncio.run(run())
    free = rates.MESSAGES_AT_ONCE / cost
    assert clock.now == pytest.approx((count - free) / each, abs=2 * rates.PAUSE)
    assert len(clock.slept) < clock.now / rates.PAUSE + 1, "few pauses, not one for each message"


def test_an_honest_client_is_never_held_back() -> None:
    """A hundred periods a second with a small model, or ten with 10 million values."""
    for seconds, chunks in ((0.01, 0), (0.1, 153)):
        clock = Clock()
        caller = make(clock)

        async def run(seconds: float, chunks: int, clock: Clock, caller: CallerRates) -> None:
            for _ in range(1000):
                await caller.read_message()
                for _ in range(chunks):
                    await caller.read_message(rates.CHUNK)
                clock.now += seconds

        asyncio.run(run(seconds, chunks, clock, caller))
        assert not clock.slept


# On the network.


def at_edge(tmp_path: Path, enemy: Callable[[World], Any]) -> World:
    """A world of one edge, after an enemy was there."""
    deployment = deploy(tmp_path, sizes=(1,), periods=9999, deadlines={"retry": 100.0})

    async def run() -> World:
        async with World(deployment) as world:
            await world.start_edge("a")
            await enemy(world)
            return world

    return asyncio.run(run())


def refusals(world: World, kind: str) -> float:
    return world.edges["a"].metrics.value("sdfeel_refused_total", kind=kind)


def test_streams_beyond_the_rate_are_counted_and_told_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "STREAMS_AT_ONCE", 2.0)
    monkeypatch.setattr(rates, "STREAMS", 1e-9)
    monkeypatch.setattr(rates, "WAITING", 0)

    async def enemy(world: World) -> None:
        for number in range(6):
            async with Rogue(world) as rogue:
                if number < 2:
                    await rogue.hello()
                    assert (await rogue.call.read()).WhichOneof("body") == "hello"
                else:  # it need not even say hello
                    assert "too many streams" in await rogue.call.details()
        assert refusals(world, "rate") == 4
        (line,) = world.events("peer-refused")[:1]
        assert (line["kind"], "client/c0" in line["reason"]) == ("rate", True)

    at_edge(tmp_path, enemy)


def test_messages_that_are_none_are_counted_and_told(tmp_path: Path) -> None:
    async def enemy(world: World) -> None:
        credentials = Credentials(world.deployment, "client", "c0")
        channel = open_channel(world.deployment, credentials, "a")
        for _ in range(5):
            call = channel.stream_stream("/sdfeel.v1.Cluster/Work")()
            await call.write(b"\xff" * 20)
            assert "20 bytes that are no message" in await call.details()
        ask = channel.unary_unary("/sdfeel.v1.Monitor/Status")(b"\xff" * 30, timeout=30)
        assert "30 bytes that are no message" in await ask.details()
        assert refusals(world, "malformed") == 6
        told = world.events("peer-refused")
        assert told[0]["kind"] == "malformed"
        assert len(told) < 6, "a line a second"
        await channel.close()

    at_edge(tmp_path, enemy)


def test_one_in_the_middle_of_a_stream_too(tmp_path: Path) -> None:
    async def enemy(world: World) -> None:
        async with Rogue(world) as rogue:
            raw = rogue._channel.stream_stream("/sdfeel.v1.Cluster/Work")()
            rogue.call.cancel()
            rogue.call = Raw(raw)
            await rogue.hello()
            await raw.read()
            await raw.write(b"\xff")
            with contextlib.suppress(grpc.RpcError):
                while True:
                    await raw.read()
            assert "1 bytes that are no message" in await raw.details()
        assert refusals(world, "malformed") == 1

    at_edge(tmp_path, enemy)


class Raw:
    """A stream of bytes that takes messages."""

    def __init__(self, call: Any) -> None:
        self.call, self.cancel = call, call.cancel

    async def write(self, message: Any) -> None:
        await self.call.write(message.SerializeToString())


def test_an_edge_that_answers_nonsense_is_refused_by_the_caller(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1,), secure=False)
    credentials = Credentials(deployment, "client", "c0")

    async def run() -> None:
        async def answer(_requests: Any, context: Any) -> None:
            await context.write(b"\xff" * 7)
            await asyncio.Event().wait()

        handler = grpc.stream_stream_rpc_method_handler(answer)
        server = grpc.aio.server()
        service = grpc.method_handlers_generic_handler("sdfeel.v1.Cluster", {"Work": handler})
        server.add_generic_rpc_handlers((service,))
        server.add_insecure_port(deployment.edge("a").address)
        await server.start()
        stream = await GrpcTransport(deployment, credentials).dial("a", Call.WORK)
        with pytest.raises(Refused, match="7 bytes that are no message"):
            await stream.read()
        stream.close()
        await stream.wait_closed()
        await server.stop(None)

    asyncio.run(run())


def test_status_is_asked_as_often_as_the_page_does(tmp_path: Path) -> None:
    """Forty questions at once, as of many pages."""

    async def enemy(world: World) -> None:
        credentials = Credentials(world.deployment, "operator", "operator")
        channel = open_channel(world.deployment, credentials, "a")
        for _ in range(int(rates.STREAMS_AT_ONCE)):
            await call_status(channel, 60.0)
        await channel.close()
        assert not refusals(world, "rate")

    at_edge(tmp_path, enemy)
