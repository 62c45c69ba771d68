"""Run folders, read back: what was asked, on what machine, what came out; once, or as they grow."""

from __future__ import annotations

import csv
import json
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from sdfeel.errors import InputError

MOST_BYTES = 2**30  # of a table
MOST_JSON = 64 * 2**20
Stamp = tuple[int, int, int]
Columns: TypeAlias = "dict[str, array[float]]"


@dataclass(frozen=True, eq=False)
class RunRecord:
    """A run as it stands on disk.

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
        name = self.config.get("scheme") or (self.summary or {}).get("scheme")
        return str(name) if name else self.path.name


def read_run(folder: str | Path) -> RunRecord:
    """Read the record in `folder`.

    Raises:
        InputError: which file is missing or damaged, and how.
    """
    path = Path(folder)
    if not path.is_dir():
        raise InputError("run", str(folder), "must be a folder that a run wrote")
    if not (path / "run.json").is_file():
        raise InputError(
            "run", str(folder), "is not the folder of a run: it holds no run.json; name a folder "
            "that was given as --out"
        )  # fmt: skip
    if not (path / "metrics.csv").is_file():
        remedy = "is not there: the run has not come to its first evaluation"
        raise InputError("run", str(path / "metrics.csv"), remedy)
    run = FollowedRun(path)
    run.look(is_complete=True)
    for file in run.problems.keys() - {"trace.csv"}:  # a trace is no part of a record
        raise InputError("run", str(path / file), run.problems[file])
    metrics = pd.DataFrame({name: np.array(column) for name, column in run.metrics.columns.items()})
    return RunRecord(
        path=path,
        config=run.config,
        environment=run.environment,
        metrics=metrics.astype({"iteration": "int64"}),
        summary=run.summary,
        network=run.network,
    )


def read_table(content: bytes) -> tuple[Columns, str]:
    """Read a CSV file of numbers.

    Returns:
        The columns by name, up to the first mistake; and that mistake in a sentence.
    """
    columns: Columns = {}
    try:
        lines = csv.reader(content.decode("utf-8").splitlines())
        names = next(lines, [])
        if "iteration" not in names or len(set(names)) != len(names):
            raise ValueError("it has no column 'iteration'")
        columns |= {name: array("d") for name in names}
        last = -math.inf
        for cells in lines:
            row = _numbers(names, cells, lines.line_num)
            iteration = row["iteration"]
            if not math.isfinite(iteration) or iteration % 1 or iteration < last:
                raise ValueError("'iteration' must hold whole numbers that never fall")
            last = iteration
            for name, column in columns.items():
                column.append(row[name])
    except (ValueError, csv.Error) as problem:
        return columns, f"is damaged: {problem}"
    return columns, ""


def _numbers(names: list[str], cells: list[str], line: int) -> dict[str, float]:
    """Read a line; what it lacks is NaN."""
    if len(cells) > len(names):
        raise ValueError(f"line {line} has {len(cells)} cells")
    row = dict.fromkeys(names, math.nan)
    for name, cell in zip(names, cells, strict=False):
        try:
            row[name] = float(cell) if cell.strip() else math.nan
        except ValueError:
            place = f"line {line}, column {name!r}"
            raise ValueError(f"{place} holds {cell[:40]!r}, which is no number") from None
    return row


@dataclass
class FollowedTable:
    """A CSV file of numbers that may grow at its end; a value that was not taken is NaN.

    columns  by name; edition: how often rows that had been read changed
    problem  what is wrong with it, in a sentence; rows up to there are kept
    """

    path: Path
    columns: Columns = field(default_factory=dict)
    edition: int = 0
    problem: str = ""
    _stamp: Stamp | None = None

    @property
    def rows(self) -> int:
        return len(self.columns["iteration"]) if self.columns else 0

    def look(self, *, is_complete: bool = False) -> bool:
        """Read the file if it changed; whether it did.

        is_complete  nobody writes to it: a last line without an end is a line
        """
        stamp = _stamp(self.path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        before, self.columns, self.problem = self.columns, {}, ""
        if stamp is not None:
            try:
                if stamp[1] > MOST_BYTES:
                    raise OSError(0, f"it is larger than {MOST_BYTES} bytes")
                content = self.path.read_bytes()
                whole = len(content) if is_complete else content.rfind(b"\n") + 1
                self.columns, self.problem = read_table(content[:whole])
            except OSError as problem:
                self.problem = f"cannot be read: {problem.strerror}"
        self.edition += not _goes_on(before, self.columns)
        return True

    def row(self, number: int) -> dict[str, float]:
        return {name: column[number] for name, column in self.columns.items()}


def _goes_on(before: Columns, after: Columns) -> bool:
    """Return whether rows were only added."""
    if before and list(before) != list(after):
        return False
    return all(
        array("d", after[name][: len(column)]).tobytes() == column.tobytes()
        for name, column in before.items()
    )


def _stamp(path: Path) -> Stamp | None:
    """Return what changes whenever a file does; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


@dataclass
class FollowedRun:
    """A run folder that may grow.

    config, environment, network  as they stand in their files; empty where there is none
    summary   how it ended; None while it has not
    problems  by file, what is wrong with it
    """

    path: Path
    metrics: FollowedTable = field(init=False)
    trace: FollowedTable = field(init=False)
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] | None = None
    problems: dict[str, str] = field(default_factory=dict)
    _stamps: dict[str, Stamp | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.metrics = FollowedTable(self.path / "metrics.csv")
        self.trace = FollowedTable(self.path / "trace.csv")

    def look(self, *, is_complete: bool = False) -> None:
        """Read what changed."""
        self.config = self._object("run", self.config)
        self.environment = self._object("environment", self.environment)
        self.network = self._object("network", self.network)
        self.summary = self._object("summary", self.summary or {}) or None
        for table in (self.metrics, self.trace):
            table.look(is_complete=is_complete)
            self._report(table.path.name, table.problem)

    def _object(self, name: str, before: dict[str, Any]) -> dict[str, Any]:
        """Read the JSON object of a file; `before` if the file has not changed."""
        file = f"{name}.json"
        stamp = _stamp(self.path / file)
        if file in self._stamps and self._stamps[file] == stamp:
            return before
        self._stamps[file] = stamp
        self._report(file, "")
        try:
            if stamp is None:
                return {}
            if stamp[1] > MOST_JSON:
                raise ValueError(f"it is larger than {MOST_JSON} bytes")
            content = json.loads((self.path / file).read_bytes())
            if not isinstance(content, dict):
                raise ValueError("it must hold one JSON object")
            return content
        except OSError as problem:
            self._report(file, f"cannot be read: {problem.strerror}")
        except (ValueError, RecursionError) as problem:
            self._report(file, f"is damaged: {problem}")
        return {}

    def _report(self, file: str, problem: str) -> None:
        self.problems.pop(file, None)
        if problem:
            self.problems[file] = problem
