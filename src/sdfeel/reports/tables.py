"""Runs side by side: how they ended, and how long they took to get where.

A table is a list of rows, each a plain dict that JSON can hold; `rendering` shows them to people.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sdfeel.errors import InputError
from sdfeel.records.reading import RunRecord
from sdfeel.reports.bands import points

__all__ = ["Row", "Runs", "compare_table", "metrics_of", "time_to"]

Row = dict[str, Any]
# By label: one run, or one per seed; a bare table of metrics will do.
Run = RunRecord | pd.DataFrame
Runs = Mapping[str, Run | Sequence[Run]]

# Parts of the best final accuracy that are asked for when the caller names no level.
PARTS_OF_BEST = (0.8, 0.9, 0.95)
# Metrics that get better as they fall.
FALLING = ("loss", "error", "disagreement")


def time_to(
    metrics: pd.DataFrame,
    column: str,
    level: float,
    *,
    x: str = "seconds",
    falling: bool | None = None,
) -> float | None:
    """When `column` first reaches `level`, between two evaluations by linear interpolation.

    x        what is counted: simulated "seconds", or "iteration"
    falling  whether lower is better; by default it is for losses, errors and disagreement
    Returns None if it never does, or was not recorded.
    """
    curve = points(metrics, x, column)
    if curve is None:
        return None
    at, value = curve
    if falling is None:
        falling = any(word in column for word in FALLING)
    reached = value <= level if falling else value >= level
    if not reached.any():
        return None
    first = int(np.argmax(reached))
    if first == 0:
        return float(at[0])
    before, after = float(value[first - 1]), float(value[first])
    # The division rounds: never let the answer leave the interval it was found in.
    part = min(max((level - before) / (after - before), 0.0), 1.0)
    return float(at[first - 1] + part * (at[first] - at[first - 1]))


def compare_table(
    runs: Runs,
    *,
    accuracies: Sequence[float] | None = None,
    losses: Sequence[float] = (),
) -> list[Row]:
    """One row per label; over several seeds medians, with min and max of loss and accuracy.

    accuracies  levels of test accuracy whose time is asked for; by default 80, 90 and 95 % of the
                best median at the end, rounded to two digits, so that they suit any data set
    losses      levels of training loss whose time is asked for
    The times are under `seconds_to_accuracy_0.9` and `seconds_to_loss_0.5`, None for never: a
    median over seeds is never once half of them never get there.
    """
    if not runs:
        raise InputError("runs", {}, "at least one run to compare")
    rows = [_ending(label, _list(of)) for label, of in runs.items()]
    if accuracies is None:
        accuracies = _levels([row["accuracy"] for row in rows])
    several = any(row["seeds"] > 1 for row in rows)
    for row, of in zip(rows, runs.values(), strict=True):
        if not several:
            for name in ("seeds", "loss_min", "loss_max", "accuracy_min", "accuracy_max"):
                del row[name]
        tables = [metrics_of(run) for run in _list(of)]
        for name, column, levels in (
            ("accuracy", "test_accuracy", accuracies),
            ("loss", "train_loss", losses),
        ):
            for level in levels:
                times = [time_to(table, column, level) for table in tables]
                row[f"seconds_to_{name}_{level:g}"] = _median(
                    [math.inf if time is None else time for time in times]
                )
    return rows


def metrics_of(run: Run) -> pd.DataFrame:
    return run.metrics if isinstance(run, RunRecord) else run


def _list(of: Run | Sequence[Run]) -> Sequence[Run]:
    listed = [of] if isinstance(of, RunRecord | pd.DataFrame) else of
    if not listed:
        raise InputError("runs", [], "at least one run under each label")
    return listed


def _ending(label: str, seeds: Sequence[Run]) -> Row:
    losses = [_last(run, "train_loss", "loss") for run in seeds]
    accuracies = [_last(run, "test_accuracy", "accuracy") for run in seeds]
    first = seeds[0]
    iterations = _median([_last(run, "iteration", "iterations") for run in seeds])
    return {
        "label": label,
        "scheme": first.scheme if isinstance(first, RunRecord) else label,
        "seeds": len(seeds),
        "iterations": None if iterations is None else int(iterations),
        "seconds": _median([_last(run, "seconds", "seconds") for run in seeds]),
        "loss": _median(losses),
        "loss_min": _edge(losses, min),
        "loss_max": _edge(losses, max),
        "accuracy": _median(accuracies),
        "accuracy_min": _edge(accuracies, min),
        "accuracy_max": _edge(accuracies, max),
        "disagreement": _median([_last(run, "disagreement", "disagreement") for run in seeds]),
    }


def _last(run: Run, column: str, in_summary: str) -> float | None:
    """The last value that was recorded, or else what the summary says."""
    metrics = metrics_of(run)
    if column in metrics.columns:
        taken = metrics[column].dropna()
        if len(taken):
            return float(taken.iloc[-1])
    summary = (run.summary if isinstance(run, RunRecord) else None) or {}
    value = summary.get(in_summary)
    return float(value) if isinstance(value, int | float) else None


def _median(values: Sequence[float | None]) -> float | None:
    """Over those that are there; None if it is not a number that JSON can hold."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return None
    middle = float(np.median(known))
    return middle if math.isfinite(middle) else None


def _edge(values: Sequence[float | None], pick: Any) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return pick(known) if known else None


def _levels(accuracies: Sequence[float | None]) -> list[float]:
    known = [value for value in accuracies if value is not None]
    if not known:
        return []
    return sorted({round(part * max(known), 2) for part in PARTS_OF_BEST})
