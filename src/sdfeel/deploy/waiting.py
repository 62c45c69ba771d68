"""One signal for everything that an edge waits for: whoever changes something rings it.

And the end of a task that another one has begun, and the pause before another attempt.
"""

from __future__ import annotations

import asyncio
import math
import random
import statistics
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = ["Background", "Retry", "Signal", "UsualTimes", "end", "offload"]

Result = TypeVar("Result")

SLOW = 10  # times what the others take
SHORT = 8  # a deadline is so many times the shortest limit


class Signal:
    """Waiting for a condition with a deadline that is a timer and may move while it runs."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}  # in order, not by address

    def notify(self) -> None:
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_result(None)

    async def until(
        self, condition: Callable[[], bool], deadline: Callable[[], float] | None = None
    ) -> bool:
        """True as soon as `condition()` holds, False once the loop's time is past `deadline()`."""
        loop = asyncio.get_running_loop()
        while not condition():
            left = deadline() - loop.time() if deadline is not None else None
            if left is not None and left <= 0:
                return False
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters[waiter] = None
            timer = loop.call_later(left, _wake, waiter) if left is not None else None
            try:
                await waiter
            finally:
                if timer is not None:
                    timer.cancel()
                self._waiters.pop(waiter, None)
        return True


class Background:
    """Tasks that go on beside the main work of a node. None of them dies silently."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._is_done)

    def _is_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            self._failure = task.exception()
            self._failed.set()

    async def guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the main work. If a task fails meanwhile, end it and raise what the task raised."""
        loop = asyncio.get_running_loop()
        main, failed = loop.create_task(work), loop.create_task(self._failed.wait())
        try:
            await asyncio.wait({main, failed}, return_when=asyncio.FIRST_COMPLETED)
            if not main.done() and self._failure is not None:
                raise self._failure
        finally:
            await end(failed)
            await end(main)
        main.result()

    async def end(self) -> None:
        """End all tasks and wait until they are over."""
        for task in list(self._tasks):
            await end(task)


@dataclass
class UsualTimes:
    """Learn how long each of several peers takes, and so how long to wait for them.

    The limit is a few times what half of them take, and at most the deadline. A peer that takes
    longer, or that did not answer the last time, is not waited for until it answers sooner.
    """

    deadline: float
    _seconds: dict[str, float] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)

    def answered(self, name: str, seconds: float) -> None:
        """Note how long it took. The first time may be longer than usual and proves nothing."""
        if name in self._known:
            self._seconds[name] = seconds
        self._known.add(name)

    def missed(self, name: str) -> None:
        self._seconds[name] = math.inf
        self._known.add(name)

    def knows(self, name: str) -> bool:
        return name in self._known

    @property
    def limit(self) -> float:
        """Seconds that are worth waiting."""
        known = [seconds for seconds in self._seconds.values() if math.isfinite(seconds)]
        if not known:
            return self.deadline
        usual = statistics.median_low(known)
        return min(self.deadline, max(SLOW * usual, self.deadline / SHORT))

    def is_waited_for(self, name: str) -> bool:
        return self._seconds.get(name, 0.0) <= self.limit


class Retry:
    """The pause before another attempt: from half of `seconds` to all of it, by chance.

    So those who lost the same peer at the same moment do not all come back at the same moment.

    chance  draws it: seeded in tests, by the operating system if None
    """

    def __init__(self, seconds: float, chance: random.Random | None = None) -> None:
        self._seconds = seconds
        self._chance = chance or random.SystemRandom()

    async def pause(self) -> None:
        await asyncio.sleep(self._seconds * (1 + self._chance.random()) / 2)


async def offload(large: bool, work: Callable[[], Result]) -> Result:
    """Large work goes to a thread, so that pings and timers are answered meanwhile."""
    return await asyncio.to_thread(work) if large else work()


async def end(task: asyncio.Future[Any]) -> None:
    """End a task and wait until it is over, whatever comes out of it.

    Awaiting the task itself and suppressing CancelledError would also swallow the end of the task
    that waits.
    """
    task.cancel()
    await asyncio.wait({task})


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
