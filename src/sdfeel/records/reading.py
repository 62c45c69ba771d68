"""Run folders, read back: what was asked, on what machine, what came out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sdfeel.errors import InputError

__all__ = ["RunRecord", "read_run"]


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One run as it stands on disk.

    metrics  one row per evaluation, in order of iteration; a value that was not taken is NaN, a
             column that no evaluation had is absent
    summary  how the run ended; None while it has not
    network  who belongs to whom; empty in a run of an earlier version
    """

    path: Path
    config: Mapping[str, Any]
    metrics: pd.DataFrame
    environment: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] | None = None
    network: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scheme(self) -> str:
        named = self.config.get("scheme") or (self.summary or {}).get("scheme")
        return str(named) if named else self.path.name


def read_run(folder: str | Path) -> RunRecord:
    """The record in `folder`; an InputError says which file is missing or damaged, and how."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError("run", str(folder), "must be a folder that a run wrote")
    if not (path / "run.json").is_file():
        raise InputError(
            "run", str(folder), "is not the folder of a run: it holds no run.json; name a folder "
            "that was given as --out"
        )  # fmt: skip
    config = _read_object(path / "run.json")
    return RunRecord(
        path=path,
        config=config or {},
        environment=_read_object(path / "environment.json") or {},
        metrics=_read_metrics(path / "metrics.csv"),
        summary=_read_object(path / "summary.json"),
        network=_read_object(path / "network.json") or {},
    )


def _read_object(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None if there is no such file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as problem:
        raise InputError("run", str(path), f"is damaged: {problem}") from None
    except OSError as problem:
        raise InputError("run", str(path), f"cannot be read: {problem.strerror}") from None
    if not isinstance(content, dict):
        raise InputError("run", str(path), "is damaged: it must hold one JSON object")
    return content


def _read_metrics(path: Path) -> pd.DataFrame:
    try:
        # Everything as text first: a damaged number is then named with its line, where pandas
        # alone would turn the whole column into text without a word.
        text = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            "run", str(path), "is not there: the run has not come to its first evaluation"
        ) from None
    except (ValueError, pd.errors.ParserError) as problem:
        raise InputError("run", str(path), f"is damaged: {str(problem).strip()}") from None
    except OSError as problem:
        raise InputError("run", str(path), f"cannot be read: {problem.strerror}") from None
    if "iteration" not in text.columns:
        raise InputError("run", str(path), "is damaged: it has no column 'iteration'")
    table = pd.DataFrame({name: _numbers(path, text[name]) for name in text.columns})
    steps = table["iteration"]
    if not (np.isfinite(steps) & (steps % 1 == 0)).all() or not steps.is_monotonic_increasing:
        raise InputError(
            "run", str(path), "is damaged: 'iteration' must hold whole numbers that never fall"
        )
    return table.astype({"iteration": "int64"})


def _numbers(path: Path, column: pd.Series[str]) -> pd.Series[float]:
    stripped = column.fillna("").str.strip()
    numbers = pd.to_numeric(stripped.mask(stripped == "", "nan"), errors="coerce").astype("float64")
    broken = numbers.isna() & ~stripped.str.lower().isin(["", "nan"])
    if broken.any():
        row = int(broken.to_numpy().argmax())
        raise InputError(
            "run",
            str(path),
            f"is damaged: line {row + 2}, column {column.name!r} holds {stripped.iloc[row]!r}, "
            "which is no number",
        )
    return numbers
