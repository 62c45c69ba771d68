"""The trainer: here is a model, give me back yours. The same for a simulation and a deployment."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Model", "Trainer"]

Model = NDArray[np.float32]


class Trainer(Protocol):
    """What one client does between two uploads, on data that only it sees."""

    @property
    def samples(self) -> int:
        """|S_i|."""

    @property
    def size(self) -> int:
        """Number of values of the model."""

    def train(self, model: Model, first: int, steps: int) -> Model:
        """Local updates k = first, ..., first + steps - 1 of eq. (2), from `model`."""
