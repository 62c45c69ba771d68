"""Models as an edge server holds them: read-only float32 vectors, in memory only while small.

An edge may have the models of hundreds of clients and of every neighbour before it at once. All
that it does with them (weighted sums, medians, hashes, sending) goes over them block by block, so
a large model lives in an unnamed file and the edge's memory does not grow with their number.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BLOCK",
    "KEPT",
    "LARGE",
    "Change",
    "NotFinite",
    "OpenFile",
    "Vector",
    "VectorWriter",
    "apart",
    "as_vector",
    "combine",
    "distance",
    "merge",
    "norm",
    "probe",
    "squares",
]

Block = NDArray[np.float32]

# Values handled at a time; as bytes this is also the largest chunk on the wire (128 KiB). An edge
# holds about a dozen chunks for each client that is sending or receiving.
BLOCK = 32_768
# Above it, going over a model takes long, or waits for a disk: it is done beside the event loop.
LARGE = 8 * BLOCK
KEPT = ".kept"


class NotFinite(ArithmeticError):  # noqa: N818 - said of a result
    """A sum of finite models is not finite: nothing may be built on it."""


class OpenFile:
    """A file that is closed with the last vector that reads it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def unnamed(cls, folder: Path | None) -> OpenFile:
        """A new file that nobody else can open and that no crash leaves behind."""
        with contextlib.suppress(OSError):  # not every file system can
            place = folder or Path(tempfile.gettempdir())
            return cls(os.open(place, os.O_TMPFILE | os.O_RDWR, 0o600))
        descriptor, path = tempfile.mkstemp(dir=folder)
        Path(path).unlink()
        return cls(descriptor)

    def __del__(self) -> None:
        os.close(self.descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """`os.write` may write less than it is asked to."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class Vector:
    """A finished model: `size` float32 values with their sha256."""

    # What a message says of it; `Packed` has others.
    dtype = "float32"
    base = b""

    def __init__(
        self, size: int, sha256: bytes, data: bytes | None, file: OpenFile | None, base: int = 0
    ) -> None:
        self.size = size
        self.sha256 = sha256
        self._data = data
        self._file = file
        self._base = base

    def read_bytes(self, start: int, stop: int) -> bytes:
        """The values start to stop, little endian."""
        if self._data is not None:
            return self._data[4 * start : 4 * stop]
        assert self._file is not None  # noqa: S101 - one of the two by construction
        data = os.pread(self._file.descriptor, 4 * (stop - start), self._base + 4 * start)
        if len(data) != 4 * (stop - start):
            raise OSError(errno.EIO, "a model's file has become shorter")
        return data

    def read(self, start: int, stop: int) -> Block:
        return np.frombuffer(self.read_bytes(start, stop), dtype="<f4")

    def spans(self) -> Iterator[tuple[int, int]]:
        """The bounds of its blocks, in order."""
        for start in range(0, self.size, BLOCK):
            yield start, min(start + BLOCK, self.size)

    def array(self) -> Block:
        """All values at once: for clients and tests, never for an edge with a large model."""
        return np.concatenate([self.read(*span) for span in self.spans()])

    def keep(self, folder: Path) -> bool:
        """Whether its file now has a name, its sha256, in `folder`, and survives this process.

        Costs nothing, as the values are there already. They are not flushed to the disk: see
        `flush`.
        """
        if self._file is None or self._base:
            return False
        place = os.open(folder, os.O_RDONLY)
        try:
            # With a folder's descriptor Python calls linkat, which follows the link to the file.
            source = f"/proc/self/fd/{self._file.descriptor}"
            os.link(source, self.sha256.hex() + KEPT, dst_dir_fd=place, follow_symlinks=True)
        except FileExistsError:
            return True
        except OSError:
            return False
        finally:
            os.close(place)
        return True

    def flush(self) -> None:
        """Wait until a file of the values survives a power cut too."""
        if self._file is not None:
            os.fsync(self._file.descriptor)

    @property
    def is_large(self) -> bool:
        """Whether going over it takes long enough to be done beside the event loop."""
        return self.size > LARGE


class VectorWriter:
    """Takes the values of a model in order; `finish` gives the vector.

    A large one goes to a file, and OSError comes out if the disk does not take it; `in_memory` it
    never does.
    """

    def __init__(self, size: int, folder: Path | None = None, in_memory: bool = False) -> None:
        self.size = size
        self.written = 0
        self._hash = hashlib.sha256()
        self._parts: list[bytes] = []
        is_large = size > 2 * BLOCK and not in_memory
        self._file = OpenFile.unnamed(folder) if is_large else None

    def write(self, values: bytes) -> None:
        self._hash.update(values)
        self.written += len(values) // 4
        file = self._file  # `abandon` may come from the loop while a thread writes
        if file is None:
            self._parts.append(values)
        else:
            write_all(file.descriptor, values)

    def finish(self) -> Vector:
        if self._file is not None:
            return Vector(self.size, self._hash.digest(), None, self._file)
        return Vector(self.size, self._hash.digest(), b"".join(self._parts), None)

    def abandon(self) -> None:
        """Gives the space back at once rather than when the garbage collector comes by."""
        self._file = None
        self._parts.clear()


def as_vector(values: NDArray[np.floating], folder: Path | None = None) -> Vector:
    """A vector from an array."""
    flat = np.ascontiguousarray(values, dtype="<f4").reshape(-1)
    writer = VectorWriter(flat.size, folder)
    for start in range(0, flat.size, BLOCK):
        writer.write(flat[start : start + BLOCK].tobytes())
    return writer.finish()


def merge(
    vectors: Sequence[Vector],
    rule: Callable[[list[Block], int], NDArray[np.floating]],
    folder: Path | None = None,
) -> Vector:
    """Applies `rule(blocks of all vectors, offset)` block by block. Raises NotFinite.

    An edge's own results are few: if the disk is full, they fit into its memory.
    """
    try:
        return _merge(vectors, rule, VectorWriter(vectors[0].size, folder))
    except OSError:
        return _merge(vectors, rule, VectorWriter(vectors[0].size, in_memory=True))


def _merge(
    vectors: Sequence[Vector],
    rule: Callable[[list[Block], int], NDArray[np.floating]],
    writer: VectorWriter,
) -> Vector:
    for start, stop in vectors[0].spans():
        blocks = [vector.read(start, stop) for vector in vectors]
        with np.errstate(over="ignore", invalid="ignore"):
            result = np.ascontiguousarray(rule(blocks, start), dtype="<f4")
        if not np.isfinite(result).all():
            raise NotFinite
        writer.write(result.tobytes())
    return writer.finish()


def combine(
    vectors: Sequence[Vector], weights: Sequence[float], folder: Path | None = None
) -> Vector:
    """sum_j weights[j] vectors[j], added in the order given, in double precision."""

    def rule(blocks: list[Block], _offset: int) -> NDArray[np.float64]:
        total = float(weights[0]) * blocks[0].astype(np.float64)
        for weight, block in zip(weights[1:], blocks[1:], strict=True):
            total += float(weight) * block.astype(np.float64)
        return total

    return merge(vectors, rule, folder)


@dataclass(frozen=True)
class Change:
    """Something to be added to a model: sum_n weights[n] vectors[n]."""

    vectors: tuple[Vector, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, model: Vector) -> Change:
        """A whole model, for a link to remember."""
        return cls((model,), (1.0,))

    @classmethod
    def towards(cls, own: Vector, theirs: Vector, weight: float) -> Change:
        """What a link gives in an exchange: weight * (theirs - own)."""
        return cls((theirs, own), (weight, -weight))

    def __add__(self, other: Change) -> Change:
        """A vector of both counts as often as it does in both together."""
        weights = dict(zip(self.vectors, self.weights, strict=True))
        for vector, weight in zip(other.vectors, other.weights, strict=True):
            weights[vector] = weights.get(vector, 0.0) + weight
        return Change(tuple(weights), tuple(weights.values()))

    def __neg__(self) -> Change:
        return Change(self.vectors, tuple(-weight for weight in self.weights))

    def applied(self, model: Vector, folder: Path | None = None) -> Vector:
        """The model with this added."""
        total = Change((model,), (1.0,)) + self
        parts = [(v, w) for v, w in zip(total.vectors, total.weights, strict=True) if w]
        if len(parts) == 1 and parts[0][1] == 1.0:
            return parts[0][0]
        return combine([v for v, _ in parts], [w for _, w in parts], folder)

    def probe(self) -> float:
        """By how much it moves the `probe` of a model."""
        return sum(w * probe(v) for w, v in zip(self.weights, self.vectors, strict=True))

    def blocks(self) -> Iterator[bytes]:
        """Its values in order, as a vector's are read.

        Every period of every edge waits for this, and a change is small beside its model:
        single precision is enough.
        """
        if self.weights == (1.0,):  # a model, with the signs of its zeros
            yield from (self.vectors[0].read_bytes(*span) for span in self.vectors[0].spans())
            return
        weights = [np.float32(weight) for weight in self.weights]
        scratch = np.empty(BLOCK, dtype="<f4")
        for span in self.vectors[0].spans():
            total = np.zeros(span[1] - span[0], dtype="<f4")
            part = scratch[: total.size]
            for weight, vector in zip(weights, self.vectors, strict=True):
                np.multiply(vector.read(*span), weight, out=part)
                total += part
            yield total.tobytes()


def distance(a: Vector, b: Vector) -> float:
    """||a - b|| / ||a||: how far two servers disagree."""
    apart = norm = 0.0
    for span in a.spans():
        left, right = a.read(*span).astype(np.float64), b.read(*span).astype(np.float64)
        apart += float(((left - right) ** 2).sum())
        norm += float((left**2).sum())
    return math.sqrt(apart / norm if norm > 0 else apart)


def apart(a: Vector, b: Vector, values: int | None = None) -> float:
    """||a - b||, of the first `values` alone. The same number whichever comes first."""
    total, last = 0.0, a.size if values is None else values
    for start, stop in a.spans():
        end = max(start, min(stop, last))
        total += squares(a.read(start, end).astype(np.float64) - b.read(start, end))
    return math.sqrt(total)


def norm(vector: Vector) -> float:
    return math.sqrt(sum(squares(vector.read(*span)) for span in vector.spans()))


def squares(block: NDArray[np.floating]) -> float:
    """The sum of squares, added up by numpy itself.

    `block @ block` would wake OpenBLAS' threads, which spin after their work: with as many nodes as
    cores they took half of the machine.
    """
    wide = block.astype(np.float64, copy=False)
    return float(np.einsum("i,i->", wide, wide))


def probe(vector: Vector) -> float:
    """A fixed linear function of the model, for audits.

    The weighted mean is kept in an exchange only if the weighted mean of this number is, whatever
    the size of the model; so logs can prove it without holding models.
    """
    total = 0.0
    for start, stop in vector.spans():
        phases = np.cos(np.arange(start, stop, dtype=np.float64) * 0.7548776662466927)
        total += float(np.einsum("i,i->", phases, vector.read(start, stop).astype(np.float64)))
    return total
