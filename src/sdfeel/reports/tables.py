"""Runs side by side: how they ended, and how long they took to get where.

A table is a list of rows, each a plain dict that JSON can hold; `rendering` shows them to people.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sdfeel.errors import InputError
from sdfeel.records.curves import Curve
from sdfeel.records.reading import RunRecord

Row = dict[str, Any]
# By label: one run, or one per seed; a bare table of metrics will do.
Run = RunRecord | pd.DataFrame
Runs = Mapping[str, Run | Sequence[Run]]

# Parts of the best final accuracy that are asked for when the caller names no level.
PARTS_OF_BEST = (0.8, 0.9, 0.95)
TEST, TRAINING = "test_accuracy", "train_accuracy"


def time_to(
    metrics: pd.DataFrame,
    column: str,
    level: float,
    *,
    x: str = "seconds",
    falling: bool | None = None,
) -> float | None:
    """Find when `column` first reaches `level`, as `sdfeel.records.curves.first_reach` defines it.

    falling  whether lower is better; by default it is for losses, errors and disagreement
    """
    curve = Curve.of(metrics, x, column, falling)
    return None if curve is None else curve.reaches(level)


def compare_table(
    runs: Runs,
    *,
    accuracies: Sequence[float] | None = None,
) -> list[Row]:
    """Make one row per label; over several seeds medians, with min and max of loss and accuracy.

    Accuracies are those on test samples. Of a label that was not tested they are those on training
    samples, and `accuracy_of` says so.

    Args:
        runs: by label, one run or one for each seed.
        accuracies: levels whose time is asked for; by default 80, 90 and 95 % of the best median at
            the end, rounded to two digits, so that they suit any data set.

    Returns:
        Rows with the times under `seconds_to_accuracy_0.9`, None for never: a median over seeds is
        never once half of them never get there.
    """
    if not runs:
        raise InputError("runs", {}, "at least one run to compare")
    seeds = {label: _records(label, of) for label, of in runs.items()}
    measured = {label: TRAINING if _is_untested(of) else TEST for label, of in seeds.items()}
    has_bands = any(len(of) > 1 for of in seeds.values())
    rows = [_ending(label, of, measured[label], has_bands) for label, of in seeds.items()]
    if accuracies is None:
        accuracies = _levels([row["accuracy"] for row in rows])
    for row in rows:
        label = row["label"]
        if TRAINING in measured.values():
            row["accuracy_of"] = f"{'training' if measured[label] == TRAINING else 'test'} samples"
        for level in accuracies:
            times = [time_to(run.metrics, measured[label], level) for run in seeds[label]]
            row[f"seconds_to_accuracy_{level:g}"] = _median(
                [math.inf if time is None else time for time in times]
            )
    return rows


def all_evaluations(runs: Mapping[str, Sequence[RunRecord]], name: str) -> pd.DataFrame:
    """Put every evaluation of every run into one table, with columns `name` and `seed` first."""
    parts = [
        run.metrics.assign(**{name: label, "seed": run.config.get("seed")})
        for label, of in runs.items()
        for run in of
    ]
    whole = pd.concat(parts, ignore_index=True)
    return whole[[name, "seed", *whole.columns.drop([name, "seed"])]]


def _records(label: str, of: Run | Sequence[Run]) -> list[RunRecord]:
    """Return the runs under a label as records, which a bare table of metrics is not."""
    several = [of] if isinstance(of, RunRecord | pd.DataFrame) else of
    if not several:
        raise InputError("runs", [], "at least one run under each label")
    return [
        run if isinstance(run, RunRecord) else RunRecord(Path(), {"scheme": label}, run)
        for run in several
    ]


def _is_untested(seeds: Sequence[RunRecord]) -> bool:
    """Return whether there are accuracies on training samples only."""
    columns = {name for run in seeds for name in run.metrics.columns}
    return TEST not in columns and TRAINING in columns


def _ending(label: str, seeds: Sequence[RunRecord], accuracy: str, has_bands: bool) -> Row:
    row: Row = {"label": label, "scheme": seeds[0].scheme}
    if has_bands:
        row["seeds"] = len(seeds)
    columns = {"iterations": "iteration", "seconds": "seconds", "loss": "train_loss"}
    columns |= {"accuracy": accuracy, "disagreement": "disagreement"}
    for name, column in columns.items():
        values = [_last(run, column, name) for run in seeds]
        row[name] = _median(values)
        if has_bands and name in ("loss", "accuracy"):
            row |= {f"{name}_min": _edge(values, min), f"{name}_max": _edge(values, max)}
    if row["iterations"] is not None:
        row["iterations"] = int(row["iterations"])
    return row


def _last(run: RunRecord, column: str, in_summary: str) -> float | None:
    """Return the last value that was recorded, or else what the summary says."""
    if column in run.metrics.columns and len(recorded := run.metrics[column].dropna()):
        return float(recorded.iloc[-1])
    value = (run.summary or {}).get(in_summary)
    return float(value) if isinstance(value, int | float) else None


def _median(values: Iterable[float | None]) -> float | None:
    """Take it over those that are there; None if it is not a number that JSON can hold."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    middle = float(np.median(known)) if known else math.nan
    return middle if math.isfinite(middle) else None


def _edge(values: Sequence[float | None], pick: Any) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return pick(known) if known else None


def _levels(accuracies: Sequence[float | None]) -> list[float]:
    known = [value for value in accuracies if value is not None]
    return sorted({round(part * max(known), 2) for part in PARTS_OF_BEST}) if known else []
