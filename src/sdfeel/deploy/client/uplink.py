"""What a client sends of its model: as it is, or how it differs from the one that it was given."""

from __future__ import annotations

import numpy as np

from sdfeel.algorithm.methods.codecs import Draw
from sdfeel.algorithm.trainer import Model
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.vectors import Block, Vector, as_vector
from sdfeel.deploy.wire.packing import Load, Packed, pack, packing_of

__all__ = ["Uplink"]


class Uplink:
    """Of one client.

    With error feedback, what has not arrived of a change is added to the next one. It is here and
    nowhere else: a client that is started again owes nothing. A model that was late or refused did
    not arrive at all, and what was owed before it still is; so it is if the word that it was
    accepted is lost.
    """

    def __init__(self, deployment: Deployment, client: str) -> None:
        self._packing = packing_of(deployment.codecs.up)
        self._seed, self._has_correction = deployment.seed, deployment.correction is not None
        self._number = np.array([[c.name for c in deployment.clients].index(client)])
        self._owed: Block | None = None
        self._next: tuple[int, Block] | None = None  # what is owed once a period is accepted
        self.moved: Block | None = None  # by the last message, as its edge reads it

    def load(self, period: int, k: int, given: Vector, trained: Model) -> Load:
        """The message of a period, whose last iteration is k."""
        model = np.ascontiguousarray(trained, dtype="<f4").reshape(-1)
        self.moved = None
        if self._packing is None or model.size != given.size:  # which the edge refuses by its size
            if self._has_correction and model.size == given.size:
                self.moved = model - given.array()
            return as_vector(model)
        packed = Packed(self._packing, model.size, given.sha256, in_memory=True)
        with np.errstate(all="ignore"):  # who has diverged sends what its edge refuses
            change = model - given.array()
            if self._owed is not None:
                change += self._owed
            draw = Draw(self._seed, self._number, k)
            parts = pack(self._packing, lambda start, stop: change[start:stop], packed, draw)
            both = list(parts)
        if self._packing.remembers:
            self._next = (period, np.concatenate([owed - arrived for owed, arrived in both]))
        if self._has_correction:
            start = given.array()
            self.moved = (start + np.concatenate([arrived for _, arrived in both])) - start
        return packed

    def accepted(self, period: int) -> None:
        """Its edge says so."""
        if self._next is not None and self._next[0] == period:
            self._owed, self._next = self._next[1], None
