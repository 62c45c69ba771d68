"""Runs at a glance: the best that each has reached, and the settings in which they differ."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sdfeel.records.reading import FollowedRun

__all__ = ["Glance"]

MOST_COLUMNS = 8  # of settings in which runs differ
LONGEST = 40  # characters of a setting that are shown

Best = dict[str, float | None]


class Glance:
    """Remembers the best of each run until it has more rows."""

    def __init__(self) -> None:
        self._bests: dict[str, tuple[tuple[int, int], Best]] = {}

    def add(self, rows: Sequence[dict[str, Any]], runs: Mapping[str, FollowedRun]) -> list[str]:
        """Add `best` and `differs` to what is told of each run; returns the keys that differ."""
        tables = [_flat(run.config) for run in runs.values()]
        keys = dict.fromkeys(key for table in tables for key in table)
        written = [table for table in tables if table]
        differing = [key for key in keys if len({table.get(key) for table in written}) > 1]
        differing = differing[:MOST_COLUMNS]
        for row, table, run in zip(rows, tables, runs.values(), strict=True):
            row["differs"] = {key: table.get(key) for key in differing}
            row["best"] = self._best(row["name"], run)
        return differing

    def _best(self, name: str, run: FollowedRun) -> Best:
        """The highest test accuracy and the lowest training loss so far."""
        mark = (run.metrics.edition, run.metrics.rows)
        known = self._bests.get(name)
        if known is None or known[0] != mark:
            columns = run.metrics.columns
            accuracy = max(_finite(columns.get("test_accuracy", ())), default=None)
            loss = min(_finite(columns.get("train_loss", ())), default=None)
            known = self._bests[name] = (mark, {"accuracy": accuracy, "loss": loss})
        return known[1]


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _flat(config: Mapping[str, Any]) -> dict[str, str]:
    """Settings by their dotted keys, as text."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        inside = value if isinstance(value, Mapping) else None
        leaves = (
            {f"{key}.{leaf}": each for leaf, each in inside.items()} if inside else {key: value}
        )
        flat |= {str(name): _text(each) for name, each in leaves.items()}
    return flat


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
