"""What an edge server must not lose: its model, the last finished period, what links remember.

One safetensors file a period. It is written beside its place, flushed to the disk and renamed, and
then the folder is flushed: after `save` returns, a power cut leaves this period or a later one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sdfeel.deploy.model.vectors import KEPT, Change, OpenFile, Vector
from sdfeel.errors import InputError

__all__ = ["Checkpoint", "Store", "read_safetensors", "write_safetensors"]

KEEP = 2
HEADER_LIMIT = 2**24


@dataclass(frozen=True)
class Checkpoint:
    """A finished period: the server's model and what it must remember with it.

    agreement  what `agreement_notes.dump` says of the edge's links
    changes    what those notes are about, by place; None: lost in a power cut
    """

    done: int
    model: Vector
    agreement: dict[str, Any] = field(default_factory=dict)
    changes: Sequence[Change | None] = ()


class Store:
    """The checkpoints of one edge in one folder."""

    def __init__(self, folder: Path, deployment: str) -> None:
        self.folder = folder
        self.deployment = deployment
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob("*.tmp"):
            leftover.unlink()

    def save(self, checkpoint: Checkpoint) -> None:
        """Durable when it returns. Called beside the event loop: flushing takes its time.

        Large models that changes are about are not written again: their files get names.
        """
        inline: list[Change] = []
        table: list[Any] = []
        kept: set[str] = set()
        for change in checkpoint.changes:
            if change is None:
                table.append(None)
            elif all(vector.keep(self.folder) for vector in change.vectors):
                names = [vector.sha256.hex() for vector in change.vectors]
                kept |= {name + KEPT for name in names}
                table.append(list(zip(names, change.weights, strict=True)))
            else:
                table.append(len(inline))
                inline.append(change)
        notes = {
            "done": str(checkpoint.done),
            "deployment": self.deployment,
            "agreement": json.dumps(checkpoint.agreement),
            "changes": json.dumps(table),
        }
        path = self.folder / f"period-{checkpoint.done:09d}.safetensors"
        write_safetensors(path, checkpoint.model, notes, inline)
        for old in self._files()[:-KEEP]:
            old.unlink()
        for file in self.folder.glob(f"*{KEPT}"):
            if file.name not in kept:
                file.unlink()

    def load(self, size: int | None) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint that is whole, and what was wrong with newer ones."""
        problems: list[str] = []
        for path in reversed(self._files()):
            try:
                (model, *rest), notes = read_tensors(path, size)
            except InputError as problem:
                problems.append(str(problem))
                continue
            if notes.get("deployment") != self.deployment:
                raise InputError(
                    "state", str(self.folder), "belongs to another deployment; name another folder"
                )
            agreement = json.loads(notes.get("agreement", "{}"))
            table = json.loads(notes.get("changes", "[]"))
            changes = [self._change(entry, model.size, rest, problems) for entry in table]
            return Checkpoint(int(notes["done"]), model, agreement, changes), problems
        return None, problems

    def _change(
        self, entry: Any, size: int, inline: list[Vector], problems: list[str]
    ) -> Change | None:
        if entry is None:
            return None
        if isinstance(entry, int):
            return Change((inline[entry],), (1.0,))
        vectors = []
        for name, _ in entry:
            path = self.folder / (name + KEPT)
            try:
                file = OpenFile(os.open(path, os.O_RDONLY))
                if path.stat().st_size != 4 * size:
                    raise InputError("model file", str(path), "is cut short")
                vector = Vector(size, bytes.fromhex(name), None, file)
                _check(path, vector)
            except (OSError, InputError) as problem:
                problems.append(str(problem))
                return None
            vectors.append(vector)
        return Change(tuple(vectors), tuple(float(weight) for _, weight in entry))

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("period-*.safetensors"))


def write_safetensors(
    path: Path, model: Vector, notes: dict[str, str], changes: Sequence[Change] = ()
) -> None:
    """Float32 tensors `model`, `change-0`, ... in the safetensors format, durable and at once."""
    temporary = path.with_name(path.name + ".tmp")
    hashes = [model.sha256.hex(), *("0" * 64 for _ in changes)]
    with temporary.open("wb") as file:
        file.write(_header(model.size, notes, hashes))
        for span in model.spans():
            file.write(model.read_bytes(*span))
        for number, change in enumerate(changes, start=1):
            digest = hashlib.sha256()
            for block in change.blocks():
                digest.update(block)
                file.write(block)
            hashes[number] = digest.hexdigest()
        file.seek(0)
        file.write(_header(model.size, notes, hashes))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _header(size: int, notes: dict[str, str], hashes: list[str]) -> bytes:
    """Of tensors of one size, one after the other; its length does not depend on the hashes."""
    table: dict[str, Any] = {"__metadata__": {**notes, "sha256": ",".join(hashes)}}
    for number in range(len(hashes)):
        name = "model" if number == 0 else f"change-{number - 1}"
        offsets = [4 * size * number, 4 * size * (number + 1)]
        table[name] = {"dtype": "F32", "shape": [size], "data_offsets": offsets}
    text = json.dumps(table).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def read_safetensors(path: Path, size: int | None = None) -> tuple[Vector, dict[str, str]]:
    """The model of a file written by `write_safetensors`, its hash checked, and the notes."""
    (model, *_), notes = read_tensors(path, size)
    return model, notes


def read_tensors(path: Path, size: int | None = None) -> tuple[list[Vector], dict[str, str]]:
    """All tensors of such a file, the model first."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            (length,) = struct.unpack("<Q", file.read(8))
            table = json.loads(file.read(length)) if length <= HEADER_LIMIT else {}
            notes, entry = dict(table["__metadata__"]), table["model"]
            count, tensors = int(entry["shape"][0]), len(table) - 1
            whole = entry["dtype"] == "F32"
            whole &= path.stat().st_size == 8 + length + 4 * count * tensors
        except (OSError, ValueError, KeyError, TypeError, struct.error) as problem:
            raise InputError("model file", str(path), f"cannot be read: {problem}") from None
        if not whole:
            raise InputError("model file", str(path), "is cut short or not float32")
        if size is not None and count != size:
            raise InputError("model file", str(path), f"has {count} values, expected {size}")
        hashes = notes.get("sha256", "").split(",")
        if len(hashes) != tensors or not all(re.fullmatch(r"[0-9a-f]{64}", h) for h in hashes):
            raise InputError("model file", str(path), "has no sha256 in its metadata")
        kept = OpenFile(os.dup(file.fileno()))
        vectors = [
            Vector(count, bytes.fromhex(wanted), None, kept, 8 + length + 4 * count * number)
            for number, wanted in enumerate(hashes)
        ]
        for vector in vectors:
            _check(path, vector)
        return vectors, notes


def _check(path: Path, vector: Vector) -> None:
    digest = hashlib.sha256()
    for span in vector.spans():
        values = vector.read(*span)
        digest.update(values.tobytes())
        if not np.isfinite(values).all():
            raise InputError("model file", str(path), "holds NaN or infinity")
    if digest.digest() != vector.sha256:
        raise InputError("model file", str(path), "is damaged: its sha256 differs")
