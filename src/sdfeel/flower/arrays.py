"""A model between two shapes: one vector here, named arrays in the format of `np.save` in Flower.

An array is copied once on the way there and once on the way back.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

__all__ = ["ArrayLayout", "Misfit", "Piece"]

STYPE = "numpy.ndarray"

Vector = NDArray[Any]


class Misfit(Exception):  # noqa: N818 - becomes an error with client and round in it
    """Arrays that are not the model's."""


@dataclass(frozen=True)
class Piece:
    """One array of an app.

    start     where it lies in the vector; None: it is not trained, and the same everywhere
    constant  then its values, in C order
    twin      second name of an array that lies in the vector once: sent, not read
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int | None = None
    constant: bytes = b""
    twin: bool = False

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def header(self) -> bytes:
        """Return what `np.save` writes in front of the values."""
        file = io.BytesIO()
        kind = np.lib.format.dtype_to_descr(np.dtype(self.dtype))
        about = {"descr": kind, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(file, about)
        return file.getvalue()

    def array(self, vector: Vector) -> Array:
        """Return it as Flower has it; a counter, averaged, as the nearest whole number."""
        values: Any = self.constant
        if self.start is not None:
            part = vector[self.start : self.start + self.size]
            if np.dtype(self.dtype).kind in "iu":
                part = np.rint(part)
            values = np.ascontiguousarray(part, dtype=self.dtype).data
        return Array(self.dtype, self.shape, STYPE, b"".join((self.header, values)))

    def values(self, array: Array) -> Vector:
        """Return the flat values of an array of this name; as they lie, where they lie as sent."""
        data, begin = array.data, len(self.header)
        if data[:begin] == self.header:
            values: Vector = np.frombuffer(data, self.dtype, offset=begin)
        else:
            try:
                values = array.numpy()
            except Exception as problem:
                raise Misfit(f"array {self.name!r} cannot be read: {problem}") from None
            if values.shape != self.shape or values.dtype.kind not in "fiu":
                raise Misfit(
                    f"array {self.name!r} is {values.dtype}{list(values.shape)}, "
                    f"not {self.dtype}{list(self.shape)}"
                )
            values = values.reshape(-1)
        if len(values) != self.size:
            raise Misfit(f"array {self.name!r} has {len(values)} values, not {self.size}")
        return values


@dataclass(frozen=True)
class ArrayLayout:
    """All arrays of an app, in the order in which it has them; `size`: values of the vector."""

    pieces: Sequence[Piece]
    size: int

    @cached_property
    def names(self) -> list[str]:
        return [piece.name for piece in self.pieces]

    @cached_property
    def _fills(self) -> bool:
        return self.size == sum(p.size for p in self._read)

    @cached_property
    def _read(self) -> list[Piece]:
        return [p for p in self.pieces if p.start is not None and not p.twin]

    def record(self, vector: Vector, *, named: bool = True) -> ArrayRecord:
        """Return the arrays of a vector, by name or, as legacy clients have them, by number."""
        record = ArrayRecord()
        for number, piece in enumerate(self.pieces):
            record[piece.name if named else str(number)] = piece.array(vector)
        return record

    def vector(self, record: ArrayRecord, like: Vector, *, named: bool = True) -> Vector:
        """Return the vector of the arrays that came back; what they do not have is as in `like`."""
        wanted = self.names if named else [str(n) for n in range(len(self.pieces))]
        if record.keys() != set(wanted):
            raise Misfit(_difference(set(record.keys()), set(wanted)))
        arrays = dict(zip(self.names, (record[name] for name in wanted), strict=True))
        out = np.empty_like(like) if self._fills else like.copy()
        for piece in self._read:
            assert piece.start is not None  # noqa: S101 - as `_read` says
            out[piece.start : piece.start + piece.size] = piece.values(arrays[piece.name])
        return out


def _difference(given: set[str], wanted: set[str]) -> str:
    if all(name.isdigit() for name in given | wanted):
        return f"{len(given)} arrays came back, not {len(wanted)}"
    parts = [
        f"{what} {', '.join(sorted(names)[:3])}{', ...' if len(names) > 3 else ''}"
        for what, names in (("missing", wanted - given), ("unknown", given - wanted))
        if names
    ]
    return f"other arrays came back than were sent: {'; '.join(parts)}"
