"""The trainer: here is a model, give me back yours. The same for a simulation and a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Model = NDArray[np.float32]


class Trainer(Protocol):
    """A client's local work between two uploads, on data that only it sees.

    >>> class Idle:
    ...     samples, size = 10, 8
    ...     def train(self, model, first, steps):
    ...         return model
    >>> trainers = [Idle() for _ in range(6)]
    """

    @property
    def samples(self) -> int:
        """|S_i|."""

    @property
    def size(self) -> int:
        """Number of values of the model."""

    def train(self, model: Model, first: int, steps: int) -> Model:
        """Local updates k = first, ..., first + steps - 1 of eq. (2), from `model`."""


@runtime_checkable
class MeasuringTrainer(Trainer, Protocol):
    """A trainer that also reports what it measured."""

    @property
    def measures(self) -> Mapping[str, float]:
        """Return what the last `train` measured: `batch_loss`, `train_loss`, `train_accuracy`."""


@runtime_checkable
class RememberingTrainer(Trainer, Protocol):
    """A trainer that keeps something between two calls; a simulation puts it into checkpoints."""

    def remember(self) -> bytes:
        """Return all that the trainer keeps; empty bytes for nothing."""

    def recall(self, memory: bytes) -> None:
        """Go on from there."""


@runtime_checkable
class CorrectedTrainer(Trainer, Protocol):
    """A trainer whose gradients a correction of the deployment may shift."""

    @property
    def trained(self) -> int:
        """Return how many values of the model are trained: the first ones, before buffers."""

    def correct(self, rows: Mapping[str, Model]) -> None:
        """Take what the correction's `gradient` reads in the next `train`, by name of the row."""


@runtime_checkable
class BeginningTrainer(Trainer, Protocol):
    """A trainer that trains beside others: a simulation begins all of a period, then takes them."""

    def begin(self, model: Model, first: int, steps: int) -> None:
        """Begin what `train` with the same arguments waits for. The model is not changed."""

    def close(self) -> None:
        """Let go of processes; the run is over."""
