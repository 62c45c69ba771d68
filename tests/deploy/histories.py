"""Histories of a `Trial`: every order of events from a beginning, or one by chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from ends import Message, Trial

Shape = dict[str, str | None]
Some = TypeVar("Some", bound=Trial)

PAIR: Shape = {"a": None, "b": "a"}
PATH: Shape = {"a": None, "b": "a", "c": "b"}
STAR: Shape = {"a": None, "b": "a", "c": "a"}
TREE: Shape = {"a": None, "b": "a", "c": "b", "d": "b"}
SHARES = {"a": 3, "b": 5, "c": 2, "d": 7}
FAULTS = ("cut", "crash", "deadline")


def make(kind: type[Some], shape: Shape) -> Some:
    return kind(shape, {name: SHARES[name] for name in shape})


def begun(kind: type[Some], shape: Shape, begin: Sequence[str]) -> Some:
    """Everybody has met and these are in their first exchange: from here on orders matter."""
    trial = make(kind, shape)
    for link in trial.links:
        trial.do(("connect", *link))
    for way, queue in trial.flying.items():
        while queue:
            trial.do(("deliver", *way))
    for name in begin:
        trial.do(("start", name))
    return trial


def walk(start: Trial, faults: int, is_beyond: Callable[[Trial, Message], bool]) -> int:
    """Every order of events with so many faults at most; how many situations there are."""
    start.check()
    seen = {start.key()}
    left = [(start, faults)]
    while left:
        trial, allowed = left.pop()
        for move in trial.moves():
            is_fault = move[0] in FAULTS
            if (is_fault and not allowed) or is_beyond(trial, move):
                continue
            after = trial.clone()
            after.do(move)
            key = (*after.key(), allowed - is_fault)
            if key not in seen:
                seen.add(key)
                after.check()
                left.append((after, allowed - is_fault))
    return len(seen)


def drive(kind: type[Some], shapes: Sequence[Shape], seed: int, steps: int = 60) -> Some:
    """One random history, most of it without faults so that exchanges come about."""
    chance = random.Random(seed)  # noqa: S311 - chance, not secrets
    trial = make(kind, chance.choice(shapes))
    fault = chance.choice([0.02, 0.1, 0.3])
    for _ in range(steps):
        moves = trial.moves()
        calm = [move for move in moves if move[0] not in FAULTS]
        move = chance.choice(moves if chance.random() < fault or not calm else calm)
        if move[0] == "deliver" and chance.random() < 0.1:
            trial.do(("repeat", *move[1:]))
        else:
            trial.do(move)
    return trial
