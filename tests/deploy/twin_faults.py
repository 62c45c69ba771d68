"""What may go wrong, on the network in memory: lying edges, hostile clients, bad ways.

Four edges on a ring with two clients each, which leave their models as they are: the weighted mean
of the honest edges must be the number that it was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from faults import Fault
from hostile import dial, hello, upload
from twin_world import DEADLINES, SIZE, TwinWorld

from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.transport import StreamLost

PERIODS = 12
Act = Callable[[TwinWorld], Awaitable[None]]


@dataclass
class TwinCase:
    """What happens, and how it must be named: an event of a log, or `refused:KIND`.

    liar      what the last edge does on each of its streams, in the place of the honest one
    without   a client that `act` plays
    codec     between edges
    secured   nodes have certificates and clocks
    """

    seen: str
    act: Act | None = None
    liar: Callable[[Any, str], Awaitable[None]] | None = None
    hello: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    averager: str = "paper"
    codec: str = "float32"
    periods: int = PERIODS
    secured: bool = False


TWIN_CASES: dict[Fault, TwinCase] = {}


def liar(
    fault: Fault, seen: str, averager: str = "paper", periods: int = PERIODS, **hello: Any
) -> Callable[..., Any]:
    """Enters what a lying edge does on a stream."""

    def enter(script: Callable[[Any, str], Awaitable[None]]) -> Any:
        fields: dict[str, Any] = {"averager": averager, "periods": periods}
        TWIN_CASES[fault] = TwinCase(seen, liar=script, hello=hello, **fields)
        return script

    return enter


def client(fault: Fault, seen: str) -> Callable[..., Any]:
    """Enters what somebody with the certificate of client c0 does."""

    def enter(act: Act) -> Act:
        TWIN_CASES[fault] = TwinCase(seen, act, without=("c0",))
        return act

    return enter


def world(
    fault: Fault, seen: str, averager: str = "paper", periods: int = PERIODS, secured: bool = False
) -> Callable[..., Any]:
    """Enters what happens to honest nodes."""

    def enter(act: Act) -> Act:
        fields: dict[str, Any] = {"averager": averager, "periods": periods, "secured": secured}
        TWIN_CASES[fault] = TwinCase(seen, act, **fields)
        return act

    return enter


async def send(stream: Any, **body: Any) -> None:
    await stream.write(v1.LinkMessage(**body))


# Edges that lie.


@liar(Fault.EDGE_BEYOND_THE_END_AT_ONCE, "dial-failed", done=10**6)
async def beyond_at_once(_stream: Any, _peer: str) -> None:
    return


@liar(Fault.EDGE_BEYOND_THE_END, "refused:period")
async def beyond(stream: Any, _peer: str) -> None:
    await asyncio.sleep(0.3)
    await send(stream, progress=v1.Progress(done=10**6))


@liar(Fault.EDGE_CLAIMS_THE_END, "exchange")
async def claims_the_end(stream: Any, _peer: str) -> None:
    await send(stream, progress=v1.Progress(done=PERIODS))


async def _counts_as_up(stream: Any) -> None:
    await send(stream, state=v1.LinkState(edge="e03", number=1, up=["e00", "e02"]))


@liar(Fault.EDGE_REPEATS_ITSELF, "missed", "all-reduce")
async def repeats_itself(stream: Any, _peer: str) -> None:
    await _counts_as_up(stream)
    while True:
        await send(stream, progress=v1.Progress(done=1))
        await asyncio.sleep(DEADLINES["exchange"] / 4)


@liar(Fault.EDGE_CRAWLS, "missed")
async def crawls(stream: Any, _peer: str) -> None:
    for done in range(1, PERIODS):
        await send(stream, progress=v1.Progress(done=done // 4))
        await asyncio.sleep(0.8 * DEADLINES["exchange"])


@liar(Fault.EDGE_SAYS_NOTHING, "missed", "all-reduce")
async def says_nothing(stream: Any, _peer: str) -> None:
    await _counts_as_up(stream)


@liar(Fault.GOSSIP_UNKNOWN_EDGE, "refused:gossip")
async def unknown_edge(stream: Any, _peer: str) -> None:
    for number in range(300):
        await send(stream, state=v1.LinkState(edge=f"x{number}", number=1, up=["y" * 200]))


@liar(Fault.GOSSIP_UNKNOWN_LINK, "refused:gossip")
async def unknown_link(stream: Any, _peer: str) -> None:
    await send(stream, state=v1.LinkState(edge="e01", number=2**62, up=["e03"]))


@liar(Fault.GOSSIP_UNKNOWN_CLIENT, "refused:gossip")
async def unknown_client(stream: Any, _peer: str) -> None:
    await send(stream, state=v1.LinkState(edge="e03", number=1, clients={"nobody": 3}))


@liar(Fault.GOSSIP_BEYOND_THE_END, "refused:period")
async def gossip_beyond(stream: Any, peer: str) -> None:
    await send(stream, state=v1.LinkState(edge="e03", number=1, up=[peer], done=10**6))


async def _offer(stream: Any, values: Any, stage: v1.Stage = v1.Stage.SWAP) -> None:
    vector = as_vector(np.asarray(values, dtype=np.float64))
    await send(stream, model=frames.header(vector, 2, stage=stage))
    for chunk in frames.chunks(vector):
        await send(stream, chunk=chunk)


@liar(Fault.LINK_MODEL_HUGE, "refused:magnitude")
async def huge(stream: Any, _peer: str) -> None:
    await _offer(stream, np.full(SIZE, 3.4e38))


@liar(Fault.LINK_MODEL_UNASKED, "refused:unasked")
async def unasked(stream: Any, _peer: str) -> None:
    await _offer(stream, np.zeros(SIZE), v1.Stage.LENT)


@liar(Fault.LINK_MODEL_TRUNCATED, "refused:truncated")
async def truncated(stream: Any, _peer: str) -> None:
    announced = frames.header(as_vector(np.zeros(SIZE)), 2)
    announced.ClearField("data")
    for _ in range(2):
        await send(stream, model=announced)


@liar(Fault.LINK_WORDS_ABOUT_NOTHING, "exchange")
async def words(stream: Any, _peer: str) -> None:
    """Thousands of promises, decisions and questions about exchanges that never were."""
    for ballot in range(2000):
        word = list(v1.Word.values())[ballot % 5]
        await send(stream, decision=v1.Decision(period=ballot, ballot=ballot, word=word))


@liar(Fault.EDGE_READS_NOTHING, "link-down")
async def reads_nothing(stream: Any, _peer: str) -> None:
    """It asks and asks, and never reads an answer."""
    stream.net.silence((_peer, "e03"), 3 * DEADLINES["ping"])
    for ballot in range(3000):
        await send(stream, decision=v1.Decision(period=1, ballot=ballot, word=v1.Word.ASK))


@liar(Fault.LINK_PROMISE_BROKEN, "exchange")
async def promise_broken(stream: Any, _peer: str) -> None:
    """It says PREPARED for whatever it is offered, without a model of its own."""
    while True:
        await asyncio.sleep(0.05)
        for message in stream.told:
            if message.WhichOneof("body") == "model" and message.model.ballot:
                header = message.model
                await send(
                    stream,
                    decision=v1.Decision(
                        period=header.period,
                        exchange=header.exchange,
                        ballot=header.ballot,
                        word=v1.Word.PREPARED,
                    ),
                )
        stream.told.clear()


# Clients that are not honest, or not well.


@client(Fault.CLIENT_SILENT_STREAMS, "refused:limit")
async def silent_streams(world: TwinWorld) -> None:
    for _ in range(200):
        await dial(world)


@client(Fault.CLIENT_SAYS_NO_HELLO, "refused:silent")
async def no_hello(world: TwinWorld) -> None:
    await dial(world)


@client(Fault.CLIENT_DOES_NOTHING, "deadline")
async def does_nothing(world: TwinWorld) -> None:
    stream = await dial(world)
    await hello(world, stream)
    while await stream.read() is not None:
        pass


@client(Fault.CLIENT_WRONG_SIZE, "refused:shape")
async def wrong_size(world: TwinWorld) -> None:
    await hello(world, await dial(world), values=SIZE + 1)


async def _always(world: TwinWorld, values: Any, **fields: Any) -> None:
    stream = await dial(world)
    await hello(world, stream)
    with contextlib.suppress(StreamLost):
        while (message := await stream.read()) is not None:
            if message.WhichOneof("body") == "task":
                await upload(world, stream, message.task.period, values, **fields)


@client(Fault.MODEL_HUGE, "refused:magnitude")
async def model_huge(world: TwinWorld) -> None:
    await _always(world, np.full(SIZE, 1e30))


@client(Fault.MODEL_FAR_AWAY, "refused:norm")
async def model_far_away(world: TwinWorld) -> None:
    await _always(world, np.full(SIZE, 1e4))


@client(Fault.MODEL_LONG_DTYPE, "refused:dtype")
async def long_dtype(world: TwinWorld) -> None:
    await _always(world, np.zeros(SIZE), dtype="x" * 100_000)


@client(Fault.CLIENT_FLOODS, "refused:period")
async def floods(world: TwinWorld) -> None:
    """Thousands of models for another period: one line a second says how many."""
    stream = await dial(world)
    await hello(world, stream)
    with contextlib.suppress(StreamLost):
        for _ in range(3000):
            await upload(world, stream, 10**6, np.zeros(SIZE))


@client(Fault.CLIENT_AT_TWO_EDGES, "refused:elsewhere")
async def at_two_edges(world: TwinWorld) -> None:
    async def attend(edge: str) -> None:
        stream = await dial(world, "c0", edge)
        await hello(world, stream)
        with contextlib.suppress(StreamLost):
            while (message := await stream.read()) is not None:
                if message.WhichOneof("body") == "task":
                    model = world.edges[edge].model.array()
                    await upload(world, stream, message.task.period, model)

    await asyncio.gather(attend("e00"), attend("e01"))


@client(Fault.CLIENT_SECOND_STREAM, "client-replaced")
async def twice(world: TwinWorld) -> None:
    for _ in range(2):
        await hello(world, await dial(world))
    await world.start("c0")


# Ways that are bad, and nodes that die in bad moments.


@world(Fault.WAY_SILENT, "link-down")
async def way_silent(world: TwinWorld) -> None:
    """One direction only: each end notices by itself."""
    await asyncio.sleep(0.3)
    world.net.silence(("e00", "e01"), 4 * DEADLINES["ping"])


@world(Fault.WAY_SLOW, "exchange")
async def way_slow(world: TwinWorld) -> None:
    await asyncio.sleep(0.2)
    world.net.slow[("e00", "e01")] = 1.5 * DEADLINES["exchange"]
    await asyncio.sleep(2 * DEADLINES["exchange"])
    world.net.slow.clear()


@world(Fault.EDGE_POWER_CUT, "link-down")
async def power_cut(world: TwinWorld) -> None:
    """Its neighbours hear nothing, not even an end."""
    await asyncio.sleep(0.3)
    world.kill("e01", quietly=True)
    await asyncio.sleep(1.0)
    await world.start("e01")


@world(Fault.EDGE_RETURNS, "jump")
async def returns(world: TwinWorld) -> None:
    await asyncio.sleep(0.3)
    world.kill("e01")
    await asyncio.sleep(0.4)
    await world.start("e01")


async def _dies_before_its_checkpoint(world: TwinWorld) -> None:
    agreement, disk = world.edges["e01"].links.agreement, world.disks["e01"]
    while not any(t.used and t.id.period > disk.found.done for t in agreement.open.values()):
        await asyncio.sleep(0.001)
    world.kill("e01")
    await world.start("e01")


@world(Fault.EDGE_DIES_AFTER_THE_DECISION, "taken-back")
async def dies_after_the_decision(world: TwinWorld) -> None:
    await _dies_before_its_checkpoint(world)


@world(Fault.ALL_REDUCE_EDGE_DIES_AFTER_THE_DECISION, "taken-back", "all-reduce")
async def all_reduce_dies_after_the_decision(world: TwinWorld) -> None:
    await _dies_before_its_checkpoint(world)


@world(Fault.EVERYBODY_DIES, "resumed")
async def everybody_dies(world: TwinWorld) -> None:
    await asyncio.sleep(0.35)
    for name in world.lives:
        world.kill(name)
    await world.start_all()
