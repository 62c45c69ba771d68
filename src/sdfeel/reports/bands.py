"""Several seeds of one setting, as one line and a band around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdfeel.errors import InputError

__all__ = ["BAND_NAMES", "Band", "BandKind", "band", "points"]

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


def points(
    frame: pd.DataFrame, x: str, y: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The curve y(x) in order of x, without what was not taken; None if nothing was."""
    if x not in frame.columns or y not in frame.columns:
        return None
    at = frame[x].to_numpy(dtype=np.float64)
    value = frame[y].to_numpy(dtype=np.float64)
    kept = np.isfinite(at) & np.isfinite(value)
    if not kept.any():
        return None
    order = np.argsort(at[kept], kind="stable")
    return at[kept][order], value[kept][order]


def band(frames: Sequence[pd.DataFrame], x: str, y: str, kind: BandKind = "range") -> Band | None:
    """Median and band of y over x; None if no seed has the column.

    Seeds are evaluated at different x when devices or participation are random. Each curve is
    interpolated linearly, which keeps a monotone curve monotone, at every x that occurs in any,
    inside the stretch that all of them cover: beyond it the median would jump as seeds end.
    """
    if kind not in BAND_NAMES:
        raise InputError("band", kind, f"one of {', '.join(BAND_NAMES)}")
    curves = [curve for frame in frames if (curve := points(frame, x, y)) is not None]
    if not curves:
        return None
    first = max(at[0] for at, _ in curves)
    last = min(at[-1] for at, _ in curves)
    if first > last:
        raise InputError(x, (float(last), float(first)), f"the seeds share no stretch of {x!r}")
    if len(curves) == 1:
        at, value = curves[0]
        return Band(at, value, value, value, 1)
    grid = np.unique(np.concatenate([at for at, _ in curves]))
    grid = grid[(grid >= first) & (grid <= last)]
    values = np.stack([np.interp(grid, at, value) for at, value in curves])
    low, high = (
        (values.min(axis=0), values.max(axis=0))
        if kind == "range"
        else tuple(np.quantile(values, [0.25, 0.75], axis=0))
    )
    return Band(grid, np.median(values, axis=0), low, high, len(curves))
