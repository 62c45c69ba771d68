"""Models on the wire: a header, then chunks in order; everything is checked before it is used."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sdfeel.deploy.model.vectors import BLOCK, LARGE, Block, Vector, VectorWriter, squares
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.waiting import offload
from sdfeel.deploy.wire.packing import AnyPacking, Load

__all__ = ["DTYPE", "MESSAGE_BYTES", "Incoming", "chunks", "header"]

DTYPE = Vector.dtype
# Room for the fields around a full chunk; a larger message never reaches Python.
MESSAGE_BYTES = 4 * BLOCK + 4096


def header(load: Load, period: int, **fields: object) -> v1.ModelHeader:
    """Announces a model, or a change of one; `fields` are the header's others."""
    return v1.ModelHeader(
        period=period,
        values=load.size,
        dtype=load.dtype,
        sha256=load.sha256,
        base=load.base,
        data=load.read_bytes(0, load.size) if load.size <= BLOCK else b"",
        **fields,  # type: ignore[arg-type]
    )


def chunks(load: Load) -> Iterator[v1.Chunk]:
    """The chunks that follow a header; none if it has everything."""
    for start, stop in load.spans() if load.size > BLOCK else ():
        yield v1.Chunk(offset=start, data=load.read_bytes(start, stop))


@contextlib.contextmanager
def _disk() -> Iterator[None]:
    """Many models come in at once, too many for the memory: without room on the disk, none does."""
    try:
        yield
    except OSError as problem:
        raise Refused("disk", f"no room for a model here: {problem.strerror}") from None


@dataclass
class Incoming:
    """One model on its way in. `feed` raises Refused at the first thing that is wrong.

    most     that a value may be
    start    from which its distance is measured on the way
    packing  of the change of `start` that travels; None: the model itself does
    """

    announced: v1.ModelHeader
    size: int
    most: float
    folder: Path | None = None
    start: Vector | None = None
    packing: AnyPacking | None = None

    def __post_init__(self) -> None:
        for check in ON_HEADER:
            check(self)
        with _disk():
            self._writer = VectorWriter(self.size, self.folder)
        self._reader = self.packing.reader(self.size) if self.packing else None
        self._squares = 0.0
        self._hash = hashlib.sha256()

    @property
    def base(self) -> Vector:
        """What the change on its way is a change of."""
        assert self.start is not None  # noqa: S101 - a change is one of something
        return self.start

    @property
    def moved(self) -> float:
        """||w - start||, once it is whole."""
        return math.sqrt(self._squares)

    def begin(self) -> Vector | None:
        """The vector, if the header had all of it."""
        data = self.announced.data
        return self.feed(v1.Chunk(data=data)) if data else None

    async def take(self, chunk: v1.Chunk) -> Vector | None:
        """As `feed`; of a large model beside the event loop, as it may wait for a disk."""
        return await offload(self.size > LARGE, lambda: self.feed(chunk))

    def feed(self, chunk: v1.Chunk) -> Vector | None:
        """Takes the next chunk; the vector once it is whole."""
        if chunk.offset != self._writer.written:
            raise Refused("order", f"chunk at {chunk.offset}, expected {self._writer.written}")
        values = self._read(chunk.data) if self._reader is None else self._add(chunk.data)
        for check in ON_VALUES:
            check(self, values)
        if self.start is not None:
            first = self._writer.written
            step = values.astype(np.float64) - self.start.read(first, first + values.size)
            self._squares += squares(step)
        with _disk():
            self._writer.write(chunk.data if self.packing is None else values.tobytes())
        if self._writer.written < self.size:
            return None
        if self._reader is not None:
            self._reader.end()
        vector = self._writer.finish()
        found = vector.sha256 if self.packing is None else self._hash.digest()
        if found != self.announced.sha256:
            raise Refused("hash", "the sha256 of the values is not the one announced")
        return vector

    def _read(self, data: bytes) -> Block:
        """Values of the model itself, in a chunk of any length."""
        if len(data) % 4 or not 0 < len(data) <= 4 * BLOCK:
            raise Refused("size", f"a chunk of {len(data)} bytes")
        if self._writer.written + len(data) // 4 > self.size:
            raise Refused("size", "more values than announced")
        return np.frombuffer(data, dtype="<f4")

    def _add(self, data: bytes) -> Block:
        """The start and its change, in float32. A chunk has 32,768 values, or is the last."""
        assert self._reader is not None  # noqa: S101 - the caller has asked
        first = self._writer.written
        count = min(BLOCK, self.size - first)
        if not count:
            raise Refused("size", f"a chunk of {len(data)} bytes for {count} values")
        change = self._reader.read(data, count)
        self._hash.update(data)
        with np.errstate(over="ignore", invalid="ignore"):
            return self.base.read(first, first + count) + change

    def abandon(self) -> None:
        self._writer.abandon()


# What a header passes, and then every chunk that was read. What may be in the file of values is
# looked at where they are read: `_read`, and the readers of `packing`.


def has_shape(incoming: Incoming) -> None:
    if incoming.announced.values != incoming.size:
        count = incoming.announced.values
        raise Refused("shape", f"{count} values, expected {incoming.size}")


def has_dtype(incoming: Incoming) -> None:
    dtype = DTYPE if incoming.packing is None else incoming.packing.name
    if incoming.announced.dtype != dtype:
        raise Refused("dtype", f"dtype {incoming.announced.dtype!r}, expected {dtype!r}")


def has_base(incoming: Incoming) -> None:
    if incoming.announced.base != (incoming.base.sha256 if incoming.packing else b""):
        raise Refused("base", "a change of another model than this end has")


def has_hash(incoming: Incoming) -> None:
    if len(incoming.announced.sha256) != 32:
        raise Refused("hash", "the sha256 has not 32 bytes")


def is_finite(_incoming: Incoming, values: Block) -> None:
    if not np.isfinite(values).all():
        raise Refused("not-finite", "NaN or infinity among the values")


def is_bounded(incoming: Incoming, values: Block) -> None:
    largest = float(np.abs(values).max())
    if largest > incoming.most:
        raise Refused("magnitude", f"a value of {largest:.3g}, at most {incoming.most:.3g}")


ON_HEADER = (has_shape, has_dtype, has_base, has_hash)
ON_VALUES = (is_finite, is_bounded)
