"""Run folders that grow: what is new since the last look, without reading all of it again.

A run replaces metrics.csv as a whole. Where the new file begins with the bytes of the old one, only
the rest is read; else everything is, and the `edition` of the run rises by one.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["FollowedRun", "FollowedTable"]

MOST_BYTES = 2**30  # of a table
MOST_JSON = 64 * 2**20
Stamp = tuple[int, int, int]


def _hash(content: bytes = b"") -> Any:
    return hashlib.blake2b(content, usedforsecurity=False)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@dataclass
class FollowedTable:
    """A CSV file of numbers that grows at its end; a value that was not taken is NaN.

    problem  what is wrong with it, in a sentence; rows up to there are kept
    """

    path: Path
    columns: dict[str, array[float]] = field(default_factory=dict)
    rows: int = 0
    edition: int = 0
    problem: str = ""
    _stamp: Stamp | None = None
    _read: int = 0  # bytes, up to the end of a line
    _hash: Any = None  # of those bytes

    def look(self) -> bool:
        """Read what is new; whether there was anything."""
        stamp = _stamp(self.path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        if stamp is None:
            self._forget()
            return True
        try:
            if stamp[1] > MOST_BYTES:
                raise ValueError(f"is larger than {MOST_BYTES} bytes")
            with self.path.open("rb") as file:
                if not self._goes_on(file.read(self._read)):
                    self._forget()
                    file.seek(0)
                fresh = file.read()
            self._take(fresh[: fresh.rfind(b"\n") + 1])
        except OSError as problem:
            self.problem = f"cannot be read: {problem.strerror}"
        except (ValueError, csv.Error) as problem:
            self.problem = f"is damaged: {problem}"
        return True

    def _goes_on(self, begin: bytes) -> bool:
        if not self._read or self.problem:
            return False
        return bool(_hash(begin).digest() == self._hash.digest())

    def _forget(self) -> None:
        if self.columns:
            self.edition += 1
        self.columns, self.rows, self.problem = {}, 0, ""
        self._read, self._hash = 0, _hash()

    def _take(self, content: bytes) -> None:
        """Whole lines; the header first, if nothing was read yet."""
        lines = csv.reader(content.decode("utf-8").splitlines())
        if not self.columns:
            names = next(lines, [])
            if "iteration" not in names or len(set(names)) != len(names):
                raise ValueError("it has no column 'iteration'")
            self.columns = {name: array("d") for name in names}
        last = self.columns["iteration"][-1] if self.rows else -math.inf
        for cells in lines:
            values = self._numbers(cells)
            step = values["iteration"]
            if not math.isfinite(step) or step % 1 or step < last:
                raise ValueError("'iteration' must hold whole numbers that never fall")
            last = step
            for name, column in self.columns.items():
                column.append(values.get(name, math.nan))
            self.rows += 1
        self._read += len(content)
        self._hash.update(content)

    def _numbers(self, cells: list[str]) -> dict[str, float]:
        if len(cells) > len(self.columns):
            raise ValueError(f"line {self.rows + 2} has {len(cells)} cells")
        found = {}
        for name, cell in zip(self.columns, cells, strict=False):
            try:
                found[name] = float(cell) if cell.strip() else math.nan
            except ValueError:
                where = f"line {self.rows + 2}, column {name!r}"
                raise ValueError(f"{where} holds {cell[:40]!r}, which is no number") from None
        return {"iteration": math.nan} | found

    def row(self, number: int) -> dict[str, float]:
        return {name: column[number] for name, column in self.columns.items()}


@dataclass
class FollowedRun:
    """One run folder.

    config, environment, network  as they stand in their files; empty where there is none
    summary   how it ended; None while it has not
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

    def look(self) -> None:
        """Read what changed."""
        for name in ("run", "environment", "network", "summary"):
            self._look_at(name)
        for name, table in (("metrics.csv", self.metrics), ("trace.csv", self.trace)):
            table.look()
            self._say(name, table.problem)

    def _look_at(self, name: str) -> None:
        file = f"{name}.json"
        stamp = _stamp(self.path / file)
        if file in self._stamps and self._stamps[file] == stamp:
            return
        self._stamps[file] = stamp
        found: dict[str, Any] = {}
        self._say(file, "")
        if stamp is not None:
            try:
                found = _read_object(self.path / file)
            except OSError as problem:
                self._say(file, f"cannot be read: {problem.strerror}")
            except (ValueError, RecursionError) as problem:
                self._say(file, f"is damaged: {problem}")
        setattr(
            self, "config" if name == "run" else name, found or None if name == "summary" else found
        )

    def _say(self, file: str, problem: str) -> None:
        self.problems.pop(file, None)
        if problem:
            self.problems[file] = f"{file} {problem}"


def _read_object(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > MOST_JSON:
            raise ValueError(f"it is larger than {MOST_JSON} bytes")
        content = json.loads(file.read())
    if not isinstance(content, dict):
        raise ValueError("it must hold one JSON object")
    return content
