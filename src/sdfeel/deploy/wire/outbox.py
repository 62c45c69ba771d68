"""What is to be sent over a stream: words at once, models chunk by chunk between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from sdfeel.deploy.model.vectors import BLOCK
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.waiting import offload
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.packing import Load
from sdfeel.deploy.wire.transport import Stream, StreamLost

__all__ = ["MODELS", "Outbox"]

MODELS = 16  # that may wait on one stream


class Outbox:
    """Of one stream. A peer that never reads is not served for ever: at most `most` words and
    `MODELS` models wait for it.

    as_message   what a chunk is in this kind of stream
    sent         is told the bytes of every chunk
    problem      why nothing can be sent any more, if that is not the stream's fault
    """

    def __init__(
        self,
        stream: Stream,
        as_message: Callable[[v1.Chunk], Any],
        sent: Callable[[int], None],
        most: int,
    ) -> None:
        self._stream, self._as_message, self._sent, self._most = stream, as_message, sent, most
        self.problem = ""
        self.words: deque[Any] = deque()
        self._models: deque[tuple[Any, Load]] = deque()
        self._due = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def tell(self, message: Any) -> None:
        """Sends without waiting; a stream that is full of words is closed."""
        self.words.append(message)
        if len(self.words) > self._most:
            self.words.clear()
            self._stream.close("you do not read")
        self._wake()

    def offer(self, announcement: Any, load: Load) -> None:
        """Sends a model after those before it."""
        self._models.append((announcement, load))
        if len(self._models) > MODELS:
            self._models.clear()
            self._stream.close("you do not read")
        self._wake()

    def replace(self, announcement: Any, load: Load) -> None:
        """Sends this model in the place of any that has not been begun."""
        self._models.clear()
        self.offer(announcement, load)

    @property
    def has_models(self) -> bool:
        """Whether one is waiting or on its way."""
        return bool(self._models)

    def _wake(self) -> None:
        self._due.set()
        self._idle.clear()

    def holds(self, announcement: Any) -> bool:
        """Whether this model is still waiting or on its way."""
        return any(known is announcement for known, _ in self._models)

    async def flush(self) -> None:
        """Until all is said, or nobody can be told any more."""
        await self._idle.wait()

    async def pump(self) -> None:
        """Sends what is due until the stream ends; its flow control holds us back."""
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                await self._send_words()
                while self._models:
                    announcement, load = self._models[0]
                    await self._send(announcement, load)
                    if self._models and self._models[0][0] is announcement:
                        self._models.popleft()
                if not self.words:
                    self._idle.set()
        except StreamLost:
            return  # its reader sees the end as well, and tells
        except OSError as problem:
            # Half of a model may have been sent: nothing that follows would be understood.
            self.problem = f"a model cannot be read from this edge's disk: {problem}"
            self._stream.close(self.problem)
        finally:
            self._idle.set()

    async def _send(self, announcement: Any, load: Load) -> None:
        await self._stream.write(announcement)
        self._sent(len(load.read_bytes(0, load.size)) if load.size <= BLOCK else 0)
        chunks = frames.chunks(load)
        while chunk := await offload(load.is_large, lambda: next(chunks, None)):
            await self._stream.write(self._as_message(chunk))
            self._sent(len(chunk.data))
            await self._send_words()

    async def _send_words(self) -> None:
        while self.words:
            await self._stream.write(self.words.popleft())
