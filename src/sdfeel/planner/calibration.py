"""The prediction's numbers, fitted to the runs made so far.

One kind of run after the other: plain ones give the sensitivity, the saturation and the floor;
corrected ones what a correction leaves; coded ones how much of what is owed counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sdfeel.planner.candidate import Candidate
from sdfeel.planner.pilot import LEVELS, PilotPath
from sdfeel.planner.prediction import Numbers, Predictor, Stretches, needed_for
from sdfeel.planner.price import Array

__all__ = ["calibrate"]

STOPS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5)
LEFT = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)
CODING = (0.0, *np.geomspace(0.03, 30.0, 25))
# Short runs seldom show where they will stop: between fits as good as each other the floor is
# where f is nearest to this, and what is owed counts as it was measured.
USUAL_STOP = 0.1
PULL = 0.02
# A level that a run has reached and the prediction says it never will is off by so much in log K.
NEVER = 3.0


def calibrate(path: PilotPath, runs: Sequence[Candidate]) -> Predictor:
    """Fit the numbers to candidates that were trained, by log iterations at common loss levels.

    A level that a run has not reached yet counts only if the prediction says it should have. The
    pilot's first half is left out: there a network may train faster with deviation than without
    (at the plateau of its start), which the model cannot say.
    """
    stretches = Stretches(path, path.levels)
    plain = _Sample(stretches, [run for run in runs if run.is_plain])
    numbers = plain.fit_drift()
    corrected = [run for run in runs if run.correction is not None]
    alone = [run for run in corrected if not run.lossy] or corrected
    if alone:
        tried = (replace(numbers, left=left) for left in LEFT)
        numbers = _Sample(stretches, alone).best(tried)
    coded = [run for run in runs if run.lossy]
    if coded:
        tried = (replace(numbers, coding=float(coding)) for coding in CODING)
        numbers = _Sample(stretches, coded).best(tried, _far_from_measured)
    error = _Sample(stretches, runs).misfit(numbers)
    return Predictor(path, replace(numbers, error=error))


def _far_from_measured(numbers: Numbers) -> float:
    return PULL * abs(float(np.log(max(numbers.coding, 1e-2))))


@dataclass(frozen=True)
class _Sample:
    """Some runs at the levels that count."""

    stretches: Stretches
    runs: Sequence[Candidate]

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        count = len(self.stretches.levels[0])
        return np.arange(count // 2, count, max(1, count // LEVELS))

    @cached_property
    def seen(self) -> Array:
        losses = self.stretches.levels[0][self.rows]
        return np.array([[run.curve.iterations_to(x) for x in losses] for run in self.runs])

    @cached_property
    def gains(self) -> Array:
        return np.array([run.gain for run in self.runs])

    @cached_property
    def last(self) -> Array:
        return np.array([[float(run.curve.iterations[-1])] for run in self.runs])

    def off(self, numbers: Numbers) -> Array:
        lengths = [int(run.curve.iterations[-1]) for run in self.runs]
        pairs = zip(self.runs, lengths, strict=True)
        return np.array([self.stretches.off(run, length, numbers) for run, length in pairs])

    def misfit(self, numbers: Numbers) -> float:
        wrong = numbers.sensitivity * self.off(numbers)
        return float(self._errors(wrong[None], numbers.stop)[0])

    def best(
        self, tried: Iterable[Numbers], also: Callable[[Numbers], float] = lambda _: 0.0
    ) -> Numbers:
        return min(tried, key=lambda numbers: self.misfit(numbers) + also(numbers))

    def fit_drift(self) -> Numbers:
        """Sensitivity, saturation and floor: coarsely in all three, then the sensitivity finely."""
        path, scale = self.stretches.path, _scale(self.stretches.path)
        best, least = Numbers(), float("inf")
        tried = np.geomspace(1e-4, 100.0, 50) * scale
        for saturation in (0.0, *np.geomspace(0.003 * scale, 0.5 / path.lr, 20)):
            off = self.off(Numbers(saturation=float(saturation)))
            for stop in STOPS:
                errors = self._errors(tried[:, None, None] * off, stop)
                row = int(np.argmin(errors))
                total = float(errors[row]) + PULL * abs(stop - USUAL_STOP)
                if total < least:
                    least, best = total, Numbers(float(tried[row]), float(saturation), stop)
        finer = best.sensitivity * np.geomspace(0.8, 1.25, 9)
        errors = self._errors(finer[:, None, None] * self.off(best), best.stop)
        return replace(best, sensitivity=float(finer[int(np.argmin(errors))]))

    def _errors(self, wrong: Array, stop: float) -> Array:
        """For each b (first axis), the mean over the runs of the mean |log| error.

        Levels not reached count one-sidedly.
        """
        pilot = self.stretches.levels[1]
        predicted = np.maximum(needed_for(pilot, wrong, stop, self.gains)[..., self.rows], 1.0)
        there = np.isfinite(self.seen)
        actual = np.maximum(np.where(there, self.seen, self.last), 1.0)
        off = np.minimum(np.log(np.minimum(predicted, 1e300) / actual), NEVER)
        each = np.where(there, np.abs(off), np.maximum(-off, 0.0))
        return np.asarray(each.mean(axis=(1, 2)))


def _scale(path: PilotPath) -> float:
    """A curvature of the right size: ||grad F||^2 / 2L is what a descent can still gain."""
    losses, iterations = path.levels
    steepest = float(path.descent(iterations[1:]).max(initial=0.0))
    return max(steepest**2 / (2 * (losses[0] - losses[-1])), 1e-9) if steepest > 0 else 1.0
