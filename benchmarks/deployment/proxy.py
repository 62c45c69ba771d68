"""A TCP proxy for tests: cuts, freezes and slows what passes through it."""

from __future__ import annotations

import asyncio
import contextlib
from enum import Enum, auto


class Mode(Enum):
    PASS = auto()
    CUT = auto()  # connections break and new ones are refused
    FREEZE = auto()  # connections stay, nothing passes


class Proxy:
    """Stands between whoever dials `port` and the real `target` port."""

    def __init__(self, port: int, target: int) -> None:
        self.port, self.target = port, target
        self.mode = Mode.PASS
        self.delay = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._break()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def set(self, mode: Mode) -> None:
        self.mode = mode
        if mode is Mode.FREEZE:
            self._open.clear()
        else:
            self._open.set()
        if mode is Mode.CUT:
            self._break()

    def _break(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self.mode is Mode.CUT:
                writer.transport.abort()
                return
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers |= {writer, far_writer}
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()  # also where nobody was at the target
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._open.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
