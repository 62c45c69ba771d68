"""What the clients of an edge hold of its model, and how they come nearer to it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from sdfeel.algorithm.methods.codecs import Draw
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.waiting import offload
from sdfeel.deploy.wire.packing import Packed, nearer, packing_of

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
        self._packing = packing_of(topology.deployment.codecs.down)
        self._seed = topology.deployment.seed
        self._topology, self._edge = topology, edge
        self._folder = folder

    async def next(self, k: int, model: Vector) -> Vector:
        """What clients hold after iteration k: nearer to the edge's model than before, or equal."""
        before, self.held, self.change = self.held, model, None
        self._source = model
        packing = self._packing
        if packing is not None and before is not None:
            number = np.array([self._topology.at(0).edges.index(self._edge)])
            draw = partial(Draw, self._seed, number, k, STREAM)
            message = await offload(
                model.is_large, lambda: nearer(packing, model, before, draw, self._folder)
            )
            if message is not None:  # else the whole model is given
                self.held, self.change = message
        return self.held

    @property
    def last(self) -> tuple[Vector, Vector]:
        """The model that was given last, and what clients hold of it."""
        assert self._source is not None and self.held is not None  # noqa: S101, PT018 - see `next`
        return self._source, self.held
