"""What methods remember of an edge's model: rows by name, as they are in its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sdfeel.algorithm.methods.method import Method
from sdfeel.deploy.model.vectors import BLOCK, Vector, VectorWriter
from sdfeel.errors import InputError

__all__ = ["constant", "rows_of"]


def rows_of(
    method: Method, kept: Mapping[str, Vector], trained: int, folder: Path
) -> dict[str, Vector]:
    """The rows of a method, as `method.row`: all from a checkpoint, or all from their beginning.

    trained  values of a row that has no width of its own
    """
    sizes = {f"{method.name}.{name}": row.width or trained for name, row in method.rows.items()}
    if all(name in kept and kept[name].size == size for name, size in sizes.items()):
        return {name: kept[name] for name in sizes}
    firsts = [row.first for row in method.rows.values()]
    for first in firsts:
        if isinstance(first, str):
            remedy = "a row that begins as the model does: in a simulation only"
            raise InputError(method.name, first, remedy)
    pairs = zip(sizes.items(), firsts, strict=True)
    return {name: constant(size, float(first), folder) for (name, size), first in pairs}


def constant(size: int, value: float, folder: Path) -> Vector:
    """The same number everywhere; in memory where the disk is full, as an edge has few of them."""
    try:
        writer = VectorWriter(size, folder)
        return _filled(writer, size, value)
    except OSError:
        return _filled(VectorWriter(size, in_memory=True), size, value)


def _filled(writer: VectorWriter, size: int, value: float) -> Vector:
    for start in range(0, size, BLOCK):
        writer.write(np.full(min(BLOCK, size - start), value, "<f4").tobytes())
    return writer.finish()
