"""What an edge makes of its clients' mean: the simulator's server optimizers, block by block.

The optimizers of the table take each value by itself, so a model of any size goes through them in
blocks, and what they remember lies in vectors like a model's. It is saved with the edge's
checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sdfeel.algorithm.methods.server_optimizers import SERVER_OPTIMIZERS, ServerOptimizer
from sdfeel.deploy.facts import facts
from sdfeel.deploy.model.files import read_notes
from sdfeel.deploy.model.rows import rows_of
from sdfeel.deploy.model.vectors import NotFinite, Vector, VectorWriter
from sdfeel.deploy.node import Node
from sdfeel.deploy.waiting import offload
from sdfeel.errors import InputError

__all__ = ["ServerStep", "trained_values"]

NO_PERIOD: Any = None  # no optimizer of the table asks who took part


def trained_values(path: Path, size: int) -> int:
    """Return how many values of the first model are trained: the first ones, before buffers."""
    notes = read_notes(path)
    if "trained" not in notes and "arrays" in notes:
        remedy = "does not say how many of its values are trained: `sdfeel provision model` again"
        raise InputError("model.initial", str(path), remedy)
    try:
        count = int(notes.get("trained", size))
    except ValueError:
        count = 0
    if not 0 < count <= size:
        remedy = f"says that {notes['trained']} of its {size} values are trained"
        raise InputError("model.initial", str(path), remedy)
    return count


@dataclass
class ServerStep:
    """The server optimizer of one edge, and its rows by the names that they have in a checkpoint.

    trained   values of the model that the optimizer moves; the others stay as the clients' mean
    """

    optimizer: ServerOptimizer | None
    trained: int
    folder: Path
    rows: dict[str, Vector] = field(default_factory=dict)

    @classmethod
    def of(cls, node: Node, kept: Mapping[str, Vector]) -> ServerStep:
        """Make that of an edge which goes on from the rows of its checkpoint, if it has them."""
        optimizer = node.deployment.server_optimizer
        if optimizer is None:
            return cls(None, node.size, node.folder)
        path = node.deployment.path(node.deployment.model.initial)
        step = cls.with_rows(optimizer, trained_values(path, node.size), node.folder, kept)
        methods = sorted(name for name in kept if name.partition(".")[0] in SERVER_OPTIMIZERS)
        if methods and any(row is not kept.get(name) for name, row in step.rows.items()):
            node.tell(facts.RowsBegunAnew(method=optimizer.name, found=methods))
        return step

    @classmethod
    def with_rows(
        cls, optimizer: ServerOptimizer, trained: int, folder: Path, kept: Mapping[str, Vector]
    ) -> ServerStep:
        """Make a step with the rows that were `kept`, or new ones if they are of another kind."""
        return cls(optimizer, trained, folder, rows_of(optimizer, kept, trained, folder))

    async def take(self, before: Vector, after: Vector) -> Vector:
        """Return the server's new model; what the optimizer remembers moves with it.

        Args:
            before: the model that the clients began with.
            after: their mean.

        Raises:
            NotFinite: nothing has changed.
        """
        optimizer = self.optimizer
        if optimizer is None:
            return after
        model, *rows = await offload(after.is_large, lambda: self._moved(before, after, optimizer))
        self.rows = dict(zip(self.rows, rows, strict=True))
        return model

    def _moved(self, before: Vector, after: Vector, optimizer: ServerOptimizer) -> Sequence[Vector]:
        """The new model and rows. If the disk is full, in memory: they are few."""
        try:
            return self._write(before, after, optimizer, in_memory=False)
        except OSError:
            return self._write(before, after, optimizer, in_memory=True)

    def _write(
        self, before: Vector, after: Vector, optimizer: ServerOptimizer, in_memory: bool
    ) -> Sequence[Vector]:
        writers = [
            VectorWriter(size, self.folder, in_memory)
            for size in (after.size, *(row.size for row in self.rows.values()))
        ]
        for start, stop in after.spans():
            end = max(start, min(stop, self.trained))
            here = {name: row.read(start, end).copy() for name, row in self.rows.items()}
            rows_of_rule = {name.partition(".")[2]: row for name, row in here.items()}
            blocks = before.read(start, end), after.read(start, end)
            with np.errstate(all="ignore"):
                moved = optimizer.take(*blocks, rows_of_rule, NO_PERIOD)
            rest = after.read(end, stop)
            parts = [np.concatenate([moved.astype("<f4", copy=False), rest]), *here.values()]
            if not all(np.isfinite(part).all() for part in parts):
                raise NotFinite
            for writer, part in zip(writers, parts, strict=True):
                writer.write(part.tobytes())
        return [writer.finish() for writer in writers]
