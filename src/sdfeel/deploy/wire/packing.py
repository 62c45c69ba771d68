"""Changes of models as they travel: the messages of `sdfeel.algorithm.methods.codecs`.

A model goes over the wire in chunks of 32,768 values, and that many are whole blocks of a codec. So
a chunk can be read by itself, and an edge holds one at a time:

    float16, bfloat16   the values, two bytes each, little endian
    int8                a float32 scale for each 256 values, then a byte for each value
    int4                the same with half a byte, the first of two values in the lower half
    top-k               of the k values that travel those that lie in the chunk, as float32, then
                        their places in it, of as few bits as tell its values apart, in order

A codec of the user is asked for each chunk by itself: its arrays, as `layout` says. A chunk of any
but top-k has a length that follows from its values, and all chunks of a model are
`bits` / 8 bytes of its codec, rounded up. A chunk of top-k has as many places as it happens to,
also none; a model of one chunk has the bytes of the codec, a larger one fewer for its places and up
to a byte more for each chunk. Of what comes in a `Reader` checks that it means something: lengths,
and that places are in range, in order and exactly k in all. Whatever the values are, what counts is
the model that comes of it.
"""

from __future__ import annotations

import errno
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.methods.codecs import (
    CODECS,
    Codec,
    Draw,
    TopK,
    largest,
    pack_places,
    place_bits,
    unpack_places,
)
from sdfeel.deploy.model.vectors import (
    BLOCK,
    LARGE,
    Block,
    OpenFile,
    Vector,
    VectorWriter,
    write_all,
)
from sdfeel.deploy.refused import Refused
from sdfeel.errors import InputError

__all__ = [
    "AnyPacking",
    "Dense",
    "Load",
    "Packed",
    "Packing",
    "Reader",
    "Sparse",
    "nearer",
    "pack",
    "packing_of",
]

ReadChange = Callable[[int, int], Block]  # the values start to stop of a change
NOT_A_NUMBER = 0x7FC0  # as bfloat16


class Reader(Protocol):
    """Reads the chunks of one change, in order. Both methods raise Refused."""

    def read(self, data: bytes, count: int) -> Block:
        """The next `count` values of the change."""

    def end(self) -> None:
        """There is no further chunk."""


AnyCodec = TypeVar("AnyCodec", bound=Codec)


@dataclass(frozen=True)
class Packing(ABC, Generic[AnyCodec]):
    """What a codec makes of a change, chunk by chunk.

    name  of the codec, in headers
    """

    codec: AnyCodec

    @property
    @final
    def name(self) -> str:
        kind = type(self.codec)
        return next((n for n, known in CODECS.items() if kind is known), kind.__name__.lower())

    @property
    @final
    def remembers(self) -> bool:
        """Whether what was to be sent and does not arrive is owed the next time."""
        return self.codec.feeds_back

    @abstractmethod
    def chunks(self, change: ReadChange, size: int, draw: Draw) -> Iterator[tuple[Block, bytes]]:
        """All chunks of a change of so many values: what was to be sent, and the message.

        What cannot be sent comes out as not finite, so that the other end refuses it.
        """

    @abstractmethod
    def reader(self, size: int) -> Reader:
        """What reads a change of so many values."""


@final
@dataclass(frozen=True)
class Dense(Packing[Codec]):
    """The length of a chunk follows from the number of its values."""

    def length(self, values: int) -> int:
        """Bytes of so many values."""
        layout = self.codec.layout(values)
        return sum(np.dtype(kind).itemsize * count for kind, count in layout.values())

    def chunks(self, change: ReadChange, size: int, draw: Draw) -> Iterator[tuple[Block, bytes]]:
        for start, stop in _spans(size):
            values = change(start, stop)
            yield values, self.pack(values, draw)

    def pack(self, values: Block, draw: Draw) -> bytes:
        """The message of a chunk."""
        with np.errstate(all="ignore"):
            try:
                return self.codec.pack(self.codec.encode(values[None], draw))
            except InputError:
                message = self.codec.encode(np.zeros_like(values)[None], draw)
                name, own = next(iter(message.items()))
                message[name] = np.full_like(own, NOT_A_NUMBER if own.dtype.kind == "u" else np.nan)
                return self.codec.pack(message)

    def reader(self, size: int) -> Dense:  # noqa: ARG002 - a chunk says nothing of the others
        return self

    def read(self, data: bytes, count: int) -> Block:
        """The values of a chunk."""
        if len(data) != self.length(count):
            raise Refused("size", f"a chunk of {len(data)} bytes for {count} values")
        like = np.empty((1, count), dtype="<f4")
        try:
            with np.errstate(all="ignore"):
                values = self.codec.decode(self.codec.unpack(data, count), like)
        except Exception as problem:  # a codec of the user's, about what anybody may have sent
            kind = type(problem).__name__
            raise Refused("codec", f"{self.name} cannot decode it: {kind}") from None
        if values.shape != like.shape or values.dtype != like.dtype:
            raise Refused("codec", f"{self.name} decodes {values.dtype}{list(values.shape)}")
        return np.asarray(values[0])

    def end(self) -> None:
        """Every chunk was as long as it must be."""


@final
@dataclass(frozen=True)
class Sparse(Packing[TopK]):
    """The k largest values are sent, with their places."""

    def chunks(self, change: ReadChange, size: int, draw: Draw) -> Iterator[tuple[Block, bytes]]:  # noqa: ARG002 - nothing is drawn
        places, values = self._largest(change, size)
        for start, stop in _spans(size):
            first, last = np.searchsorted(places, (start, stop))
            packed = pack_places((places[first:last] - start)[None], stop - start)
            yield change(start, stop), values[first:last].tobytes() + packed.tobytes()

    def _largest(self, change: ReadChange, size: int) -> tuple[NDArray[np.int64], Block]:
        """Places and values of what is sent, in order of places, in memory of a few times k.

        They are the codec's: of equally large values those with the lowest places are sent, so a
        later chunk can add only what is larger than `least`.
        """
        count = self.codec.count(size)
        places, values = np.empty(0, dtype=np.int64), np.empty(0, dtype="<f4")
        least = -1.0  # the smallest that is among the k, once there are so many
        for start, stop in _spans(size):
            block = change(start, stop)
            if not np.isfinite(block).all():
                return np.arange(count), np.full(count, np.nan, dtype="<f4")
            larger = np.flatnonzero(np.abs(block) > least)
            places = np.concatenate([places, start + larger])
            values = np.concatenate([values, block[larger].astype("<f4", copy=False)])
            if len(values) > 2 * count or stop == size:
                chosen = largest(values[None], count)[0]
                places, values = places[chosen], values[chosen]
                least = float(np.abs(values).min())
        return places, values

    def reader(self, size: int) -> _SparseReader:
        return _SparseReader(self.codec.count(size))


@final
@dataclass
class _SparseReader:
    """Reads the chunks of one change, of which `left` values are still to come."""

    left: int

    def read(self, data: bytes, count: int) -> Block:
        width = place_bits(count)
        sent = 8 * len(data) // (32 + width)  # as many as fit: fewer would be shorter by a byte
        if len(data) != 4 * sent + -(-sent * width // 8) or sent > count:
            raise Refused("size", f"a chunk of {len(data)} bytes for {count} values")
        self.left -= sent
        if self.left < 0:
            raise Refused("size", "more values than k")
        packed = np.frombuffer(data, dtype="u1", offset=4 * sent)
        places = unpack_places(packed[None], sent, count)[0]
        if sent and not ((places[1:] > places[:-1]).all() and places[-1] < count):
            raise Refused("places", f"places that are not in order, or beyond {count} values")
        values = np.zeros(count, dtype="<f4")
        values[places] = np.frombuffer(data, dtype="<f4", count=sent)
        return values

    def end(self) -> None:
        if self.left:
            raise Refused("size", f"{self.left} of the k values are missing")


AnyPacking = Packing[Codec] | Packing[TopK]


def packing_of(codec: Codec) -> AnyPacking | None:
    """Return how changes travel with a codec; None if models go as they are."""
    if codec.exact:
        return None
    return Sparse(codec) if isinstance(codec, TopK) else Dense(codec)


def _spans(size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, size, BLOCK):
        yield start, min(start + BLOCK, size)


class Packed:
    """A change on its way out: what `Vector` is for a model that is sent as it is.

    base       the sha256 of the model that it is to be added to
    in_memory  else a large one goes to a file, and OSError comes out if the disk does not take it
    """

    def __init__(
        self,
        packing: AnyPacking,
        size: int,
        base: bytes,
        folder: Path | None = None,
        in_memory: bool = False,
    ) -> None:
        self.size, self.base, self.dtype = size, base, packing.name
        self._hash = hashlib.sha256()
        self._parts: list[bytes] = []
        self._ends = [0]  # of the chunks, in bytes
        is_large = size > 2 * BLOCK and not in_memory
        self._file = OpenFile.unnamed(folder) if is_large else None

    @property
    def is_large(self) -> bool:
        """Whether reading it may wait for a disk."""
        return self.size > LARGE

    @property
    def sha256(self) -> bytes:
        """Of all that was written."""
        return self._hash.digest()

    def write(self, data: bytes) -> None:
        """The next chunk."""
        self._hash.update(data)
        self._ends.append(self._ends[-1] + len(data))
        if self._file is None:
            self._parts.append(data)
        else:
            write_all(self._file.descriptor, data)

    def spans(self) -> Iterator[tuple[int, int]]:
        """The bounds of its chunks, in values and in order."""
        return _spans(self.size)

    def read_bytes(self, start: int, stop: int) -> bytes:  # noqa: ARG002 - a chunk has one stop
        """The chunk of one of the `spans`."""
        number = start // BLOCK
        if self._file is None:
            return self._parts[number]
        place = self._ends[number]
        length = self._ends[number + 1] - place
        found = os.pread(self._file.descriptor, length, place)
        if len(found) != length:
            raise OSError(errno.EIO, "the file of a change has become shorter")
        return found


Load = Vector | Packed


def pack(
    packing: AnyPacking, change: ReadChange, into: Packed, draw: Draw
) -> Iterator[tuple[Block, Block]]:
    """Writes `change(start, stop)` of all spans; of each: what was to be sent, what arrives."""
    reader = packing.reader(into.size)
    chunks = packing.chunks(change, into.size, draw)
    for (start, stop), (owed, data) in zip(into.spans(), chunks, strict=True):
        into.write(data)
        yield owed, reader.read(data, stop - start)


def nearer(
    packing: AnyPacking,
    model: Vector,
    before: Vector,
    draw: Callable[[], Draw],
    folder: Path | None,
) -> tuple[Vector, Packed] | None:
    """Bring what others hold nearer to a model: what they hold then, and the message.

    None if the codec cannot carry the change. If the disk is full, both are in memory: they are
    few, however many others there are.
    """
    try:
        return _nearer(packing, model, before, draw(), folder, in_memory=False)
    except OSError:
        return _nearer(packing, model, before, draw(), folder, in_memory=True)


def _nearer(
    packing: AnyPacking,
    model: Vector,
    before: Vector,
    draw: Draw,
    folder: Path | None,
    in_memory: bool,
) -> tuple[Vector, Packed] | None:
    packed = Packed(packing, model.size, before.sha256, folder, in_memory)
    writer = VectorWriter(model.size, folder, in_memory)

    def change(start: int, stop: int) -> Block:
        return model.read(start, stop) - before.read(start, stop)

    with np.errstate(over="ignore", invalid="ignore"):
        parts = pack(packing, change, packed, draw)
        for (start, stop), (_, arrived) in zip(packed.spans(), parts, strict=True):
            values = before.read(start, stop) + arrived
            if not np.isfinite(values).all():
                return None
            writer.write(values.tobytes())
    return writer.finish(), packed
