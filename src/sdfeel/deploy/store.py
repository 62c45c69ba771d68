"""What an edge server must not lose: its model, the last finished period, what links decided.

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
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sdfeel.deploy.vectors import OpenFile, Vector
from sdfeel.errors import InputError

__all__ = ["Checkpoint", "Store", "read_safetensors", "write_safetensors"]

KEEP = 2
HEADER_LIMIT = 2**20


@dataclass(frozen=True)
class Checkpoint:
    """A finished period: the server's model and what it must remember with it.

    decisions  for each neighbour the exchanges [period, exchange] that used the link, newest last
    """

    done: int
    model: Vector
    decisions: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


class Store:
    """The checkpoints of one edge in one folder."""

    def __init__(self, folder: Path, deployment: str) -> None:
        self.folder = folder
        self.deployment = deployment
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob("*.tmp"):
            leftover.unlink()

    def save(self, checkpoint: Checkpoint) -> None:
        """Durable when it returns. Called beside the event loop: flushing takes its time."""
        notes = {
            "done": str(checkpoint.done),
            "deployment": self.deployment,
            "decisions": json.dumps(checkpoint.decisions),
        }
        path = self.folder / f"period-{checkpoint.done:09d}.safetensors"
        write_safetensors(path, checkpoint.model, notes)
        for old in self._files()[:-KEEP]:
            old.unlink()

    def load(self, size: int | None) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint that is whole, and what was wrong with newer ones."""
        problems: list[str] = []
        for path in reversed(self._files()):
            try:
                model, notes = read_safetensors(path, size)
            except InputError as problem:
                problems.append(str(problem))
                continue
            if notes.get("deployment") != self.deployment:
                raise InputError(
                    "state", str(self.folder), "belongs to another deployment; name another folder"
                )
            decisions = {
                peer: [(int(p), int(x)) for p, x in pairs]
                for peer, pairs in json.loads(notes["decisions"]).items()
            }
            return Checkpoint(int(notes["done"]), model, decisions), problems
        return None, problems

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("period-*.safetensors"))


def write_safetensors(path: Path, model: Vector, notes: dict[str, str]) -> None:
    """`model` as one float32 tensor in the safetensors format, durably and all at once."""
    table = {
        "__metadata__": {**notes, "sha256": model.sha256.hex()},
        "model": {"dtype": "F32", "shape": [model.size], "data_offsets": [0, 4 * model.size]},
    }
    text = json.dumps(table).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for span in model.spans():
            file.write(model.read_bytes(*span))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_safetensors(path: Path, size: int | None = None) -> tuple[Vector, dict[str, str]]:
    """The model of a file written by `write_safetensors`, its hash checked, and the notes."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            (length,) = struct.unpack("<Q", file.read(8))
            table = json.loads(file.read(length)) if length <= HEADER_LIMIT else {}
            notes, entry = dict(table["__metadata__"]), table["model"]
            count = int(entry["shape"][0])
            whole = entry["dtype"] == "F32" and path.stat().st_size == 8 + length + 4 * count
        except (OSError, ValueError, KeyError, TypeError, struct.error) as problem:
            raise InputError("model file", str(path), f"cannot be read: {problem}") from None
        if not whole:
            raise InputError("model file", str(path), "is cut short or not float32")
        if size is not None and count != size:
            raise InputError("model file", str(path), f"has {count} values, expected {size}")
        if not re.fullmatch(r"[0-9a-f]{64}", notes.get("sha256", "")):
            raise InputError("model file", str(path), "has no sha256 in its metadata")
        kept = OpenFile(os.dup(file.fileno()))
        model = Vector(count, bytes.fromhex(notes["sha256"]), None, kept, 8 + length)
        digest = hashlib.sha256()
        for span in model.spans():
            values = model.read(*span)
            digest.update(values.tobytes())
            if not np.isfinite(values).all():
                raise InputError("model file", str(path), "holds NaN or infinity")
        if digest.hexdigest() != notes["sha256"]:
            raise InputError("model file", str(path), "is damaged: its sha256 differs")
        return model, notes
