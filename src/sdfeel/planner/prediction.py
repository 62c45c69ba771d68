"""How many iterations a schedule will need, from one pilot run and the split of kappa.

The pilot averages everything at every iteration, so its models never deviate. Another schedule
crosses the same losses more slowly, because its mean gradient is off by the clients' deviation:
Lemma "one-step" loses L^2 E of every ||grad F||^2. With E from `sdfeel.theory.drift`,

    iterations over a stretch of loss = those of the pilot x (1 + b),
    b = s eta sqrt(kappa_in^2 S_in + kappa_between^2 S_between) / ||grad F||,

where kappa_in and kappa_between are measured along the pilot's path, S are the schedule's squared
ages, and two numbers are fitted to a few probe runs: the sensitivity s (how much of a deviation
turns into a wrong gradient: a curvature) and the rate a at which drift saturates (decay = eta a in
the ages). ||grad F|| is what the pilot descends by: eta ||grad F||^2 = -dF/dk. The norm of the
gradient itself will not do: on a network most of it swings to and fro between steep walls, where it
lowers nothing, and grows while the descent slows down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdfeel.planner.candidates import Candidate
from sdfeel.theory.drift import ages

__all__ = ["LossCurve", "Path", "PathPoint", "Predictor", "calibrate"]

Array = NDArray[np.float64]
Levels = tuple[Array, Array]
LEVELS = 40
# A budget may allow more iterations than the pilot made: it is continued up to so many times.
BEYOND = 1000.0
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
    """Measured at one model of the pilot's path: kappa_in and kappa_between."""

    loss: float
    inside: float
    between: float


@dataclass(frozen=True)
class Path:
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
        half, last = (loss / max(losses[0] - loss, 1e-9) for loss in self.halfway)
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
        losses, iterations = ((part[1:] + part[:-1]) / 2 for part in levels)
        points = sorted(self.points, key=lambda point: point.loss)
        at = [point.loss for point in points]
        gradient = self.descent(iterations)
        inside, between = (
            _continued(losses, at, values, self.halfway) / gradient
            for values in ([p.inside for p in points], [p.between for p in points])
        )
        return inside, between


def _continued(
    losses: Array, at: list[float], kappa: list[float], last: tuple[float, float]
) -> Array:
    """Kappa at these losses; below the pilot's by the power of the loss with which it fell last.

    The power lies between 0, where clients go on disagreeing, and 1/2, where all can be fitted:
    a smooth loss above 0 has ||grad F_i||^2 <= 2 L F_i.
    """
    half, end = np.interp(last, at, kappa)
    power = np.log(half / end) / np.log(last[0] / last[1]) if half > end > 0 else 0.0
    below = np.minimum(losses / at[0], 1.0) ** min(float(power), 0.5)
    return np.asarray(np.interp(losses, at, kappa) * below)


@dataclass(frozen=True)
class Predictor:
    """The model above with its two fitted numbers; `error` is the fit's mean error in log K."""

    path: Path
    sensitivity: float
    saturation: float
    error: float = float("nan")

    def needed(self, chosen: Sequence[Candidate], *, beyond: bool = False) -> Levels:
        """Losses, and the iterations that each candidate needs to reach them (one row each).

        beyond  also losses that the pilot has not reached, by its continuation
        """
        levels = self.path.continued if beyond else self.path.levels
        losses, pilot = levels
        needed = np.repeat(pilot[None], len(chosen), axis=0)
        for _ in range(3):  # how old a drift gets depends on how long the run is: a fixed point
            horizons = np.ceil(needed[:, -1]).astype(int)
            added = drag(self.path, chosen, self.saturation, horizons, levels)
            needed = pilot + self.sensitivity * added
        return losses, needed

    def iterations(self, chosen: Sequence[Candidate], target: float) -> Array:
        """Predicted iterations to the target; infinite below what the pilot reached."""
        losses, needed = self.needed(chosen)
        if target < losses[-1]:
            return np.full(len(chosen), np.inf)
        return np.array([np.interp(-target, -losses, row) for row in needed])

    def seconds(self, chosen: Sequence[Candidate], target: float) -> Array:
        """Predicted simulated seconds to the target, at the end of an upload period."""
        needed = self.iterations(chosen, target)
        if not np.isfinite(needed).all():
            return needed
        uploads = [np.ceil(k / one.tau1) for k, one in zip(needed, chosen, strict=True)]
        ends = [int(n) * one.tau1 for n, one in zip(uploads, chosen, strict=True)]
        return np.array([float(one.cost.seconds(k)) for k, one in zip(ends, chosen, strict=True)])

    def losses_within(self, chosen: Sequence[Candidate], seconds: float) -> Array:
        """Predicted loss after a time."""
        losses, needed = self.needed(chosen, beyond=True)
        made = [one.cost.iterations_within(seconds) for one in chosen]
        return np.array([np.interp(k, row, losses) for k, row in zip(made, needed, strict=True)])


def drag(
    path: Path,
    chosen: Sequence[Candidate],
    saturation: float,
    horizons: Iterable[int],
    levels: Levels,
) -> Array:
    """Iterations that deviation adds up to each loss level, per unit of sensitivity.

    `horizons` are the lengths of the candidates' runs.
    """
    losses, pilot = levels
    inside, between = path.along(levels)
    decay = min(0.9, path.lr * saturation)
    added = np.zeros((len(chosen), len(losses)))
    for row, (one, horizon) in enumerate(zip(chosen, horizons, strict=True)):
        age = ages(one.tau1, one.tau2, one.eigenvalues, decay=decay, horizon=max(1, horizon))
        off = np.sqrt(age.inside * inside**2 + age.between * between**2)
        added[row, 1:] = np.cumsum(np.diff(pilot) * path.lr * off)
    return added


def calibrate(path: Path, runs: Sequence[tuple[Candidate, LossCurve]]) -> Predictor:
    """Fit the two numbers to the runs, by the logarithm of iterations at common loss levels.

    A level that a run has not reached yet counts only if the prediction says it should have. The
    pilot's first half is left out: there a network may train faster with deviation than without
    (at the plateau of its start), which the model cannot say.
    """
    losses, pilot = path.levels
    rows = np.arange(len(losses) // 2, len(losses), max(1, len(losses) // LEVELS))
    chosen = [one for one, _ in runs]
    seen = np.array([[curve.iterations_to(x) for x in losses[rows]] for _, curve in runs])
    last = np.array([[float(curve.iterations[-1])] for _, curve in runs])
    lengths = [int(curve.iterations[-1]) for _, curve in runs]
    best = Predictor(path, 0.0, 0.0, float("inf"))
    scale = _scale(path)
    for saturation in (0.0, *np.geomspace(0.003 * scale, 0.5 / path.lr, 20)):
        added = drag(path, chosen, float(saturation), lengths, path.levels)[:, rows]
        for sensitivity in np.geomspace(1e-4, 100.0, 100) * scale:
            error = _misfit(np.maximum(pilot[rows] + sensitivity * added, 1.0), seen, last)
            if error < best.error:
                best = Predictor(path, float(sensitivity), float(saturation), error)
    return best


def _misfit(predicted: Array, seen: Array, last: Array) -> float:
    """Mean over the runs of the mean |log| error; levels not reached count one-sidedly."""
    reached = np.isfinite(seen)
    actual = np.maximum(np.where(reached, seen, last), 1.0)
    off = np.log(predicted / actual)
    return float(np.mean(np.where(reached, np.abs(off), np.maximum(-off, 0.0))))


def _scale(path: Path) -> float:
    """A curvature of the right size: ||grad F||^2 / 2L is what a descent can still gain."""
    losses, iterations = path.levels
    steepest = float(path.descent(iterations[1:]).max(initial=0.0))
    return max(steepest**2 / (2 * (losses[0] - losses[-1])), 1e-9) if steepest > 0 else 1.0
