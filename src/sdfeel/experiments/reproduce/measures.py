"""Numbers from curves: where one ends, how noisy it is, who is behind whom."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sdfeel.records.curves import Curve

# Parts of the stretch: the last fifth, the fifth in the middle, all of it.
END, MIDDLE, WHOLE = (0.8, 1.0), (0.4, 0.6), (0.0, 1.0)
GRID = 201


def shared_stretch(curves: Sequence[Curve]) -> float:
    """Return up to where all curves go."""
    return min(curve.last for curve in curves)


def level(curve: Curve, stop: float, part: tuple[float, float] = END) -> float:
    """Take the mean of the curve over a part of [0, stop], interpolated between evaluations.

    A mean and not the last value: one evaluation after a lucky batch decides nothing.
    """
    grid = np.linspace(part[0] * stop, part[1] * stop, GRID)
    return float(np.interp(grid, curve.x, curve.y).mean())


def noise(curve: Curve) -> float:
    """Estimate how far an evaluation is off its neighbours, over the later half of the curve.

    Second differences of independent noise have six times its variance, and none of the trend's.
    """
    y = curve.y[len(curve.y) // 2 :]
    if len(y) < 3:
        y = curve.y
    if len(y) < 3:
        return math.nan
    return float(np.sqrt(np.mean(np.diff(y, 2) ** 2) / 6))


def level_noise(curve: Curve, stop: float, part: tuple[float, float] = END) -> float:
    """Estimate the standard error of `level`: the noise of one over the root of their number."""
    inside = (curve.x >= part[0] * stop) & (curve.x <= part[1] * stop)
    return noise(curve) / math.sqrt(max(int(inside.sum()), 1))


def time_ratio(leader: Curve, laggard: Curve, shift: float = 0.0) -> float:
    """Say how many times as long the second takes to get where it ends; below 1 if it is ahead.

    shift  added to the level that is to be reached, to see how much noise matters
    """
    stop = shared_stretch([leader, laggard])
    middle = stop * (END[0] + END[1]) / 2
    reached = _within(leader, level(laggard, stop) + shift, stop)
    if reached is not None:
        return math.inf if reached == 0 else middle / reached
    reached = _within(laggard, level(leader, stop) + shift, stop)
    return 1.0 if reached is None else min(reached / middle, 1.0)


def _within(curve: Curve, goal: float, stop: float) -> float | None:
    """Find where the curve first reaches a level, if it does before `stop`."""
    reached = curve.reaches(goal)
    return None if reached is None or reached > stop else reached
