"""Structured logs: one JSON object a line. Names, numbers and reasons; never models or keys."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import select
import time
from collections import deque
from pathlib import Path
from typing import Any, Protocol

from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.facts import Fact
from sdfeel.deploy.facts.limits import Limits

__all__ = ["Log", "LogFile", "Sink", "as_text"]

KEPT = 10_000  # lines that wait for room
RECENT = 200  # lines that `Log.recent` has
DRAIN_SECONDS = 1.0
LONGEST = 500  # characters of a text that somebody else may have chosen


class Sink(Protocol):
    """Where lines go: a text stream, or a LogFile."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class LogFile:
    """A file to append to, or standard output; written through, so that nothing waits in here.

    Rotated by renaming it and calling `reopen` (a node does on SIGHUP).

    A node writes from its event loop and not from a thread: so a line is with the kernel before
    anything else happens, and kill -9 loses none. A file's line takes 10 us, since nothing is
    flushed. A pipe whose reader stands still would take for ever, and is therefore asked first.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._descriptor = 1
        self._is_torn = False
        if path is not None:
            self._descriptor = self._open(path)
            self._is_torn = _ends_torn(path)  # by somebody who died on a full disk

    @staticmethod
    def _open(path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, text: str) -> None:
        """Raises OSError if there is no room for it; a torn line is ended before the next."""
        rest = memoryview(("\n" * self._is_torn + text).encode())
        while rest:
            if not self._has_room():
                raise BlockingIOError(errno.EAGAIN, "nobody reads the log")
            written = os.write(self._descriptor, rest[: select.PIPE_BUF])
            rest = rest[written:]
            self._is_torn = bool(rest)

    def _has_room(self) -> bool:
        """Whether a write of `PIPE_BUF` bytes ends at once; a file always has room, or no disk."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(0))

    def flush(self) -> None:
        """Nothing is held back."""

    def reopen(self) -> None:
        """Goes on in the file that has the name now; with the old one if that cannot be opened."""
        if self.path is not None:
            with contextlib.suppress(OSError):
                fresh = self._open(self.path)
                os.dup2(fresh, self._descriptor)
                os.close(fresh)
                self._is_torn = False

    def close(self) -> None:
        if self.path is not None and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Log:
    """Writes the facts of one node, each with the time and the node's name.

    A log that cannot be written never ends a node. Its lines wait for room, up to `KEPT` of them,
    and `log-relief` says how many came late; of more than that, the oldest are lost, and `log-lost`
    stands where they would.
    """

    def __init__(self, node: str, sink: Sink | None) -> None:
        self.node = node
        self._waiting: deque[str] = deque()
        self._gone = self._untold = 0
        self._limits = Limits()
        self._sink = sink
        self._recent: deque[dict[str, Any]] = deque(maxlen=RECENT)

    @property
    def recent(self) -> list[dict[str, Any]]:
        """The last lines, whether they could be written or not."""
        return list(self._recent)

    @property
    def unwritten(self) -> int:
        """Lines that are not where they should be: those that wait, and those that are lost."""
        return self._gone + len(self._waiting)

    def add(self, fact: Fact) -> None:
        """Write a fact, unless there have been enough lines about its like."""
        about = self._limits.admit(fact)
        if about is not None:
            self._add(_line(self.node, fact, about))

    def _add(self, line: dict[str, Any]) -> None:
        late = len(self._waiting)
        self._recent.append(line)
        if self._sink is None:
            return
        self._waiting.append(json.dumps(line, default=str) + "\n")
        if late == KEPT:
            self._waiting.popleft()
            self._gone += 1
            self._untold += 1
        if self._write(self._sink) and late:
            self.add(facts.LogRelief(count=late))

    async def drain(self) -> None:
        """Before the end: give lines that wait for room another chance, for a short while."""
        end = time.monotonic() + DRAIN_SECONDS
        while self._sink is not None and self._waiting and time.monotonic() < end:
            await asyncio.sleep(DRAIN_SECONDS / 20)
            self._write(self._sink)

    def _write(self, sink: Sink) -> bool:
        """All that waits, in its order; False if there is no room for it."""
        try:
            if self._untold:
                sink.write(as_text(self.node, facts.LogLost(count=self._untold)))
                self._untold = 0
            while self._waiting:
                sink.write(self._waiting[0])
                self._waiting.popleft()
            sink.flush()
        except (OSError, ValueError):  # a ValueError: the stream was closed
            return False
        return True


def as_text(node: str, fact: Fact) -> str:
    """Return the line of a log about a fact, with its end."""
    return json.dumps(_line(node, fact, {}), default=str) + "\n"


def _line(node: str, fact: Fact, about: dict[str, int]) -> dict[str, Any]:
    line = {"time": round(time.time(), 6), "node": node, "event": fact.event}
    return line | {name: _short(value) for name, value in fact.fields().items()} | about


def _ends_torn(path: Path) -> bool:
    """Whether the last line of a file was cut off."""
    try:
        if not path.is_file() or not path.stat().st_size:
            return False
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:
        return False


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST:
        return f"{value[:LONGEST]}... ({len(value)} characters)"
    return value
