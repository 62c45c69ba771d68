"""Refuse a message or a caller: the one exception for whatever comes from outside."""

from __future__ import annotations

__all__ = ["Refused"]

REASON = 200  # characters of a reason that are kept: a peer may have written part of it


class Refused(Exception):  # noqa: N818 - a verdict, not a failure of this program
    """A message that must not be used. `kind` is one of a few words, for metrics."""

    def __init__(self, kind: str, reason: str) -> None:
        self.kind = kind
        self.reason = reason if len(reason) <= REASON else f"{reason[:REASON]}..."
        super().__init__(self.reason)
