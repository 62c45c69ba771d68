"""Model files: safetensors with names and shapes, and everything in them under one hash.

The model is one vector; in the file it is the tensors of its layout, in order and without a gap, so
the file loads into a module by name while an edge reads it as the vector that it is. Behind the
model there may be changes (see `vectors.Change`), rows of methods, and tensors that are not
trained.

    sha256   in the metadata: of the model, of each change, each row and each tensor that is not
             trained
    seal     of the header itself, taken with zeros in its own place: shapes, notes and hashes

So one wrong bit anywhere is noticed, also in a period's number.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from sdfeel.deploy.model.vectors import Change, OpenFile, Vector
from sdfeel.errors import InputError, RunError
from sdfeel.files import replacing

__all__ = [
    "Frozen",
    "Layout",
    "ModelFile",
    "check_vector",
    "read_model",
    "read_notes",
    "read_safetensors",
    "write_model",
    "write_safetensors",
]

HEADER_LIMIT = 2**24
PRIVATE = 0o600  # a model may tell about the data that it was trained on
LARGEST = 2**48
OWN = "sdfeel/"  # names of tensors that are no part of the model
CHANGE, ROW = f"{OWN}change-", f"{OWN}row-"
BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "C64": 8,
    "F32": 4, "I32": 4, "U32": 4,
    "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Which tensors a vector consists of, in order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def flat(cls, size: int) -> Layout:
        """For a model that has no names."""
        return cls(("model",), ((size,),))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def size(self) -> int:
        return sum(self.sizes)


@dataclass(frozen=True)
class Frozen:
    """A tensor that is the same at every node: frozen weights, integer buffers."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True)
class ModelFile:
    """What `read_model` found. `notes` are the metadata that the writer was given."""

    layout: Layout
    vector: Vector
    changes: list[Vector] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Frozen] = field(default_factory=dict)
    rows: dict[str, Vector] = field(default_factory=dict)


def write_safetensors(path: Path, model: Vector, notes: dict[str, str]) -> None:
    """A model without names, as the one tensor `model`."""
    write_model(path, Layout.flat(model.size), model, notes)


def write_model(
    path: Path,
    layout: Layout,
    model: Vector,
    notes: Mapping[str, str],
    changes: Sequence[Change] = (),
    constants: Mapping[str, Frozen] | None = None,
    rows: Mapping[str, Vector] | None = None,
) -> None:
    """Durable when it returns, and at once: the old file or the new one. For its owner alone.

    Raises RunError rather than write what `read_model` would refuse.
    """
    ordered = dict(sorted((constants or {}).items(), key=lambda item: -BYTES[item[1].dtype]))
    # Wide types first: readers that map a file need numbers at multiples of their size.
    wide = {name: c for name, c in ordered.items() if BYTES[c.dtype] == 8}
    narrow = {name: c for name, c in ordered.items() if name not in wide}
    fixed = [hashlib.sha256(c.data).hexdigest() for c in (*wide.values(), *narrow.values())]
    rows = rows or {}
    of_rows = [row.sha256.hex() for row in rows.values()]
    hashes = [model.sha256.hex(), *("0" * 64 for _ in changes), *of_rows, *fixed]
    sizes = {name: row.size for name, row in rows.items()}
    head = _Header(layout, notes, wide, narrow, len(changes), sizes)
    with replacing(path, PRIVATE) as file:
        file.write(head.encode(hashes))
        for constant in wide.values():
            file.write(constant.data)
        for span in model.spans():
            file.write(_finite(model.read_bytes(*span), path))
        for number, change in enumerate(changes, start=1):
            digest = hashlib.sha256()
            for block in change.blocks():
                digest.update(_finite(block, path))
                file.write(block)
            hashes[number] = digest.hexdigest()
        for row in rows.values():
            for span in row.spans():
                file.write(_finite(row.read_bytes(*span), path))
        for constant in narrow.values():
            file.write(constant.data)
        file.seek(0)
        file.write(head.encode(hashes))


def _finite(block: bytes, path: Path) -> bytes:
    if not np.isfinite(np.frombuffer(block, dtype="<f4")).all():
        raise RunError(f"{path.name} would hold NaN or infinity: it is not written")
    return block


@dataclass(frozen=True)
class _Header:
    """The JSON in front; its length does not depend on the hashes."""

    layout: Layout
    notes: Mapping[str, str]
    wide: Mapping[str, Frozen]
    narrow: Mapping[str, Frozen]
    changes: int
    rows: Mapping[str, int]  # their sizes

    def encode(self, hashes: Sequence[str]) -> bytes:
        size = self.layout.size
        parts = [(name, c.dtype, c.shape) for name, c in self.wide.items()]
        parts += [(n, "F32", s) for n, s in zip(self.layout.names, self.layout.shapes, strict=True)]
        parts += [(f"{CHANGE}{number}", "F32", (size,)) for number in range(self.changes)]
        parts += [(ROW + name, "F32", (count,)) for name, count in self.rows.items()]
        parts += [(name, c.dtype, c.shape) for name, c in self.narrow.items()]
        about_vector = {"vector": json.dumps(self.layout.names), "sha256": ",".join(hashes)}
        # The seal comes first, so that the first zeros are its own.
        table: dict[str, Any] = {"__metadata__": {"seal": "0" * 64, **self.notes, **about_vector}}
        place = 0
        for name, dtype, shape in parts:
            if name in table:
                raise RunError(f"two tensors of a model file are called {name!r}")
            end = place + BYTES[dtype] * math.prod(shape)
            table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, end]}
            place = end
        text = json.dumps(table).encode()
        text += b" " * (-len(text) % 8)
        if len(text) > HEADER_LIMIT:
            raise RunError(f"the header of a model file would have {len(text)} bytes")
        sealed = hashlib.sha256(text).hexdigest().encode()
        return struct.pack("<Q", len(text)) + text.replace(b"0" * 64, sealed, 1)


def read_safetensors(path: Path, size: int | None = None) -> tuple[Vector, dict[str, str]]:
    """The model of a file as one vector, and its notes."""
    model_file = read_model(path, size)
    return model_file.vector, model_file.notes


def read_model(path: Path, size: int | None = None, constants: bool = False) -> ModelFile:
    """A file that `write_model` wrote. Everything is checked; what is wrong is an InputError.

    constants  whether tensors that are not trained are wanted: an edge has no use for them
    """
    with _named(path), path.open("rb") as file:
        table, base = _header(file)
        metadata = _metadata(table.pop("__metadata__"))
        entries = _entries(table, os.fstat(file.fileno()).st_size - base)
        layout = _layout(json.loads(metadata.pop("vector")), entries)
        if size is not None and layout.size != size:
            raise ValueError(f"has {layout.size} values, expected {size}")
        count = sum(name.startswith(CHANGE) for name in entries)
        changes = [f"{CHANGE}{number}" for number in range(count)]
        rows = [name for name in entries if name.startswith(ROW)]
        fixed = [name for name in entries if name not in {*layout.names, *changes, *rows}]
        if any(entries[name].shape != (layout.size,) for name in changes):
            raise ValueError("a change has another size than the model")
        if any(len(entries[name].shape) != 1 for name in rows):
            raise ValueError("a row of a method is no vector")
        hashes = _hashes(metadata.pop("sha256"), 1 + len(changes) + len(rows) + len(fixed))
        duplicate = OpenFile(os.dup(file.fileno()))
        vector, *rest = (
            Vector(
                _size(entries, names), hashes.pop(0), None, duplicate, base + _place(entries, names)
            )
            for names in (layout.names, *([name] for name in (*changes, *rows)))
        )
        for part in (vector, *rest):
            check_vector(path, part)
        of_changes, of_rows = rest[: len(changes)], rest[len(changes) :]
        named = {name.removeprefix(ROW): row for name, row in zip(rows, of_rows, strict=True)}
        wanted = zip(fixed, hashes, strict=True) if constants else ()
        found = {name: _constant(file, base, entries[name], digest) for name, digest in wanted}
        metadata.pop("seal")
        return ModelFile(layout, vector, of_changes, metadata, found, named)


def read_notes(path: Path) -> dict[str, str]:
    """The metadata of a file alone; its values are not looked at."""
    with _named(path), path.open("rb") as file:
        return _metadata(_header(file)[0]["__metadata__"])


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """One error for whatever a file may hold."""
    try:
        yield
    except InputError:
        raise
    except (
        OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError,
        MemoryError, struct.error,
    ) as problem:  # fmt: skip
        reason = str(problem) or type(problem).__name__
        raise InputError("model file", str(path), f"cannot be used: {reason}") from None


def _header(file: IO[bytes]) -> tuple[dict[str, Any], int]:
    """The table in front, its seal checked, and where the values begin."""
    (length,) = struct.unpack("<Q", file.read(8))
    text = file.read(min(length, HEADER_LIMIT))
    if len(text) < length:
        raise ValueError("is cut short")
    table = json.loads(text)
    seal = str(table["__metadata__"]["seal"])
    if not re.fullmatch(r"[0-9a-f]{64}", seal):
        raise ValueError("has no seal")
    # What hashes to itself is not to be found, so this is the seal's own place.
    if hashlib.sha256(text.replace(seal.encode(), b"0" * 64, 1)).hexdigest() != seal:
        raise ValueError("is damaged: the seal of its header is broken")
    return dict(table), 8 + length


def _metadata(metadata: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in dict(metadata).items()}


@dataclass(frozen=True)
class _Entry:
    dtype: str
    shape: tuple[int, ...]
    start: int
    count: int  # bytes


def _entries(table: Mapping[str, Any], length: int) -> dict[str, _Entry]:
    """The tensors, which fill the rest of the file without a gap."""
    entries = {}
    for name, entry in table.items():
        shape = tuple(_whole(n) for n in entry["shape"])
        start, end = (_whole(n) for n in entry["data_offsets"])
        count = BYTES[entry["dtype"]] * math.prod(shape)
        if end - start != count or count > LARGEST:
            raise ValueError(f"{name!r} is not as long as its shape says")
        entries[name] = _Entry(entry["dtype"], shape, start, count)
    end = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.count)):
        if entry.start != end:
            raise ValueError("its tensors do not follow each other")
        end += entry.count
    if end != length:
        raise ValueError("is cut short, or too long")
    return entries


def _layout(names: Any, entries: Mapping[str, _Entry]) -> Layout:
    if not isinstance(names, list) or not names or len(set(names)) != len(names):
        raise ValueError("the model's tensors are not named once each")
    return Layout(tuple(names), tuple(entries[name].shape for name in names))


def _size(entries: Mapping[str, _Entry], names: Sequence[str]) -> int:
    return sum(math.prod(entries[name].shape) for name in names)


def _place(entries: Mapping[str, _Entry], names: Sequence[str]) -> int:
    """Where float32 tensors that follow each other begin."""
    place = start = entries[names[0]].start
    for name in names:
        if entries[name].start != place or entries[name].dtype != "F32":
            raise ValueError("the model's tensors are not float32 in order")
        place += entries[name].count
    return start


def _hashes(text: str, count: int) -> list[bytes]:
    digests = text.split(",")
    if len(digests) != count or not all(
        re.fullmatch(r"[0-9a-f]{64}", digest) for digest in digests
    ):
        raise ValueError("has no sha256 in its metadata")
    return [bytes.fromhex(digest) for digest in digests]


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise ValueError(f"{str(value)[:40]} is no length")
    return value


def _constant(file: IO[bytes], base: int, entry: _Entry, wanted: bytes) -> Frozen:
    file.seek(base + entry.start)
    data = file.read(entry.count)
    if hashlib.sha256(data).digest() != wanted:
        raise ValueError("is damaged: the sha256 of a tensor differs")
    return Frozen(entry.dtype, entry.shape, data)


def check_vector(path: Path, vector: Vector) -> None:
    """Raises InputError unless the values have their hash and are finite."""
    digest = hashlib.sha256()
    for span in vector.spans():
        values = vector.read(*span)
        digest.update(values.tobytes())
        if not np.isfinite(values).all():
            raise InputError("model file", str(path), "holds NaN or infinity")
    if digest.digest() != vector.sha256:
        raise InputError("model file", str(path), "is damaged: its sha256 differs")
