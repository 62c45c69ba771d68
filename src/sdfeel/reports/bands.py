"""Several seeds of one setting, as one line and a band around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdfeel.errors import InputError
from sdfeel.records.curves import Curve

BandKind = Literal["range", "quartiles"]
BAND_NAMES: dict[BandKind, str] = {"range": "min to max", "quartiles": "quartiles"}


@dataclass(frozen=True)
class Band:
    """The median over seeds at each x, with the lower and upper edge of the band."""

    x: NDArray[np.float64]
    middle: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    seeds: int


def band(frames: Sequence[pd.DataFrame], x: str, y: str, kind: BandKind = "range") -> Band | None:
    """Take the median and the band of y over x; None if no seed has the column.

    Seeds are evaluated at different x when devices or participation are random. Each curve is
    interpolated linearly, which keeps a monotone curve monotone, at every x that occurs in any,
    inside the stretch that all of them cover: beyond it the median would jump as seeds end.
    """
    if kind not in BAND_NAMES:
        raise InputError("band", kind, f"one of {', '.join(BAND_NAMES)}")
    curves = [curve for frame in frames if (curve := Curve.of(frame, x, y)) is not None]
    if not curves:
        return None
    first, last = max(float(curve.x[0]) for curve in curves), min(curve.last for curve in curves)
    if first > last:
        raise InputError(x, (last, first), f"the seeds share no stretch of {x!r}")
    if len(curves) == 1:
        only = curves[0]
        return Band(only.x, only.y, only.y, only.y, 1)
    grid = np.unique(np.concatenate([curve.x for curve in curves]))
    grid = grid[(grid >= first) & (grid <= last)]
    values = np.stack([np.interp(grid, curve.x, curve.y) for curve in curves])
    edges = (0.0, 1.0) if kind == "range" else (0.25, 0.75)
    low, middle, high = np.quantile(values, [edges[0], 0.5, edges[1]], axis=0)
    return Band(grid, middle, low, high, len(curves))
