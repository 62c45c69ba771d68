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

g is 1 but for rules that speed up in a period: how many times as far as the pilot's an iteration
gets (`Candidate.gain`); with momentum .9, begun anew in every period of 20, 6.0 times.

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

from sdfeel.planner.candidates import Candidate
from sdfeel.planner.methods import codec_name
from sdfeel.planner.pilot_path import Array, Levels, PilotPath
from sdfeel.theory.drift import ages

__all__ = ["Numbers", "Predictor", "Stretches", "iterations_to", "needed_for", "reached"]

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

    def off(self, one: Candidate, horizon: int, numbers: Numbers) -> Array:
        """How far off (b / s) on every stretch, in a run of `horizon` iterations."""
        lr = self.path.lr * one.gain
        decay = min(0.9, lr * numbers.saturation)
        age = ages(one.tau1, one.tau2, one.eigenvalues, decay=decay, horizon=max(1, horizon))
        inside, between = 1.0, 1.0
        if one.methods.correction is not None:
            left = numbers.left**2
            inside, between = (left + (1 - left) * part for part in unlearned(one, horizon))
        drift = age.inside * inside * self.inside**2 + age.between * between * self.between**2
        return np.asarray(lr * np.sqrt(drift + numbers.coding**2 * self.coded(one)))

    def coded(self, one: Candidate) -> Array:
        """O / ||grad F||^2: messages up and down carry tau1 iterations, those between a round's."""
        total = np.zeros_like(self.inside)
        for way, codec in one.methods.lossy.items():
            period = one.tau1 * (one.tau2 if way == "between" else 1)
            total += (period * self._relative((way, codec_name(codec)))) ** 2
        return total

    def _relative(self, key: tuple[str, str]) -> Array:
        if key not in self._owed:
            measured = [point.owed.get(key, 0.0) for point in self.path.points]
            self._owed[key] = self.path.relative(measured, self.levels)
        return self._owed[key]


def unlearned(one: Candidate, horizon: int) -> tuple[float, float]:
    """Parts of the squared drift, inside and between, that a correction has not learned yet.

    z knows a client's drift after one upload period. With x the disagreement at an exchange and e
    the drift that y lacks, both over the drift of a round, an eigendirection of the averager with
    eigenvalue lambda has x <- lambda (x + e), e <- e - gamma (1 - lambda) (x + e).
    """
    correction = one.methods.correction
    inside = between = 1.0
    if correction is None:
        return inside, between
    if correction.clients:
        periods = horizon / one.tau1
        forgotten = 1 / one.tau2 if correction.forgets else 0.0
        inside = min(1.0, max(1 / max(periods, 1.0), forgotten))
    if correction.servers and len(one.eigenvalues):
        rounds = max(1, min(horizon // (one.tau1 * one.tau2), 500))
        mixed, lacking, total = np.zeros_like(one.eigenvalues), np.ones_like(one.eigenvalues), 0.0
        for _ in range(rounds):
            before = mixed + lacking
            total += float(np.mean((before * (1 - one.eigenvalues)) ** 2))
            if float(np.abs(before).max()) < LEARNED:
                break
            mixed = one.eigenvalues * before
            lacking = lacking - one.gamma * (1 - one.eigenvalues) * before
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


def reached(needed: Array, losses: Array) -> tuple[Array, Array]:
    """The part of a candidate's curve that it ever gets to."""
    there = np.isfinite(needed)
    return needed[there], losses[there]


@dataclass(frozen=True)
class Predictor:
    """The model above with its fitted numbers."""

    path: PilotPath
    numbers: Numbers

    @property
    def error(self) -> float:
        return self.numbers.error

    def needed(self, chosen: Sequence[Candidate], *, beyond: bool = False) -> Levels:
        """Losses, and the iterations that each candidate needs to reach them (one row each).

        beyond  also losses that the pilot has not reached, by its continuation
        """
        levels = self.path.continued if beyond else self.path.levels
        losses, pilot = levels
        stretches = Stretches(self.path, levels)
        gains = np.array([one.gain for one in chosen])
        needed = np.repeat(pilot[None], len(chosen), axis=0)
        for _ in range(3):  # how old a drift gets depends on how long the run is: a fixed point
            horizons = np.minimum(np.ceil(needed[:, -1]), FOREVER).astype(int)
            off = [
                stretches.off(one, int(horizon), self.numbers)
                for one, horizon in zip(chosen, horizons, strict=True)
            ]
            wrong = self.numbers.sensitivity * np.array(off).reshape(len(chosen), -1)
            needed = needed_for(pilot, wrong, self.numbers.stop, gains)
        return losses, needed

    def iterations(self, chosen: Sequence[Candidate], target: float) -> Array:
        """Predicted iterations to the target; infinite below what the pilot reached."""
        losses, needed = self.needed(chosen)
        return np.array([iterations_to(target, row, losses) for row in needed])

    def seconds(self, chosen: Sequence[Candidate], target: float) -> Array:
        """Predicted simulated seconds to the target, at the end of an upload period."""
        needed = self.iterations(chosen, target)
        return np.array([_seconds(one, k) for one, k in zip(chosen, needed, strict=True)])

    def losses_within(self, chosen: Sequence[Candidate], seconds: float) -> Array:
        """Predicted loss after a time."""
        losses, needed = self.needed(chosen, beyond=True)
        made = [one.cost.iterations_within(seconds) for one in chosen]
        pairs = zip(made, needed, strict=True)
        return np.array([np.interp(k, *reached(row, losses)) for k, row in pairs])


def iterations_to(target: float, needed: Array, losses: Array) -> float:
    """Along a candidate's curve; infinite where it never gets there."""
    own, at = reached(needed, losses)
    return float(np.interp(-target, -at, own)) if target >= at[-1] else float("inf")


def _seconds(one: Candidate, iterations: float) -> float:
    if not np.isfinite(iterations):
        return float("inf")
    return float(one.cost.seconds(int(np.ceil(iterations / one.tau1)) * one.tau1))
