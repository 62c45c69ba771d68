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

Fitted to runs by `sdfeel.planner.calibration`: the sensitivity s (how much of a deviation turns
into a wrong gradient: a curvature), the rate a at which drift saturates (decay = eta a in the
ages), f, l and q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sdfeel.planner.candidate import Candidate, codec_name
from sdfeel.planner.pilot import Levels, PilotPath
from sdfeel.planner.price import Array, LossCurve
from sdfeel.theory.drift import ages

__all__ = ["Numbers", "Predictor", "Stretches", "needed_for", "unlearned"]

FOREVER = 10**9
LEARNED = 1e-2  # of a drift that is left: the rest does not count


@dataclass(frozen=True)
class Numbers:
    """What is fitted: s, a, f, l and q above, and the fit's mean error in log K."""

    sensitivity: float = 0.0
    saturation: float = 0.0
    stop: float = 0.0
    left: float = 0.0
    coding: float = 1.0
    error: float = float("nan")


class Stretches:
    """Between two levels of loss and the next: how far off a candidate's gradients are there."""

    def __init__(self, path: PilotPath, levels: Levels) -> None:
        self.path, self.levels = path, levels
        self.inside, self.between = path.along(levels)
        self._owed: dict[tuple[str, str], Array] = {}

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
        for way, codec in row.lossy.items():
            period = row.tau1 * (row.tau2 if way == "between" else 1)
            total += (period * self._relative((way, codec_name(codec)))) ** 2
        return total

    def _relative(self, key: tuple[str, str]) -> Array:
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


def needed_for(pilot: Array, wrong: Array, stop: float, gains: Array) -> Array:
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
        stretches = Stretches(self.path, levels)
        gains = np.array([row.gain for row in rows])
        needed = np.repeat(pilot[None], len(rows), axis=0)
        for _ in range(3):  # how old a drift gets depends on how long the run is: a fixed point
            horizons = np.minimum(np.ceil(needed[:, -1]), FOREVER).astype(int)
            off = [
                stretches.off(row, int(horizon), self.numbers)
                for row, horizon in zip(rows, horizons, strict=True)
            ]
            wrong = self.numbers.sensitivity * np.array(off).reshape(len(rows), -1)
            needed = needed_for(pilot, wrong, self.numbers.stop, gains)
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
