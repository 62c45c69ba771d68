"""Changes of models as they travel: the messages of `sdfeel.algorithm.codecs` in numpy.

A model goes over the wire in chunks of 32,768 values, and that many are whole blocks of a codec. So
a chunk can be read by itself, its scales first, then its numbers, and an edge holds one at a time:

    float16, bfloat16   the values, two bytes each, little endian
    int8                a float32 scale for each 256 values, then a byte for each value
    int4                the same with half a byte, the first of two values in the lower half

All chunks of a model are `bits` / 8 bytes of its codec, rounded up. What comes out is bit for bit
what the codec itself makes of the same values, by test; nothing here needs PyTorch. Nothing is
checked either: whatever the scales are, what counts is the model that comes of it.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.blocks import BLOCK as TOGETHER
from sdfeel.algorithm.codecs import CODECS, Draw
from sdfeel.deploy.model.vectors import BLOCK, Block, OpenFile, Vector, write_all

__all__ = ["PACKINGS", "Dice", "Load", "Packed", "Packing", "pack"]


class Dice:
    """The numbers of `Draw.uniforms` of one sender, in order.

    PyTorch's generator and the one that numpy has had from the beginning are the same, Mersenne
    Twister with a seed of 32 bits; PyTorch makes 64 bits of two numbers, the upper half first.
    """

    def __init__(self, draw: Draw) -> None:
        self._twister = np.random.RandomState(int(draw.numbers[0]) & 0xFFFFFFFF)

    def roll(self, count: int) -> Block:
        """The next ones; only the last call may ask for a count that is no multiple of 4."""
        words = np.frombuffer(self._twister.bytes(8 * -(-count // 4)), dtype="<u4")
        parts = np.ascontiguousarray(words.reshape(-1, 2)[:, ::-1]).view("<i2").reshape(-1)[:count]
        return (parts.astype("<f4") + np.float32(32768.5)) * np.float32(2.0**-16)


@dataclass(frozen=True)
class Packing:
    """What a codec does to a block of at most 32,768 values, which ends a model if it is smaller.

    remembers  error feedback: what was to be sent and does not arrive is owed the next time
    """

    name: str
    to_bytes: Callable[[Block, Dice], bytes]
    to_values: Callable[[bytes, int], Block]

    @property
    def remembers(self) -> bool:
        return bool(CODECS[self.name].keeps)

    def length(self, values: int) -> int:
        """Bytes of so many values."""
        return -(-CODECS[self.name]().bits(values) // 8)

    def pack(self, values: Block, dice: Dice) -> bytes:
        """What cannot be sent comes out as not finite, so that the other end refuses it."""
        with np.errstate(all="ignore"):
            return self.to_bytes(values, dice)

    def unpack(self, data: bytes, count: int) -> Block:
        """The values of a chunk that has the right length."""
        with np.errstate(all="ignore"):
            return self.to_values(data, count)


def _to_half(values: Block, _: Dice) -> bytes:
    return values.astype("<f2").tobytes()


def _from_half(data: bytes, _: int) -> Block:
    return np.frombuffer(data, dtype="<f2").astype("<f4")


def _to_brain(values: Block, _: Dice) -> bytes:
    """The upper half of a float32, rounded to nearest, ties to even."""
    words = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    rounded = (words + 0x7FFF + ((words >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype("<u2").tobytes()


def _from_brain(data: bytes, _: int) -> Block:
    return (np.frombuffer(data, dtype="<u2").astype("<u4") << 16).view("<f4")


def _scaled(values: Block, most: int) -> tuple[Block, Block]:
    """Values over their block's scale, (blocks x 256), and the scales."""
    blocks = np.pad(values, (0, -values.size % TOGETHER)).reshape(-1, TOGETHER)
    scales: Block = np.abs(blocks).max(axis=1) / np.float32(most)
    divisors: Block = np.where(scales > 0, scales, np.float32(1))
    scaled: Block = blocks / divisors[:, None]
    return scaled, scales


def _times(numbers: NDArray[np.int8], scales: Block) -> Block:
    return numbers.astype("<f4") * np.repeat(scales, TOGETHER)[: numbers.size]


def _scales(data: bytes, count: int) -> tuple[Block, bytes]:
    """Scales, and the rest."""
    many = -(-count // TOGETHER)
    return np.frombuffer(data, dtype="<f4", count=many), data[4 * many :]


def _to_int8(values: Block, dice: Dice) -> bytes:
    scaled, scales = _scaled(values, 127)
    numbers = np.floor(scaled + dice.roll(scaled.size).reshape(scaled.shape)).clip(-127, 127)
    whole: NDArray[np.int8] = numbers.astype(np.int8).reshape(-1)[: values.size]
    return scales.tobytes() + whole.tobytes()


def _from_int8(data: bytes, count: int) -> Block:
    scales, rest = _scales(data, count)
    return _times(np.frombuffer(rest, dtype=np.int8), scales)


def _to_int4(values: Block, _: Dice) -> bytes:
    scaled, scales = _scaled(values, 7)
    numbers = (np.rint(scaled).clip(-7, 7) + 8).astype(np.uint8).reshape(-1, 2)
    pairs = numbers[: -(-values.size // 2)]
    return scales.tobytes() + (pairs[:, 0] | (pairs[:, 1] << 4)).astype(np.uint8).tobytes()


def _from_int4(data: bytes, count: int) -> Block:
    scales, rest = _scales(data, count)
    pairs = np.frombuffer(rest, dtype=np.uint8)
    numbers = np.stack([pairs & 15, pairs >> 4], axis=1).reshape(-1)[:count]
    return _times(numbers.astype(np.int8) - np.int8(8), scales)


PACKINGS: dict[str, Packing] = {
    "float16": Packing("float16", _to_half, _from_half),
    "bfloat16": Packing("bfloat16", _to_brain, _from_brain),
    "int8": Packing("int8", _to_int8, _from_int8),
    "int4": Packing("int4", _to_int4, _from_int4),
}


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
    dice = Dice(draw)
    for start, stop in into.spans():
        owed = change(start, stop)
        data = packing.pack(owed, dice)
        into.write(data)
        yield owed, packing.unpack(data, stop - start)
