"""Changes of models as they travel: the messages of `sdfeel.algorithm.methods.codecs`.

A model goes over the wire in chunks of 32,768 values, and that many are whole blocks of a codec. So
a chunk can be read by itself, its scales first, then its numbers, and an edge holds one at a time:

    float16, bfloat16   the values, two bytes each, little endian
    int8                a float32 scale for each 256 values, then a byte for each value
    int4                the same with half a byte, the first of two values in the lower half

All chunks of a model are `bits` / 8 bytes of its codec, rounded up. Nothing of what comes in is
checked here: whatever the scales are, what counts is the model that comes of it.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sdfeel.algorithm.methods.codecs import CODECS, Codec, Draw
from sdfeel.deploy.model.vectors import BLOCK, Block, OpenFile, Vector, write_all
from sdfeel.errors import InputError

__all__ = ["PACKINGS", "Load", "Packed", "Packing", "pack"]


@dataclass(frozen=True)
class Packing:
    """What a codec does to a block of at most 32,768 values, which ends a model if it is smaller.

    remembers  error feedback: what was to be sent and does not arrive is owed the next time
    """

    name: str

    @property
    def codec(self) -> Codec:
        return CODECS[self.name]()

    @property
    def remembers(self) -> bool:
        return self.codec.feeds_back

    def length(self, values: int) -> int:
        """Bytes of so many values."""
        return -(-self.codec.bits(values) // 8)

    def pack(self, values: Block, draw: Draw) -> bytes:
        """What cannot be sent comes out as not finite, so that the other end refuses it."""
        with np.errstate(all="ignore"):
            try:
                return self.codec.pack(self.codec.encode(values[None], draw))
            except InputError:
                message = self.codec.encode(np.zeros_like(values)[None], draw)
                name, own = next(iter(message.items()))
                message[name] = np.full_like(own, NOT_A_NUMBER if own.dtype.kind == "u" else np.nan)
                return self.codec.pack(message)

    def unpack(self, data: bytes, count: int) -> Block:
        """The values of a chunk that has the right length."""
        like = np.empty((1, count), dtype="<f4")
        with np.errstate(all="ignore"):
            found: Block = self.codec.decode(self.codec.unpack(data, count), like)[0]
        return found


NOT_A_NUMBER = 0x7FC0  # as bfloat16
PACKINGS = {name: Packing(name) for name in ("float16", "bfloat16", "int8", "int4")}


class Packed:
    """A change on its way out: what `Vector` is for a model that is sent as it is.

    base       the sha256 of the model that it is to be added to
    in_memory  else a large one goes to a file, and OSError comes out if the disk does not take it
    """

    def __init__(
        self,
        packing: Packing,
        size: int,
        base: bytes,
        folder: Path | None = None,
        in_memory: bool = False,
    ) -> None:
        self.size, self.base, self.dtype = size, base, packing.name
        self._packing = packing
        self._hash = hashlib.sha256()
        self._parts: list[bytes] = []
        is_large = size > 2 * BLOCK and not in_memory
        self._file = OpenFile.unnamed(folder) if is_large else None

    @property
    def sha256(self) -> bytes:
        """Of all that was written."""
        return self._hash.digest()

    def write(self, data: bytes) -> None:
        """The next chunk."""
        self._hash.update(data)
        if self._file is None:
            self._parts.append(data)
        else:
            write_all(self._file.descriptor, data)

    def spans(self) -> Iterator[tuple[int, int]]:
        """The bounds of its chunks, in values and in order."""
        for start in range(0, self.size, BLOCK):
            yield start, min(start + BLOCK, self.size)

    def read_bytes(self, start: int, stop: int) -> bytes:
        """The chunk of one of the `spans`."""
        if self._file is None:
            return self._parts[start // BLOCK]
        length, place = self._packing.length(stop - start), self._packing.length(start)
        found = os.pread(self._file.descriptor, length, place)
        if len(found) != length:
            raise OSError(errno.EIO, "the file of a change has become shorter")
        return found


Load = Vector | Packed


def pack(
    packing: Packing, change: Callable[[int, int], Block], into: Packed, draw: Draw
) -> Iterator[tuple[Block, Block]]:
    """Writes `change(start, stop)` of all spans; of each: what was to be sent, what arrives."""
    for start, stop in into.spans():
        owed = change(start, stop)
        data = packing.pack(owed, draw)
        into.write(data)
        yield owed, packing.unpack(data, stop - start)
