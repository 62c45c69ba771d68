"""What a run has shown, and the pilot's path: its losses and what was measured along them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEVELS", "Array", "Levels", "LossCurve", "PathPoint", "PilotPath"]

Array = NDArray[np.float64]
Levels = tuple[Array, Array]
LEVELS = 40
# A budget may allow more iterations than the pilot made: it is continued up to so many times.
BEYOND = 1000.0
# A loss of 0 (an accuracy of 1) is taken for this where its logarithm counts.
LEAST = 1e-12
# The slope of the loss at k is taken from k / SPAN to k SPAN: evaluations are noisy.
SPAN = 1.5


@dataclass(frozen=True)
class LossCurve:
    """What a run has shown so far; `losses` is what the target is about, lower is better."""

    iterations: NDArray[np.int64]
    seconds: Array
    losses: Array

    @property
    def best(self) -> float:
        return float(self.losses.min())

    @property
    def diverged(self) -> bool:
        """Whether it ended without a loss."""
        return not bool(np.isfinite(self.losses[-1]))

    def iterations_to(self, level: float) -> float:
        """Where the loss first reaches `level`, between two evaluations by a straight line."""
        return self._crossing(self.iterations.astype(float), level)

    def seconds_to(self, level: float) -> float:
        return self._crossing(self.seconds, level)

    def loss_at(self, seconds: float) -> float:
        """The lowest loss that was evaluated until then."""
        return float(self.losses[: max(1, int(np.sum(self.seconds <= seconds)))].min())

    def _crossing(self, axis: Array, level: float) -> float:
        below = np.flatnonzero(self.losses <= level)
        if not len(below):
            return float("inf")
        i = int(below[0])
        if i == 0:
            return float(axis[0])
        part = (self.losses[i - 1] - level) / (self.losses[i - 1] - self.losses[i])
        return float(axis[i - 1] + part * (axis[i] - axis[i - 1]))


@dataclass(frozen=True)
class PathPoint:
    """Measured at one model of the pilot's path: kappa_in and kappa_between.

    owed  by way and codec, what of an iteration's change the receivers lack (see `owed`)
    """

    loss: float
    inside: float
    between: float
    owed: Mapping[tuple[str, str], float] = field(default_factory=dict)


@dataclass(frozen=True)
class PilotPath:
    """The pilot's run: its curve, made monotone, and what was measured along it."""

    curve: LossCurve
    points: tuple[PathPoint, ...]
    lr: float

    @property
    def levels(self) -> Levels:
        """Losses from the start to the best, and the pilot's iterations at each."""
        falling = np.minimum.accumulate(self.curve.losses)
        new = np.concatenate([[True], falling[1:] < falling[:-1]])
        losses, iterations = falling[new], self.curve.iterations[new].astype(float)
        rows = np.unique(np.linspace(0, len(losses) - 1, 4 * LEVELS).astype(int))
        return losses[rows], iterations[rows]

    @property
    def halfway(self) -> tuple[float, float]:
        """The losses after half of the pilot's iterations and at its end: how it fell last."""
        losses, iterations = self.levels
        return float(np.interp(iterations[-1] / 2, iterations, losses)), float(losses[-1])

    @property
    def continued(self) -> Levels:
        """The levels, and where the pilot would have gone.

        The loss lies between its start F_0 and 0. Its odds F / (F_0 - F) are continued by the power
        of k with which they fell in the pilot's second half; far below F_0 this is a power law.
        """
        losses, iterations = self.levels
        end = iterations[-1]
        half, last = (max(loss, LEAST) / max(losses[0] - loss, 1e-9) for loss in self.halfway)
        power = max(np.log2(half / last), 1e-6)
        beyond = np.geomspace(end, BEYOND * end, LEVELS + 1)[1:]
        odds = last * (beyond / end) ** -power
        further = losses[0] * odds / (1 + odds)
        return np.concatenate([losses, further]), np.concatenate([iterations, beyond])

    def descent(self, iterations: Array) -> Array:
        """||grad F|| where the pilot had made so many iterations: eta ||grad F||^2 = -dF/dk."""
        losses, known = self.continued
        before, after = iterations / SPAN, np.minimum(iterations * SPAN, known[-1])
        fall = np.interp(before, known, losses) - np.interp(after, known, losses)
        return np.asarray(np.sqrt(fall / (after - before) / self.lr))

    def along(self, levels: Levels) -> tuple[Array, Array]:
        """kappa_in / ||grad F|| and kappa_between / ||grad F|| between two levels and the next."""
        inside = self.relative([point.inside for point in self.points], levels)
        between = self.relative([point.between for point in self.points], levels)
        return inside, between

    def relative(self, values: list[float], levels: Levels) -> Array:
        """What was measured at the points, over ||grad F||, between two levels and the next."""
        losses, iterations = ((part[1:] + part[:-1]) / 2 for part in levels)
        order = np.argsort([point.loss for point in self.points], kind="stable")
        at = [self.points[row].loss for row in order]
        kept = _continued(losses, at, [values[row] for row in order], self.halfway)
        return np.asarray(kept / self.descent(iterations))


def _continued(
    losses: Array, at: list[float], kappa: list[float], last: tuple[float, float]
) -> Array:
    """What was measured, at these losses; below the pilot's by the power with which it fell last.

    The power lies between 0, where clients go on disagreeing, and 1/2, where all can be fitted:
    a smooth loss above 0 has ||grad F_i||^2 <= 2 L F_i.
    """
    half, end = np.interp(last, at, kappa)
    falls = half > end > 0 and last[0] > last[1] > 0
    power = np.log(half / end) / np.log(last[0] / last[1]) if falls else 0.0
    below = np.minimum(losses / max(at[0], LEAST), 1.0) ** min(float(power), 0.5)
    return np.asarray(np.interp(losses, at, kappa) * below)
