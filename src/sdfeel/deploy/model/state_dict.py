"""A model as `module.load_state_dict` takes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from sdfeel.deploy.model.files import Frozen, Layout, ModelFile, write_model
from sdfeel.deploy.model.vectors import BLOCK, Vector, VectorWriter

__all__ = ["write_state_dict"]


def write_state_dict(path: Path, first: ModelFile, model: Vector, notes: dict[str, str]) -> None:
    """A model file with everything that a state dict has, and nothing that it has not.

    What is not trained comes from the first model; weights with two names are written twice.
    """
    hidden = set(json.loads(first.notes.get("hidden", "[]")))
    tied: dict[str, str] = json.loads(first.notes.get("tied", "{}"))
    places: dict[str, tuple[int, int]] = {}
    start = 0
    for name, size in zip(first.layout.names, first.layout.sizes, strict=True):
        places[name] = (start, start + size)
        start += size
    shapes = dict(zip(first.layout.names, first.layout.shapes, strict=True))
    constants = dict(first.constants)
    for alias, name in tied.items():
        data = b"".join(_pieces(model, *places[name]))
        constants[alias] = Frozen("F32", shapes[name], data)
    shown = [name for name in first.layout.names if name not in hidden]
    layout = Layout(tuple(shown), tuple(shapes[name] for name in shown))
    part = model
    if hidden:
        writer = VectorWriter(layout.size)
        for piece in (p for name in shown for p in _pieces(model, *places[name])):
            writer.write(piece)
        part = writer.finish()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_model(path, layout, part, notes, constants=constants)


def _pieces(model: Vector, start: int, stop: int) -> Iterator[bytes]:
    for place in range(start, stop, BLOCK):
        yield model.read_bytes(place, min(place + BLOCK, stop))
