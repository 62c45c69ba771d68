"""Curves from tables of metrics, and the one answer to when a curve reaches a level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Metrics whose name has one of these words get better as they fall.
FALLING = ("loss", "error", "disagreement")


def first_reach(x: Floats, y: Floats, level: float, *, is_falling: bool) -> float | None:
    """Find where a curve first reaches a level.

    Between two evaluations the curve is a straight line; before the first there is none.

    Args:
        x: where the evaluations are, in ascending order.
        y: their values. An infinite value or NaN is not an evaluation, and is left out.
        level: what is to be reached; equal is enough.
        is_falling: whether lower is better.

    Returns:
        The least x at which y is at the level or better; None if it never is.

    >>> first_reach(np.array([0.0, 10.0]), np.array([1.0, 0.5]), 0.75, is_falling=True)
    5.0
    """
    is_there = np.isfinite(x) & np.isfinite(y)
    x, y = x[is_there], y[is_there]
    reached = np.flatnonzero(y <= level if is_falling else y >= level)
    if not len(reached):
        return None
    after = int(reached[0])
    if after == 0:
        return float(x[0])
    before = after - 1
    # The division rounds: the answer never leaves the interval between the two evaluations.
    part = min(max((level - y[before]) / (y[after] - y[before]), 0.0), 1.0)
    return float(x[before] + part * (x[after] - x[before]))


@dataclass(frozen=True, eq=False)
class Curve:
    """The evaluations of one run: y in order of x, all of them finite."""

    x: Floats
    y: Floats
    is_falling: bool

    @classmethod
    def of(
        cls, metrics: pd.DataFrame, x: str, y: str, is_falling: bool | None = None
    ) -> Curve | None:
        """Take two columns of a table of metrics; None if nothing was recorded in them.

        is_falling  whether lower is better; by default it is for losses, errors and disagreement
        """
        if x not in metrics.columns or y not in metrics.columns:
            return None
        at = metrics[x].to_numpy(dtype=np.float64)
        value = metrics[y].to_numpy(dtype=np.float64)
        is_there = np.isfinite(at) & np.isfinite(value)
        if not is_there.any():
            return None
        order = np.argsort(at[is_there], kind="stable")
        if is_falling is None:
            is_falling = any(word in y for word in FALLING)
        return cls(at[is_there][order], value[is_there][order], is_falling)

    @property
    def last(self) -> float:
        """Return where the last evaluation is."""
        return float(self.x[-1])

    def reaches(self, level: float) -> float | None:
        """Find where the curve first reaches a level; see `first_reach`."""
        return first_reach(self.x, self.y, level, is_falling=self.is_falling)
