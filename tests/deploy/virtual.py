"""An event loop whose clock is a number: nothing waits, and a seed gives one history."""

from __future__ import annotations

import asyncio
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
    """`think` says how long work beside the loop takes, such as training and saving."""

    def __init__(self, think: Callable[[], float] = lambda: 0.0) -> None:
        super().__init__()
        self._selector = _Clock()
        self._think = think
        self.tasks: dict[str, dict[asyncio.Task[Any], None]] = {}
        self.set_task_factory(_factory)

    def time(self) -> float:
        return self._selector.now

    def _process_events(self, _events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, _executor: Any, work: Any, *args: Any) -> asyncio.Future[Any]:
        """Done here and now; whoever asked learns of it later, or never if it dies meanwhile."""
        future = self.create_future()
        try:
            result = work(*args)
        except Exception as problem:
            future.set_exception(problem)
            return future
        self.call_later(self._think(), _finish, future, result)
        return future

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


def _finish(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _factory(loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    mine = loop.tasks.setdefault(NODE.get(), {})
    mine[task] = None
    task.add_done_callback(lambda done: mine.pop(done, None))
    return task
