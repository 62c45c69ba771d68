"""How many iterations a candidate will need, from one pilot run and what was measured along it.

The pilot averages everything at every iteration, so its models never deviate. Another schedule
crosses the same losses more slowly, because its mean gradient is off by the clients' deviation:
Lemma "one-step" loses L^2 E of every ||grad F||^2. With E from `sdfeel.theory.drift`,

    iterations over a stretch of loss = those of the pilot x (1 + b / (1 - f b)) / g,
    b = s g eta sqrt(kappa_in^2 S_in + kappa_between^2 S_between + q^2 O) / ||grad F||,

and none suffice where f b >= 1: there the wrong part of the gradient balances the right one, and
the schedule has reached its floor. kappa_in and kappa_between are measured along the pilot's path,
S are the schedule's squared ages. ||grad F|| is what the pilot descends by: eta ||grad F||^2 =
-dF/dk. The norm of the gradient itself will not do: on a network most of it swings to and fro
between steep walls, where it lowers nothing, and grows while the descent slows down.

g is how many times as far as the pilot's an iteration gets (`Candidate.gain`): 1, but for momentum
that begins anew in every period (with 0.9 and tau1 = 20 it is 6.0), and for clusters that make more
iterations than the slowest: the iterations of a pace without rounds are those of the slowest.

Codecs: what a message leaves owed is a deviation too. O is the sum over the ways of (period x what
an iteration's change leaves owed)^2, measured by sending the pilot's own gradients (`owed`).
Correction: it takes the drift out, once it has learned it (`unlearned`), but for a part l that
noise and its age leave: S becomes S (l^2 + (1 - l^2) unlearned).

Fitted to the runs made so far: the sensitivity s (how much of a deviation turns into a wrong
gradient: a curvature), the rate a at which drift saturates (decay = eta a in the ages), f, l and q.
One kind of run after the other: plain ones give s, a and f; corrected ones l; coded ones q.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from sdfeel.planner.candidate import Candidate
from sdfeel.planner.pilot import LEVELS, Levels, PilotPath
from sdfeel.planner.price import Amount, Array, LossCurve
from sdfeel.theory.drift import ages

__all__ = ["Numbers", "Predictor", "calibrate", "unlearned"]

FOREVER = 10**9
LEARNED = 1e-2  # of a drift that is left: the rest does not count
# What is tried for f, l and q.
STOPS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5)
LEFT = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)
CODING = (0.0, *np.geomspace(0.03, 30.0, 25))
# Short runs seldom show where they will stop: between fits as good as each other the floor is
# where f is nearest to this, and what is owed counts as it was measured.
USUAL_STOP = 0.1
PULL = 0.02
# A level that a run has reached and the prediction says it never will is off by so much in log K.
NEVER = 3.0


@dataclass(frozen=True)
class Numbers:
    """What is fitted: s, a, f, l and q above, and the fit's mean error in log K."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    sensitivity: Amount = 0.0
    saturation: Amount = 0.0
    stop: Amount = 0.0
    left: Amount = 0.0
    coding: Amount = 1.0
    error: Amount = 0.0


class _Stretches:
    """Between two levels of loss and the next: how far off a candidate's gradients are there."""

    def __init__(self, path: PilotPath, levels: Levels) -> None:
        self.path, self.levels = path, levels
        self.inside, self.between = path.along(levels)
        self._owed: dict[str, Array] = {}

    def off(self, row: Candidate, horizon: int, numbers: Numbers) -> Array:
        """How far off (b / s) on every stretch, in a run of `horizon` iterations."""
        lr = self.path.lr * row.gain
        decay = min(0.9, lr * numbers.saturation)
        age = ages(row.tau1, row.tau2, row.eigenvalues, decay=decay, horizon=max(1, horizon))
        inside, between = 1.0, 1.0
        if row.correction is not None:
            left = numbers.left**2
            inside, between = (left + (1 - left) * part for part in unlearned(row, horizon))
        drift = age.inside * inside * self.inside**2 + age.between * between * self.between**2
        return np.asarray(lr * np.sqrt(drift + numbers.coding**2 * self.coded(row)))

    def coded(self, row: Candidate) -> Array:
        """O / ||grad F||^2: messages up and down carry tau1 iterations, those between a round's."""
        total = np.zeros_like(self.inside)
        for name in row.sent:
            period = row.tau1 * (row.tau2 if name.endswith(" between") else 1)
            total += (period * self._relative(name)) ** 2
        return total

    def _relative(self, key: str) -> Array:
        if key not in self._owed:
            measured = [point.owed.get(key, 0.0) for point in self.path.points]
            self._owed[key] = self.path.relative(measured, self.levels)
        return self._owed[key]


def unlearned(row: Candidate, horizon: int) -> tuple[float, float]:
    """Parts of the squared drift, inside and between, that a correction has not learned yet.

    z knows a client's drift after one upload period. With x the disagreement at an exchange and e
    the drift that y lacks, both over the drift of a round, an eigendirection of the averager with
    eigenvalue lambda has x <- lambda (x + e), e <- e - gamma (1 - lambda) (x + e).
    """
    correction = row.correction
    inside = between = 1.0
    if correction is None:
        return inside, between
    if correction.clients:
        periods = horizon / row.tau1
        forgotten = 1 / row.tau2 if correction.name == "mtgc" else 0.0
        inside = min(1.0, max(1 / max(periods, 1.0), forgotten))
    if correction.servers and len(row.eigenvalues):
        rounds = max(1, min(horizon // (row.tau1 * row.tau2), 500))
        mixed, lacking, total = np.zeros_like(row.eigenvalues), np.ones_like(row.eigenvalues), 0.0
        for _ in range(rounds):
            before = mixed + lacking
            total += float(np.mean((before * (1 - row.eigenvalues)) ** 2))
            if float(np.abs(before).max()) < LEARNED:
                break
            mixed = row.eigenvalues * before
            lacking = lacking - row.gamma * (1 - row.eigenvalues) * before
        between = min(1.0, total / rounds)
    return inside, between


def _needed_for(pilot: Array, wrong: Array, stop: float, gains: Array) -> Array:
    """Iterations at every level, with b = `wrong` on the stretches (last axis); or infinity.

    gains  g of every candidate: the axis before the last
    """
    room = 1 - stop * wrong
    open_ = room > 1e-9
    factor = np.where(open_, 1 + wrong / np.where(open_, room, 1.0), np.inf)
    made = pilot[0] + np.cumsum(np.diff(pilot) * factor / gains[:, None], axis=-1)
    start = np.full((*made.shape[:-1], 1), pilot[0])
    return np.concatenate([start, made], axis=-1)


@dataclass(frozen=True)
class Predictor:
    """The model above with its fitted numbers."""

    path: PilotPath
    numbers: Numbers

    def needed(self, rows: Sequence[Candidate], *, beyond: bool = False) -> Levels:
        """Losses, and the iterations that each candidate needs to reach them (one row each).

        beyond  also losses that the pilot has not reached, by its continuation
        """
        levels = self.path.continued if beyond else self.path.levels
        losses, pilot = levels
        stretches = _Stretches(self.path, levels)
        gains = np.array([row.gain for row in rows])
        needed = np.repeat(pilot[None], len(rows), axis=0)
        for _ in range(3):  # how old a drift gets depends on how long the run is: a fixed point
            horizons = np.minimum(np.ceil(needed[:, -1]), FOREVER).astype(int)
            off = [
                stretches.off(row, int(horizon), self.numbers)
                for row, horizon in zip(rows, horizons, strict=True)
            ]
            wrong = self.numbers.sensitivity * np.array(off).reshape(len(rows), len(pilot) - 1)
            needed = _needed_for(pilot, wrong, self.numbers.stop, gains)
        return losses, needed

    def curves(self, rows: Sequence[Candidate], *, beyond: bool = False) -> list[LossCurve]:
        """The curve of each candidate over time, as far as it ever gets."""
        losses, needed = self.needed(rows, beyond=beyond)
        curves = []
        for row, iterations in zip(rows, needed, strict=True):
            there = np.isfinite(iterations)
            seconds = row.price.seconds_of(iterations[there])
            curves.append(LossCurve(iterations[there], seconds, losses[there]))
        return curves


def calibrate(path: PilotPath, runs: Sequence[Candidate]) -> Predictor:
    """Fit the numbers to candidates that were trained, by log iterations at common loss levels.

    A level that a run has not reached yet counts only if the prediction says it should have. The
    pilot's first half is left out: there a network may train faster with deviation than without
    (at the plateau of its start), which the model cannot say.
    """
    stretches = _Stretches(path, path.levels)
    plain = _Sample(stretches, [run for run in runs if run.is_plain])
    numbers = plain.fit_drift()
    corrected = [run for run in runs if run.correction is not None]
    alone = [run for run in corrected if not run.sent] or corrected
    if alone:
        tried = (replace(numbers, left=left) for left in LEFT)
        numbers = _Sample(stretches, alone).best(tried)
    coded = [run for run in runs if run.sent]
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

    stretches: _Stretches
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
        predicted = np.maximum(_needed_for(pilot, wrong, stop, self.gains)[..., self.rows], 1.0)
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
