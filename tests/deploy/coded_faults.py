"""Exchanges with a codec that are cut at every stage, and changes that no honest edge sends.

Both ends of a link hold models of each other, of which messages are changes. What they hold must
stay the same at both ends, or the difference must be noticed: the weighted mean is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from faults import Fault
from packings import PACKINGS
from twin_faults import TWIN_CASES, TwinCase, send
from twin_world import SIZE, TwinWorld

from sdfeel.algorithm.methods.codecs import Draw
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.packing import Packed, nearer

LEADER, OTHER = "e00", "e01"


def decision(message: Any, word: v1.Word) -> bool:
    return message.WhichOneof("body") == "decision" and message.decision.word == word


def change(message: Any) -> bool:
    return message.WhichOneof("body") == "model" and bool(message.model.base)


# By stage: the way, and the message that is the last to leave, or is lost.
STAGES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "HELD": (OTHER, lambda message: message.WhichOneof("body") == "held"),
    "LEADERS_CHANGE": (LEADER, change),
    "FOLLOWERS_CHANGE": (OTHER, change),
    "PROMISE": (OTHER, lambda message: decision(message, v1.Word.PREPARED)),
    "DECISION": (LEADER, lambda message: decision(message, v1.Word.COMMIT)),
}


def _enter(fault: Fault, seen: str, codec: str, **fields: Any) -> None:
    TWIN_CASES[fault] = TwinCase(seen, averager="metropolis", codec=codec, **fields)


async def _cut_at(
    world: TwinWorld, sender: str, is_it: Callable[[Any], bool], arrives: bool, dies: bool
) -> None:
    """Three times, with an undisturbed while in between."""
    pass_on, free_from, left = world.net.send, 0.0, 3
    receiver = OTHER if sender == LEADER else LEADER

    def back() -> None:
        world.starting = asyncio.ensure_future(world.start(receiver))

    def tampered(end: Any, message: Any) -> None:
        nonlocal free_from, left
        is_due = (end.me, end.peer) == (sender, receiver) and is_it(message)
        if not (left and is_due and world.loop.time() >= free_from):
            pass_on(end, message)
            return
        left, free_from = left - 1, world.loop.time() + 0.2
        if arrives:
            pass_on(end, message)
        if dies:
            world.loop.call_later(0.005, world.kill, receiver)
            world.loop.call_later(0.3, back)
        else:
            world.loop.call_later(0.005 if arrives else 0.0, world.net.cut, LEADER, OTHER)

    world.net.send = tampered  # type: ignore[method-assign]
    world.net.cut(LEADER, OTHER)  # so that there is a beginning of a stream in it
    while left:
        await asyncio.sleep(0.01)


def _enter_stages() -> None:
    for number, (stage, (sender, is_it)) in enumerate(STAGES.items()):
        for how, arrives, dies in (
            ("LOST", False, False),
            ("LAST", True, False),
            ("RECEIVER_DIES", True, True),
        ):

            async def act(
                world: TwinWorld,
                sender: str = sender,
                is_it: Callable[[Any], bool] = is_it,
                arrives: bool = arrives,
                dies: bool = dies,
            ) -> None:
                await asyncio.sleep(0.05)
                await _cut_at(world, sender, is_it, arrives, dies)

            codec = ("int8", "int4", "bfloat16")[number % 3]
            _enter(Fault[f"CODED_{stage}_{how}"], "link-down", codec, act=act, periods=30)


_enter_stages()


# A lying edge: changes that cannot be.


def _lies(fault: Fault, seen: str, codec: str = "int8") -> Callable[..., Any]:
    def enter(make: Callable[[int], v1.ModelHeader]) -> Any:
        async def script(stream: Any, _peer: str) -> None:
            for period in range(2, 40):
                await send(stream, model=make(period))
                await asyncio.sleep(0.02)

        _enter(fault, seen, codec, liar=script)
        return make

    return enter


def _announced(period: int, base: bytes, data: bytes, dtype: str = "int8") -> v1.ModelHeader:
    packed = Packed(PACKINGS[dtype], SIZE, base)
    packed.write(data)
    return frames.header(packed, period, ballot=period)


FIRST = as_vector(np.zeros(SIZE))


@_lies(Fault.CODED_OF_ANOTHER_MODEL, "refused:base")
def of_another_model(period: int) -> v1.ModelHeader:
    return _announced(period, b"x" * 32, bytes(4 + SIZE))


@_lies(Fault.CODED_OF_ANOTHER_CODEC, "refused:base", "int4")
def of_another_codec(period: int) -> v1.ModelHeader:
    return _announced(period, FIRST.sha256, bytes(4 + SIZE))


@_lies(Fault.CODED_WITHOUT_A_BASE, "refused:dtype")
def without_a_base(period: int) -> v1.ModelHeader:
    return _announced(period, b"", bytes(4 + SIZE))


async def held_lies(stream: Any, _peer: str) -> None:
    """Says that it holds what it does not, again and again, and things that are no hash."""
    draw = Draw(0, np.array([0]), 0)
    packing = PACKINGS["int8"]
    message = nearer(packing, as_vector(np.ones(SIZE)), FIRST, lambda: draw, None)
    assert message is not None
    for period in range(2, 40):
        for sha256 in (b"", b"x" * 32, b"x" * 4000, FIRST.sha256):
            await send(stream, held=v1.Held(sha256=sha256))
        await send(stream, model=frames.header(message[1], period, ballot=period))
        await asyncio.sleep(0.02)


_enter(Fault.EDGE_LIES_ABOUT_WHAT_IT_HOLDS, "refused:base", "int8", liar=held_lies)
