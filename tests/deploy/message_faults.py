"""Models that must not be used, from clients and from neighbours."""

from __future__ import annotations

import contextlib
from typing import Any

import grpc
import numpy as np
import toy
from faults import Fault, case
from harness import World
from rogue import Rogue

from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.wire import frames

ROGUE = {"without": ("c0",), "options": {"periods": 6}}


async def _then_honest(world: World) -> None:
    world.start_client("c0")


async def _refused(
    world: World, reason: str, values: Any = None, ahead: int = 0, **fields: Any
) -> None:
    """One upload that must come back with this reason."""
    async with Rogue(world) as rogue:
        period = await rogue.task() + ahead
        receipt = await rogue.upload(rogue.model(values), period, **fields)
        assert receipt.verdict == v1.Verdict.REFUSED
        assert reason in receipt.reason
    await _then_honest(world)


@case(Fault.MODEL_NAN, "refused:not-finite", **ROGUE)
async def nan(world: World) -> None:
    await _refused(world, "NaN", np.full(toy.SIZE, np.nan))


@case(Fault.MODEL_CORRUPTED, "refused:hash", **ROGUE)
async def corrupted(world: World) -> None:
    await _refused(world, "sha256", sha256=b"x" * 32)


@case(Fault.MODEL_WRONG_SHAPE, "refused:shape", **ROGUE)
async def wrong_shape(world: World) -> None:
    await _refused(world, "expected 13", np.zeros(toy.SIZE + 1))


@case(Fault.MODEL_WRONG_DTYPE, "refused:dtype", **ROGUE)
async def wrong_dtype(world: World) -> None:
    await _refused(world, "float32", dtype="float64")


@case(Fault.MODEL_WRONG_SAMPLES, "refused:samples", **ROGUE)
async def wrong_samples(world: World) -> None:
    await _refused(world, "provisioned", samples=10**9)


@case(Fault.MODEL_WRONG_ROUND, "refused:period", **ROGUE)
async def wrong_round(world: World) -> None:
    await _refused(world, "period", ahead=3)


@case(Fault.MODEL_OUT_OF_ORDER, "refused:order", **ROGUE)
async def out_of_order(world: World) -> None:
    async with Rogue(world) as rogue:
        period = await rogue.task()
        await rogue.header(rogue.model(), period)
        await rogue.chunk(bytes(8), offset=4)
        assert (await rogue.receipt()).verdict == v1.Verdict.REFUSED
    await _then_honest(world)


@case(Fault.MODEL_TRUNCATED, "refused:truncated", **ROGUE)
async def truncated(world: World) -> None:
    async with Rogue(world) as rogue:
        period = await rogue.task()
        await rogue.header(rogue.model(), period)
        await rogue.chunk(bytes(8))
        await rogue.header(rogue.model(), period)
        assert "whole" in (await rogue.receipt()).reason
    await _then_honest(world)


@case(Fault.MODEL_CUT_OFF, "refused:truncated", **ROGUE)
async def cut_off(world: World) -> None:
    async with Rogue(world) as rogue:
        period = await rogue.task()
        await rogue.header(rogue.model(), period)
        await rogue.chunk(bytes(8))
    await _then_honest(world)


@case(Fault.MODEL_OVERSIZED, "client-down", **ROGUE)
async def oversized(world: World) -> None:
    """Such a message is refused by the transport itself, with the stream."""
    async with Rogue(world) as rogue:
        period = await rogue.task()
        await rogue.header(rogue.model(), period)
        message = v1.FromClient(chunk=v1.Chunk(data=bytes(2**20)))
        with contextlib.suppress(grpc.RpcError):  # which end notices first is up to gRPC
            await rogue.call.write(message)
            while await rogue.call.read() is not grpc.aio.EOF:
                pass
    await _then_honest(world)


@case(Fault.MODEL_REPLAYED, "refused:replayed", **ROGUE)
async def replayed(world: World) -> None:
    async with Rogue(world) as rogue:
        period = await rogue.task()
        world.edges["a"].cluster.awaited.add("nobody")  # holds the period open
        vector = rogue.model()
        await rogue.header(vector, period)
        await rogue.chunk(vector.read_bytes(0, vector.size))
        receipt = await rogue.upload(vector, period)
        assert "second" in receipt.reason
        world.edges["a"].cluster.awaited.clear()
    await _then_honest(world)


@case(Fault.MODEL_LATE, "late", **ROGUE)
async def late(world: World) -> None:
    async with Rogue(world) as rogue:
        period = await rogue.task()
        receipt = await rogue.upload(rogue.model(), period - 1)
        assert receipt.verdict == v1.Verdict.LATE
    await _then_honest(world)


# Between edges.


def _spoil(world: World, **spoiled: Any) -> None:
    """The next model from b to a is not what it should be."""
    outbox: Any = world.edges["b"].links["a"]._outbox
    honest = outbox.offer

    def once(message: v1.LinkMessage, vector: Any) -> None:
        outbox.offer = honest
        announced = message.model
        if "values" in spoiled:
            vector = as_vector(spoiled["values"])
            announced.CopyFrom(frames.header(vector, announced.period, exchange=announced.exchange))
        announced.sha256 = spoiled.get("sha256", announced.sha256)
        honest(message, vector)

    outbox.offer = once


@case(Fault.LINK_MODEL_NAN, "refused:not-finite")
async def link_nan(world: World) -> None:
    _spoil(world, values=np.full(toy.SIZE, np.inf))


@case(Fault.LINK_MODEL_CORRUPTED, "refused:hash")
async def link_corrupted(world: World) -> None:
    _spoil(world, sha256=b"y" * 32)


@case(Fault.LINK_MODEL_WRONG_SHAPE, "refused:shape")
async def link_wrong_shape(world: World) -> None:
    _spoil(world, values=np.zeros(toy.SIZE + 5))


async def _lose_decision(world: World, leader: Link) -> None:
    """The word COMMIT is lost, and all that is said later, until the follower has given up."""
    said = leader.say
    lost = []

    def silent(decision: v1.Decision) -> None:
        if decision.word == v1.Word.COMMIT:
            lost.append(decision)
        if not lost:
            said(decision)

    leader.say = silent  # type: ignore[method-assign]
    await world.until(lambda: bool(world.events("undecided")))
    leader.say = said  # type: ignore[method-assign]
    await world.until(lambda: bool(world.events("repaired")))


LOSING = {"deadlines": {"round": 0.5, "exchange": 0.7}, "periods": 8}


@case(Fault.LINK_DECISION_LOST, "repaired", options=LOSING)
async def link_decision_lost(world: World) -> None:
    await _lose_decision(world, world.edges["a"].links["b"])


# The two others do not wait for the edge in doubt: it must know more before they are at their end.
LOSING_ALL = {**LOSING, "averager": "all-reduce", "periods": 100}


@case(Fault.ALL_REDUCE_DECISION_LOST, "repaired", options=LOSING_ALL)
async def all_reduce_decision_lost(world: World) -> None:
    await _lose_decision(world, world.edges["a"].links["b"])
