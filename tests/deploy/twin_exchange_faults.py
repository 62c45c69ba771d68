"""Edges that come to exchanges and do not do their part, and other words that nobody expects."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from faults import Fault
from hostile import dial, hello
from liar import Silent
from test_lying_edge import come_to_exchanges
from twin_faults import client, liar, send
from twin_world import SIZE, TwinWorld

from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.wire import frames

# By what a liar on a ring does, how often, and how the others say so.
SILENT = {
    Fault.EDGE_COMES_AND_SENDS_NOTHING: ("nothing", "all-reduce", 20),
    Fault.EDGE_COMES_AND_SENDS_NOTHING_FINITE_TIME: ("nothing", "finite-time", 20),
    Fault.EDGE_SENDS_AND_DOES_NOT_VOTE: ("model", "all-reduce", 20),
    Fault.EDGE_SENDS_AND_DOES_NOT_VOTE_FINITE_TIME: ("model", "finite-time", 20),
    Fault.EDGE_MODEL_OF_ANOTHER_VIEW: ("other", "all-reduce", 20),
    Fault.EDGE_REFUSES_EVERY_EXCHANGE: ("refuses", "all-reduce", 60),
    Fault.EDGE_DOES_EVERY_SECOND_PART: ("half", "all-reduce", 30),
    Fault.EDGE_FLAPS: ("flaps", "all-reduce", 100),
}
for _fault, (_how, _averager, _periods) in SILENT.items():
    liar(_fault, "left-out", _averager, _periods)(Silent(_how, "e03", ["e00", "e02"]))


@liar(Fault.EDGE_ANNOUNCES_ANOTHER_VIEW, "missed", "all-reduce")
async def announces_another_view(stream: Any, peer: str) -> None:
    await come_to_exchanges(stream, peer, "wrong")


@liar(Fault.EDGE_ANNOUNCES_LATE, "missed", "finite-time")
async def announces_late(stream: Any, peer: str) -> None:
    await come_to_exchanges(stream, peer, "late")


@liar(Fault.EDGE_CONTRADICTS_ITSELF, "contradiction", "all-reduce")
async def contradicts_itself(stream: Any, peer: str) -> None:
    await come_to_exchanges(stream, peer, "states")


@liar(Fault.EDGE_FALSE_EVIDENCE, "refused:gossip")
async def false_evidence(stream: Any, _peer: str) -> None:
    """Two states of an honest edge that do not contradict each other."""
    first, second = (v1.LinkState(edge="e01", number=number) for number in (1, 2))
    await send(stream, evidence=v1.Evidence(first=first, second=second))


@liar(Fault.EDGE_ANOTHERS_NAME, "dial-failed", name="e01")
async def anothers_name(_stream: Any, _peer: str) -> None:
    return


@liar(Fault.EDGE_WRONG_PROTOCOL, "dial-failed", protocol=99)
async def wrong_protocol(_stream: Any, _peer: str) -> None:
    return


@liar(Fault.EDGE_WRONG_DEPLOYMENT, "dial-failed", deployment="another")
async def wrong_deployment(_stream: Any, _peer: str) -> None:
    return


@liar(Fault.EDGE_ASKS_FOR_MODELS, "lent")
async def asks_for_models(stream: Any, _peer: str) -> None:
    """All the time; it gets one loan after the other."""
    for _ in range(500):
        await send(stream, wanted=v1.Wanted())
        await asyncio.sleep(0.001)


@liar(Fault.EDGE_CALLS_WITNESSES, "exchange")
async def calls_witnesses(stream: Any, _peer: str) -> None:
    for _ in range(2000):
        await send(stream, vouch=v1.Vouch())


@liar(Fault.EDGE_SAYS_HELLO_AGAIN, "exchange")
async def says_hello_again(stream: Any, peer: str) -> None:
    """In the middle of a stream, as somebody else, and far ahead."""
    for _ in range(10):
        await send(stream, hello=v1.Hello(name=peer, done=10**6))
        await asyncio.sleep(0.05)


@liar(Fault.GOSSIP_LONG_FILE, "refused:gossip")
async def long_file(stream: Any, _peer: str) -> None:
    await send(stream, state=v1.LinkState(edge="e03", number=1, file="x" * 10**5))


@liar(Fault.GOSSIP_IMPOSSIBLE_STEPS, "refused:gossip")
async def impossible_steps(stream: Any, _peer: str) -> None:
    await send(stream, state=v1.LinkState(edge="e03", number=1, steps=1e300))


@liar(Fault.GOSSIP_ABOUT_ITSELF, "exchange")
async def about_itself(stream: Any, peer: str) -> None:
    """To each its own later word: it counts above that, and goes on."""
    state = v1.LinkState(edge=peer, number=2**62, up=[], done=1)
    await send(stream, state=state)


@liar(Fault.LINK_MODEL_WRONG_DTYPE, "refused:dtype")
async def link_wrong_dtype(stream: Any, _peer: str) -> None:
    header = frames.header(as_vector(np.zeros(SIZE)), 2)
    header.dtype = "float64"
    await send(stream, model=header)


@liar(Fault.LINK_MODEL_OF_NO_VALUES, "refused:shape")
async def no_values(stream: Any, _peer: str) -> None:
    await send(stream, model=frames.header(as_vector(np.zeros(SIZE + 1)), 2))


@liar(Fault.EDGE_BOUND_THAT_CANNOT_BE, "refused:bound")
async def bound_that_cannot_be(stream: Any, _peer: str) -> None:
    for bound in (float("nan"), float("inf"), -1.0):
        await send(stream, model=frames.header(as_vector(np.zeros(SIZE)), 2, bound=bound))


@client(Fault.CLIENT_WRONG_PROTOCOL, "refused:protocol")
async def client_wrong_protocol(world: TwinWorld) -> None:
    await hello(world, await dial(world), protocol=99)
    await world.start("c0")
