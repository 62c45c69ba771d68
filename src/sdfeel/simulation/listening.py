"""Who looks at a run: those who listen, and who keeps it; and what they are told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sdfeel.records.checkpoints import Checkpoint, Row

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    seconds       simulated; elapsed: real seconds since this start
    client_steps  done since this start
    fraction      of the whole run; resumed: what was done before this start
    row           the newest evaluation
    """

    iteration: int
    iterations: int
    seconds: float
    client_steps: int
    elapsed: float
    fraction: float
    row: Row | None
    resumed: float = 0.0

    @property
    def client_steps_per_second(self) -> float:
        return self.client_steps / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def left(self) -> float:
        """Real seconds to the end, at the pace since this start; not a number at its first step."""
        made = self.fraction - self.resumed
        return self.elapsed * (1 - self.fraction) / made if made > 0 else math.nan


class Listener:
    """A listener that does not listen. wants_end: whether it asks for the end of the run."""

    wants_end = False

    def on_row(self, rows: list[Row], mean: Tensor, servers: Tensor) -> None:
        """Hear of an evaluation of these models."""

    def on_period(self, progress: Progress) -> None:
        """Hear that upload periods have ended."""


class Keeper(Protocol):
    """Decides when to stop or to save, and where to: the folder of a run.

    keeps   whether `save` keeps anything: a checkpoint copies all models
    rescue  what is left of a run that cannot go on
    """

    keeps: bool
    rescue: str

    def stop(self) -> bool:
        """Return whether the run should end now, after a last save."""
        return False

    def due(self) -> bool:
        """Return whether it is time for a checkpoint."""
        return False

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint."""

    def saw(self, iteration: int, servers: Tensor, numbers: Mapping[str, Sequence[float]]) -> None:
        """The servers' models at an evaluation, and their numbers by name."""


class NoKeeper(Keeper):
    """Runs to the end and saves nothing."""

    keeps = False
    rescue = ""

    def save(self, checkpoint: Checkpoint) -> None:
        pass

    def saw(self, iteration: int, servers: Tensor, numbers: Mapping[str, Sequence[float]]) -> None:
        pass
