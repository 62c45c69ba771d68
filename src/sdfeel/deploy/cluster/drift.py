"""What an edge keeps of a correction: y, and what its clients have to learn of their last period.

The clients' rows z live at the clients. Their weighted sum over a cluster is 0 only if every client
has learned of each period that its model counted in, and of no other. So both ends say where they
are. An edge tells with each task the last work of this client that counted, and a client tells with
each upload the last that it has learned of. If the two differ (a client was started again, was cut
off before it was told, or an edge went back), the edge begins a new epoch: all its clients begin z
at 0 again, which costs them what they have learned and moves no mean.

y follows every change that links make to the model, also late ones, so its weighted sum over the
edges stays 0. An edge that has lost its disk begins y at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sdfeel.algorithm.events import Event
from sdfeel.algorithm.methods.corrections import Correction
from sdfeel.deploy.cluster.averaging import Upload
from sdfeel.deploy.cluster.server_step import trained_values
from sdfeel.deploy.facts import facts
from sdfeel.deploy.model.rows import constant
from sdfeel.deploy.model.store import EdgeCheckpoint
from sdfeel.deploy.model.vectors import BLOCK, Vector, VectorWriter
from sdfeel.deploy.node import Node
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.waiting import offload
from sdfeel.deploy.wire import frames

__all__ = ["Drift"]

NOTHING: Any = ()  # of an event, that no correction asks for


@dataclass
class Drift:
    """The correction of one edge.

    y        the edge's row, of trained values only; None where clients alone are corrected
    move     of the last period with clients: their mean minus the model they began with
    period   that period
    epoch    number of the clients' rows
    counted  by client: the last period whose work counted in this epoch, and the period in which
    """

    correction: Correction
    topology: Topology
    trained: int
    folder: Path
    tell: Callable[[facts.Fact], None]
    y: Vector | None
    move: Vector | None = None
    period: int = 0
    epoch: int = 0
    counted: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, node: Node, checkpoint: EdgeCheckpoint | None) -> Drift | None:
        """Make that of an edge which goes on from its checkpoint; None without a correction."""
        correction = node.topology.correction
        if correction is None:
            return None
        path = node.deployment.path(node.deployment.model.initial)
        trained = trained_values(path, node.size)
        rows = checkpoint.rows if checkpoint else {}
        notes = checkpoint.pace.get("correction", {}) if checkpoint else {}
        y = rows.get(f"{correction.name}.y")
        if y is None or y.size != trained:
            y, notes = constant(trained, 0.0, node.folder), {}
        return cls(
            correction,
            node.topology,
            trained,
            node.folder,
            node.tell,
            y if correction.servers else None,
            rows.get(f"{correction.name}.move"),
            int(notes.get("period", 0)),
            int(notes.get("epoch", 0)),
            {name: (int(q), int(p)) for name, (q, p) in notes.get("counted", {}).items()},
        )

    # What is saved.

    @property
    def rows(self) -> dict[str, Vector]:
        """For a checkpoint."""
        named = {"y": self.y, "move": self.move if self.correction.clients else None}
        return {f"{self.correction.name}.{n}": row for n, row in named.items() if row is not None}

    @property
    def notes(self) -> dict[str, Any]:
        """For a checkpoint, as JSON has it."""
        counted = {name: list(both) for name, both in self.counted.items()}
        return {"period": self.period, "epoch": self.epoch, "counted": counted}

    # What clients are told.

    def filled(self, task: v1.Task, client: str) -> v1.Task:
        """The task of one client."""
        own = v1.Task()
        own.CopyFrom(task)
        own.epoch, own.counted = self.epoch, self.counted.get(client, (0, 0))[0]
        return own

    def beside(self, task: v1.Task, client: str) -> list[tuple[v1.FromEdge, Vector]]:
        """The rows that a client gets before the model of its task."""
        rows = {} if self.y is None else {"y": self.y}
        was_counted = self.counted.get(client, (0, 0))[1] == self.period > 0
        if self.correction.clients and was_counted and self.move is not None:
            rows["move"] = self.move
        return [
            (v1.FromEdge(row=v1.Row(name=name, model=frames.header(row, task.period))), row)
            for name, row in rows.items()
        ]

    # What happens in a period.

    async def averaged(
        self,
        begun: Vector,
        mean: Vector,
        period: int,
        answers: Mapping[str, int],
        uploads: Mapping[str, Upload],
    ) -> None:
        """Note the mean of a period; `answers` are the clients in it, with whose period's work."""
        if not self.correction.clients:
            return
        large = mean.is_large
        self.move = await offload(large, lambda: self._difference(begun, mean))
        self.period = period
        told = {name: (uploads[name].epoch, uploads[name].learned) for name in answers}
        known = {name: (self.epoch, self.counted.get(name, (0, 0))[0]) for name in answers}
        if told != known:
            differing = [name for name in answers if told[name] != known[name]]
            self.tell(facts.CorrectionBegunAnew(period=period, clients=differing))
            self.epoch, self.counted = self.epoch + 1, {}
            return
        self.counted |= {name: (work, period) for name, work in answers.items()}

    async def mixed(self, before: Vector, after: Vector, period: int) -> None:
        """Links have moved the model in this period: y follows."""
        y = self.y
        if y is not None and before.sha256 != after.sha256:
            self.y = await offload(after.is_large, lambda: self._followed(y, before, after, period))

    def _followed(self, y: Vector, before: Vector, after: Vector, period: int) -> Vector:
        algorithm, tau2 = self.topology.algorithm, self.topology.tau2
        number = -(-period // tau2)  # of the round, from 1
        event = Event(
            number=number - 1,
            k=number * tau2 * self.topology.tau1,
            at=0.0,
            ends=0.0,
            groups=NOTHING,
            mixing=algorithm.averager,
            begun=NOTHING,
            spans={},
            waited=NOTHING,
            bytes={},
            round=number - 1,
        )
        writer = _writer(self.trained, self.folder)
        for start, stop in y.spans():
            rows = {"y": y.read(start, stop)[None].copy(), "z": np.zeros((0, stop - start), "f4")}
            both = before.read(start, stop)[None], after.read(start, stop)[None]
            self.correction.ended(*both, rows, event, algorithm)
            writer.write(rows["y"].astype("<f4", copy=False).tobytes())
        return writer.finish()

    def _difference(self, begun: Vector, mean: Vector) -> Vector:
        writer = _writer(self.trained, self.folder)
        for start in range(0, self.trained, BLOCK):
            stop = min(start + BLOCK, self.trained)
            writer.write((mean.read(start, stop) - begun.read(start, stop)).tobytes())
        return writer.finish()


def _writer(size: int, folder: Path) -> VectorWriter:
    """In memory where the disk is full: an edge has two rows."""
    try:
        return VectorWriter(size, folder)
    except OSError:
        return VectorWriter(size, in_memory=True)
