"""Numbers from curves: where one ends, how noisy it is, who is behind whom.

A curve is x and y of the evaluations of one run, in order of x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "END",
    "MIDDLE",
    "WHOLE",
    "Curve",
    "level",
    "level_noise",
    "noise",
    "shared_stretch",
    "time_ratio",
    "time_to",
]

Floats = NDArray[np.float64]

# Parts of the stretch: the last fifth, the fifth in the middle, all of it.
END, MIDDLE, WHOLE = (0.8, 1.0), (0.4, 0.6), (0.0, 1.0)
GRID = 201


@dataclass(frozen=True)
class Curve:
    """Evaluations in order; lower is better if `falling`."""

    x: Floats
    y: Floats
    falling: bool

    @property
    def last(self) -> float:
        return float(self.x[-1])


def shared_stretch(curves: Sequence[Curve]) -> float:
    """Up to where all curves go."""
    return min(curve.last for curve in curves)


def level(curve: Curve, stop: float, part: tuple[float, float] = END) -> float:
    """The mean of the curve over a part of [0, stop], interpolated between evaluations.

    A mean and not the last value: one evaluation after a lucky batch decides nothing.
    """
    grid = np.linspace(part[0] * stop, part[1] * stop, GRID)
    return float(np.interp(grid, curve.x, curve.y).mean())


def noise(curve: Curve) -> float:
    """Deviation of a single evaluation from its neighbours, over the later half of the curve.

    Second differences of independent noise have six times its variance, and none of the trend's.
    """
    y = curve.y[len(curve.y) // 2 :]
    if len(y) < 3:
        y = curve.y
    if len(y) < 3:
        return math.nan
    return float(np.sqrt(np.mean(np.diff(y, 2) ** 2) / 6))


def level_noise(curve: Curve, stop: float, part: tuple[float, float] = END) -> float:
    """Standard error of `level`: the noise of one evaluation over the root of their number."""
    inside = (curve.x >= part[0] * stop) & (curve.x <= part[1] * stop)
    return noise(curve) / math.sqrt(max(int(inside.sum()), 1))


def time_ratio(leader: Curve, laggard: Curve, shift: float = 0.0) -> float:
    """How many times as long the second takes to get where it ends; below 1 if it is ahead.

    shift  added to the level that is asked for, to see how much noise matters
    """
    stop = shared_stretch([leader, laggard])
    asked = level(laggard, stop) + shift
    reached = _first(leader, asked, stop)
    if reached is not None:
        return math.inf if reached == 0 else stop * (END[0] + END[1]) / 2 / reached
    reached = _first(laggard, level(leader, stop) + shift, stop)
    middle = stop * (END[0] + END[1]) / 2
    return 1.0 if reached is None else min(reached / middle, 1.0)


def time_to(curve: Curve, asked: float) -> float | None:
    """When the curve first reaches a level; None if it never does."""
    return _first(curve, asked, curve.last)


def _first(curve: Curve, asked: float, stop: float) -> float | None:
    """Where the curve first reaches a level, by linear interpolation."""
    grid = np.linspace(0.0, stop, 20 * GRID)
    y = np.interp(grid, curve.x, curve.y)
    there = y <= asked if curve.falling else y >= asked
    return float(grid[int(np.argmax(there))]) if there.any() else None
