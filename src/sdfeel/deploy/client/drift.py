"""A client's part of a correction: its row z, and what its edge tells of the last period.

z is in memory only. A client that is started again begins it at 0, and its edge then has the whole
cluster do so: see `sdfeel.deploy.cluster.drift`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.events import Event, Group
from sdfeel.algorithm.methods.method import Period
from sdfeel.algorithm.trainer import CorrectedTrainer, Trainer
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.vectors import Block, Vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.wire import frames
from sdfeel.errors import InputError

__all__ = ["ClientDrift"]

Row = NDArray[np.float32]


@dataclass(frozen=True)
class _Moved:
    """What an upload moved by, as the edge reads it."""

    period: int
    by: Row


class ClientDrift:
    """Of one client.

    epoch, learned  told with every upload: the number of its row, and the last period that it has
                    learned of
    """

    def __init__(self, topology: Topology, server: int, trainer: CorrectedTrainer) -> None:
        correction = topology.correction
        assert correction is not None  # noqa: S101 - `of` has asked
        self.topology, self.correction, self.trainer = topology, correction, trainer
        self.epoch = self.learned = 0
        self._server = server
        self._seen = 0  # the last period of a task
        self._moved: _Moved | None = None
        self._rows: dict[str, tuple[int, Row]] = {}
        self._of_task: dict[str, tuple[int, Row]] = {}
        self._z = np.zeros(trainer.trained, dtype=np.float32)

    @classmethod
    def of(cls, deployment: Deployment, client: str, trainer: Trainer) -> ClientDrift | None:
        """Make that of a client; None without a correction."""
        if deployment.correction is None:
            return None
        if not isinstance(trainer, CorrectedTrainer):
            remedy = "needs a trainer with `correct` and `trained`, as the default one is"
            raise InputError("correction", type(trainer).__name__, remedy)
        topology = Topology(deployment)
        return cls(topology, topology.at(0).edges.index(deployment.client(client).edge), trainer)

    # What comes from the edge: hostile, as everything is.

    def open(self, row: v1.Row) -> frames.Incoming:
        """What reads a row. Raises Refused."""
        names = {"y": self.correction.servers, "move": self.correction.clients}
        if not names.get(row.name):
            raise Refused("row", f"no row {row.name[:20]!r} goes with {self.correction.name}")
        return frames.Incoming(row.model, self._z.size, self.topology.deployment.limits.magnitude)

    def take(self, row: v1.Row, values: Vector) -> None:
        self._rows[row.name] = (row.model.period, values.array())

    def expect(self, task: v1.Task) -> None:
        """Keep the rows that have come for the next `begin`: those of a later task may follow.

        Raises Refused if the task has come without what it needs.
        """
        rows, self._rows = self._rows, {}
        if self.correction.servers and rows.get("y", (0,))[0] != task.period:
            raise Refused("row", f"a task of period {task.period} without its y")
        self._of_task = rows

    # A period.

    def begin(self, task: v1.Task) -> None:
        """Learn what has become of the last upload, and give the trainer the rows of this task."""
        moved, self._moved = self._moved, None
        if task.epoch != self.epoch:
            self.epoch, self.learned, moved = task.epoch, 0, None
            self._z[:] = 0
        period, move = self._of_task.get("move", (0, self._z))
        is_of_this_task = period == task.period
        if moved is not None and moved.period == task.counted and is_of_this_task:
            rows = {"z": self._z[None]}
            self.correction.learn(moved.by[None], move, rows, self._period(moved.period))
            self.learned = task.counted
        self._end_rounds(task.period)
        y = self._of_task["y"][1] if self.correction.servers else np.zeros_like(self._z)
        common = np.zeros_like(self._z)
        rows = {"z": self._z[None], "y": y, "common": common}
        self.correction.prepare([rows], [self._period(task.period)], lambda *_: common)
        self.trainer.correct({"z": self._z, "common": common})

    def uploaded(self, period: int, by: Block) -> None:
        """What is sent moves by so much."""
        self._moved = _Moved(period, by[: self._z.size])

    def _end_rounds(self, period: int) -> None:
        """Rounds have ended since the last task: what a correction forgets then is forgotten."""
        tau2, seen = self.topology.tau2, self._seen
        self._seen = period
        if seen and (period - 1) // tau2 > (seen - 1) // tau2:
            still = np.zeros((1, 0), dtype=np.float32)
            k = (period - 1) // tau2 * tau2 * self.topology.tau1
            algorithm, number = self.topology.algorithm, (period - 1) // tau2 - 1
            none = np.zeros(0)
            event = Event(number, k, 0.0, 0.0, (), algorithm.averager, none, {}, none, {}, number)
            self.correction.ended(still, still, {"y": still, "z": self._z[None]}, event, algorithm)

    def _period(self, number: int) -> Period:
        """An upload period of the whole cluster. Who is absent is not known before it ends."""
        algorithm, tau1 = self.topology.algorithm, self.topology.tau1
        members = np.array(algorithm.network.clusters.members[self._server])
        last = np.full(len(members), number * tau1)
        shares = algorithm.network.shares.within[members]
        group = Group(
            self._server, self._server, number * tau1, members, last - tau1 + 1, last, shares
        )
        return Period(group, algorithm)
