"""A file of certificates that is read again when it changes, and may be copied in pieces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm

from sdfeel.deploy.trust.revocation import stamp_of

__all__ = ["UNREADABLE", "LastGood"]

T = TypeVar("T")
# What reading and parsing a damaged PEM file may raise; a key with a passphrase is a TypeError.
UNREADABLE = (OSError, ValueError, TypeError, UnsupportedAlgorithm)


class LastGood(Generic[T]):
    """What `parse` makes of a file. While the file is missing or damaged, what it said before.

    The first reading raises what `parse` raises.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T]) -> None:
        self.path = path
        self._parse = parse
        self._stamp = stamp_of(path)  # taken before reading: what changes meanwhile is read again
        self._value = parse(path.read_bytes())

    @property
    def value(self) -> T:
        self._refresh()
        return self._value

    @property
    def stamp(self) -> tuple[int, int]:
        """Changes with the value."""
        self._refresh()
        return self._stamp

    def _refresh(self) -> None:
        stamp = stamp_of(self.path)
        if stamp == self._stamp:
            return
        try:
            self._value = self._parse(self.path.read_bytes())
        except UNREADABLE:
            return  # the stamp stays, so that it is tried again
        self._stamp = stamp
