"""Models on the wire: a header, then chunks in order; everything is checked before it is used."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sdfeel.deploy.model.vectors import BLOCK, Vector, VectorWriter, squares
from sdfeel.deploy.protocol import v1

__all__ = ["DTYPE", "MESSAGE_BYTES", "PROTOCOL", "Incoming", "Refused", "chunks", "header"]

REASON = 200  # characters of a reason that are kept: a peer may have written part of it

PROTOCOL = 2
DTYPE = "float32"
# Room for the fields around a full chunk; a larger message never reaches Python.
MESSAGE_BYTES = 4 * BLOCK + 4096


class Refused(Exception):  # noqa: N818 - a verdict, not a failure of this program
    """A message that must not be used. `kind` is one of a few words, for metrics."""

    def __init__(self, kind: str, reason: str) -> None:
        self.kind = kind
        self.reason = reason if len(reason) <= REASON else f"{reason[:REASON]}..."
        super().__init__(self.reason)


def header(vector: Vector, period: int, **fields: object) -> v1.ModelHeader:
    """Announces `vector`; `fields` are the header's others."""
    return v1.ModelHeader(
        period=period,
        values=vector.size,
        dtype=DTYPE,
        sha256=vector.sha256,
        data=vector.read_bytes(0, vector.size) if vector.size <= BLOCK else b"",
        **fields,  # type: ignore[arg-type]
    )


def chunks(vector: Vector) -> Iterator[v1.Chunk]:
    """The chunks that follow a header; none if it has everything."""
    for start, stop in vector.spans() if vector.size > BLOCK else ():
        yield v1.Chunk(offset=start, data=vector.read_bytes(start, stop))


@contextlib.contextmanager
def _disk() -> Iterator[None]:
    """Many models come in at once, too many for the memory: without room on the disk, none does."""
    try:
        yield
    except OSError as problem:
        raise Refused("disk", f"no room for a model here: {problem.strerror}") from None


@dataclass
class Incoming:
    """One model on its way in. `feed` raises Refused at the first thing that is wrong."""

    announced: v1.ModelHeader
    size: int
    most: float  # that a value may be
    folder: Path | None = None
    start: Vector | None = None  # from which its distance is measured on the way

    def __post_init__(self) -> None:
        if self.announced.dtype != DTYPE:
            raise Refused("dtype", f"dtype {self.announced.dtype!r}, expected {DTYPE!r}")
        if self.announced.values != self.size:
            raise Refused("shape", f"{self.announced.values} values, expected {self.size}")
        if len(self.announced.sha256) != 32:
            raise Refused("hash", "the sha256 has not 32 bytes")
        with _disk():
            self._writer = VectorWriter(self.size, self.folder)
        self._squares = 0.0

    @property
    def moved(self) -> float:
        """||w - start||, once it is whole."""
        return math.sqrt(self._squares)

    def begin(self) -> Vector | None:
        """The vector, if the header had all of it."""
        data = self.announced.data
        return self.feed(v1.Chunk(data=data)) if data else None

    def feed(self, chunk: v1.Chunk) -> Vector | None:
        """Takes the next chunk; the vector once it is whole."""
        data = chunk.data
        if chunk.offset != self._writer.written:
            raise Refused("order", f"chunk at {chunk.offset}, expected {self._writer.written}")
        if len(data) % 4 or not 0 < len(data) <= 4 * BLOCK:
            raise Refused("size", f"a chunk of {len(data)} bytes")
        if self._writer.written + len(data) // 4 > self.size:
            raise Refused("size", "more values than announced")
        values = np.frombuffer(data, dtype="<f4")
        largest = float(np.abs(values).max())
        if not math.isfinite(largest):
            raise Refused("not-finite", "NaN or infinity among the values")
        if largest > self.most:
            raise Refused("magnitude", f"a value of {largest:.3g}, at most {self.most:.3g}")
        if self.start is not None:
            first = self._writer.written
            step = values.astype(np.float64) - self.start.read(first, first + values.size)
            self._squares += squares(step)
        with _disk():
            self._writer.write(data)
        if self._writer.written < self.size:
            return None
        vector = self._writer.finish()
        if vector.sha256 != self.announced.sha256:
            raise Refused("hash", "the sha256 of the values is not the one announced")
        return vector

    def abandon(self) -> None:
        self._writer.abandon()
