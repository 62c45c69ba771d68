"""The disk of an edge, beside its periods: what is on it, what is not yet, and when it refuses.

What clients are told is accepted is on the disk. A disk that is full or read-only makes the edge
pause and say so, and it goes on when there is room: what it holds is whole, so there is no reason
to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from sdfeel.deploy.facts import facts
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.node import Node

__all__ = ["LAG", "Finished", "Saver"]

# Periods that may be over and not yet on the disk; above it an edge pauses.
LAG = 6
FLUSH_SECONDS = 1.0  # that an edge which is told to stop waits for its disk
TOLD_EVERY = 60.0  # seconds, of a problem that stays the same


@dataclass(frozen=True)
class Finished:
    """A period that is over, and acknowledged once it is on the disk.

    worked   the period whose work clients had
    period   its number: later than `worked` where the edge has caught up with the others
    answers  by client that took part, the period whose work it had
    used     links
    collect, mix  seconds of these phases
    ended    when it was over, by `time.perf_counter`
    """

    worked: int
    period: int
    answers: dict[str, int]
    used: int
    collect: float
    mix: float
    ended: float

    @property
    def order(self) -> list[str]:
        return list(self.answers)


@dataclass
class Saver:
    """Writes the newest checkpoint, again and again until the disk has it.

    durable  the model that is on the disk
    done     the last period that is
    number   of the last checkpoint that is
    lag      how many periods may be over and not on the disk
    problem  why the disk does not take a checkpoint; "" while all is well
    unsaved  periods that are over and not on the disk
    on_saved is told of a checkpoint that is on the disk, and of the periods that are with it
    """

    node: Node
    store: Store
    durable: Vector
    done: int
    number: int
    lag: int = LAG
    problem: str = ""
    unsaved: list[Finished] = field(default_factory=list)
    on_saved: Callable[[EdgeCheckpoint, list[Finished]], None] = lambda *_: None

    def __post_init__(self) -> None:
        self.is_writing = False
        self._pending: EdgeCheckpoint | None = None
        self._saving: asyncio.Future[None] | None = None
        self._since = self._told = 0.0

    def save(self, checkpoint: EdgeCheckpoint, finished: Finished | None) -> None:
        """Write this one as soon as the disk is free, in the place of any that waits for it."""
        self._pending = checkpoint
        if finished is not None:
            self.unsaved.append(finished)
        if not self.is_writing:
            self.is_writing = True
            self.node.background.spawn(self._write())

    async def _write(self) -> None:
        while self._pending is not None:
            checkpoint, self._pending = self._pending, None
            count = len(self.unsaved)
            while not await self._is_taken(checkpoint):
                await asyncio.sleep(self.node.deployment.deadlines.retry)
            finished, self.unsaved = self.unsaved[:count], self.unsaved[count:]
            self.done, self.durable = checkpoint.done, checkpoint.model
            self.number = checkpoint.agreement["checkpoint"]
            self.on_saved(checkpoint, finished)
            self.node.signal.notify()
        self.is_writing = False
        self.node.signal.notify()

    async def _is_taken(self, checkpoint: EdgeCheckpoint) -> bool:
        now = asyncio.get_running_loop().time
        self._saving = asyncio.ensure_future(asyncio.to_thread(self.store.save, checkpoint))
        try:
            await asyncio.shield(self._saving)
        except OSError as problem:
            self._refused(str(problem), now())
            return False
        if self.problem:
            self.node.tell(facts.DiskRelief(seconds=round(now() - self._since, 3)))
            self.problem = ""
        return True

    def _refused(self, reason: str, now: float) -> None:
        if not self.problem:
            self._since, self._told = now, float("-inf")
        if reason != self.problem or now - self._told >= TOLD_EVERY:
            self._told = now
            self.node.tell(facts.DiskProblem(reason=reason))
        self.problem = reason

    def keeps_up(self, most: int | None = None) -> bool:
        """Whether no more periods than `most`, or else `lag`, are not on the disk."""
        allowed = self.lag if most is None else most
        return len(self.unsaved) <= allowed and (allowed > 0 or not self.is_writing)

    async def flush(self) -> None:
        """Give the disk a moment to take the periods that are over."""
        end = asyncio.get_running_loop().time() + FLUSH_SECONDS
        if not self.problem:
            await self.node.signal.until(lambda: not self.is_writing, lambda: end)

    async def settle(self) -> None:
        """Ended from outside, it may still be writing: nobody else must begin before it has."""
        if self._saving is not None:
            await asyncio.wait({self._saving})
