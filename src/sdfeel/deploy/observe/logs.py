"""Structured logs: one JSON object a line. Names, numbers and reasons; never models or keys."""

from __future__ import annotations

import json
import time
from typing import IO, Any

__all__ = ["Log"]


class Log:
    """Writes events of one node, each with the time and the node's name."""

    def __init__(self, node: str, stream: IO[str] | None) -> None:
        self.node = node
        self._stream = stream
        self.recent: list[dict[str, Any]] = []

    def __call__(self, event: str, **fields: Any) -> None:
        line = {"time": round(time.time(), 6), "node": self.node, "event": event, **fields}
        self.recent.append(line)
        del self.recent[:-10_000]
        if self._stream is not None:
            self._stream.write(json.dumps(line, default=str) + "\n")
            self._stream.flush()
