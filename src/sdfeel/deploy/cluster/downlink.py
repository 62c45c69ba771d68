"""What the clients of an edge hold of its model, and how they come nearer to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sdfeel.algorithm.methods.codecs import Draw
from sdfeel.deploy.model.vectors import Block, Vector, VectorWriter
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.waiting import offload
from sdfeel.deploy.wire.packing import PACKINGS, Packed, pack

__all__ = ["Downlink"]

STREAM = 1  # of the draws on the way down, as in the simulator


class Downlink:
    """Of one edge. It is in memory only: after a restart everybody is given the whole model.

    held    what clients were given last, all the same
    change  how that differs from what they were given before; None: they need all of it
    """

    def __init__(self, topology: Topology, edge: str, folder: Path) -> None:
        self.held: Vector | None = None
        self._source: Vector | None = None
        self.change: Packed | None = None
        self._packing = PACKINGS.get(topology.deployment.codecs.down)
        self._seed, self._tau1 = topology.deployment.seed, topology.tau1
        self._topology, self._edge = topology, edge
        self._folder = folder

    async def next(self, period: int, model: Vector) -> Vector:
        """What clients hold in this period: nearer to the edge's model than before, or equal."""
        before, self.held, self.change = self.held, model, None
        self._source = model
        if self._packing is not None and before is not None:
            large = model.is_large
            await offload(large, lambda: self._come_nearer(period, before, model))
        return self.held

    @property
    def last(self) -> tuple[Vector, Vector]:
        """The model that was given last, and what clients hold of it."""
        assert self._source is not None and self.held is not None  # noqa: S101, PT018 - see `next`
        return self._source, self.held

    def _come_nearer(self, period: int, before: Vector, model: Vector) -> None:
        """If the disk is full, in memory: these are one model and one change, however many clients.

        A change that the codec cannot carry is none, and the whole model is given.
        """
        try:
            self._follow(period, before, model, in_memory=False)
        except OSError:
            self._follow(period, before, model, in_memory=True)

    def _follow(self, period: int, before: Vector, model: Vector, in_memory: bool) -> None:
        assert self._packing is not None  # noqa: S101 - the caller has asked
        packed = Packed(self._packing, model.size, before.sha256, self._folder, in_memory)
        writer = VectorWriter(model.size, self._folder, in_memory)
        number = np.array([self._topology.at(period).edges.index(self._edge)])
        draw = Draw(self._seed, number, (period - 1) * self._tau1, STREAM)

        def change(start: int, stop: int) -> Block:
            return model.read(start, stop) - before.read(start, stop)

        with np.errstate(over="ignore", invalid="ignore"):
            for (start, stop), (_, arrived) in zip(
                packed.spans(), pack(self._packing, change, packed, draw), strict=True
            ):
                values = before.read(start, stop) + arrived
                if not np.isfinite(values).all():
                    return
                writer.write(values.tobytes())
        self.held, self.change = writer.finish(), packed
