"""An event loop whose clock is a number: nothing waits, and a seed gives one history."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

# Which node the running code belongs to: tasks of a node end with it.
NODE: ContextVar[str] = ContextVar("node", default="")


class Stuck(Exception):  # noqa: N818
    """Everybody waits for somebody, and no timer runs."""


class _Clock:
    """In the place of a selector: waiting is adding."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stuck
        self.now += timeout
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Work beside the loop, such as training and saving, takes up to `longest` seconds."""

    def __init__(self, seed: int | str = 0, longest: float = 0.0) -> None:
        super().__init__()
        self._selector = _Clock()
        self._chance = random.Random(f"work {seed}")  # noqa: S311 - chance, not secrets
        self._longest = longest
        self.tasks: dict[str, dict[asyncio.Task[Any], None]] = {}
        self.set_task_factory(_factory)

    def time(self) -> float:
        return self._selector.now

    def _process_events(self, _events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, _executor: Any, work: Any, *args: Any) -> asyncio.Future[Any]:
        """Done at once or at the end of its time; who dies meanwhile never learns of it."""
        future = self.create_future()
        delay = self._longest * self._chance.random()
        if self._chance.random() < 0.5:
            done, delivered = self._do(work, args)
            self.call_later(delay, self._finish, future, lambda: (done, delivered))
        else:
            self.call_later(delay, self._finish, future, lambda: self._do(work, args))
        return future

    def _do(self, work: Any, args: Any) -> tuple[Any, list[Callable[[], None]]]:
        """The outcome, and what the work wants to be done when it is known."""
        self.delivered: list[Callable[[], None]] = []
        return _outcome(work, args), self.delivered

    def _finish(self, future: asyncio.Future[Any], do: Callable[[], Any]) -> None:
        outcome, delivered = do()
        for call in delivered:
            call()
        _finish(future, outcome)

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """`main` to its end; whatever is left then is dropped."""
        try:
            return self.run_until_complete(main)
        finally:
            for name in list(self.tasks):
                self.end(name)
            for _ in range(10):  # whoever is told to end may have something to end as well
                self.run_until_complete(asyncio.sleep(0))
            self.close()

    def end(self, node: str) -> None:
        """All tasks of a node, and those that they began."""
        for task in self.tasks.pop(node, {}):
            task.cancel()


def _outcome(work: Any, args: Any) -> tuple[Any, Exception | None]:
    try:
        return work(*args), None
    except Exception as problem:
        return None, problem


def _finish(future: asyncio.Future[Any], outcome: tuple[Any, Exception | None]) -> None:
    if not future.done():
        result, problem = outcome
        if problem is None:
            future.set_result(result)
        else:
            future.set_exception(problem)


def _factory(loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    mine = loop.tasks.setdefault(NODE.get(), {})
    mine[task] = None
    task.add_done_callback(lambda done: mine.pop(done, None))
    return task
