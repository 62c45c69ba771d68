"""Run folders, read back: what was asked, on what machine, what came out; once, or as they grow.

Others may write to a folder. So only regular files are read, of a bounded size and depth: a link
could lead out of the folder, a pipe would keep its reader waiting, a device never ends. A link is
refused also where it leads to a file of the same folder; the folder itself may be one.
"""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import stat
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from sdfeel.errors import InputError

MOST_TABLE = 2**28  # bytes of a table
MOST_JSON = 16 * 2**20
DEEPEST = 50  # levels of lists and tables in a JSON file; a run folder of ours has 7 at most
Stamp = tuple[int, int, int, int]
Columns: TypeAlias = "dict[str, array[float]]"


class UnusableFile(Exception):  # noqa: N818 - a verdict on a file
    """Why a file cannot be used, in a sentence without its subject."""


def read_regular(path: Path, most: int, within: Path | None = None) -> bytes:
    """Read a file that others may have put there.

    Args:
        path: its last part must not be a link.
        most: bytes that it may have.
        within: a folder, without links in its path, in which the file must lie after all links.

    Raises:
        FileNotFoundError: there is none.
        UnusableFile: it is no regular file, too large, elsewhere, or cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - a descriptor
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UnusableFile(NOT_REGULAR)
            if within is not None:
                place = Path(f"/proc/self/fd/{file.fileno()}").readlink()
                if not place.is_relative_to(within):
                    raise UnusableFile("lies elsewhere: a link leads out of the folder")
            content = file.read(most + 1) if status.st_size <= most else b""
    except FileNotFoundError:
        raise
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # a link, a socket, a folder
            raise UnusableFile(NOT_REGULAR) from None
        raise UnusableFile(f"cannot be read: {problem.strerror}") from None
    if max(status.st_size, len(content)) > most:
        raise UnusableFile(f"is larger than {most} bytes, so it is not read")
    return content


NOT_REGULAR = "must be a regular file: links, pipes and folders are not opened"


def read_object(path: Path, within: Path | None = None, most: int = MOST_JSON) -> dict[str, Any]:
    """Read the JSON object in a file, as `read_regular` reads it.

    Raises:
        FileNotFoundError: there is none.
        UnusableFile: also where it is damaged, or nested too deep.
    """
    try:
        content = json.loads(read_regular(path, most, within))
    except (ValueError, RecursionError) as problem:
        raise UnusableFile(f"is damaged: {problem}") from None
    if not isinstance(content, dict):
        raise UnusableFile("is damaged: it must hold one JSON object")
    if _is_deep(content):
        raise UnusableFile(f"is damaged: it is nested deeper than {DEEPEST} levels")
    return content


def _is_deep(content: Any) -> bool:
    """Return whether it has more levels than `DEEPEST`; without recursion, which has a bound."""
    level: list[Any] = [content]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(content: Any) -> Iterable[Any]:
    if isinstance(content, dict):
        return content.values()
    return content if isinstance(content, list) else ()


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

    within   a folder in which it must lie, see `read_regular`
    columns  by name; edition: how often rows that had been read changed
    problem  what is wrong with it, in a sentence; rows up to there are kept
    """

    path: Path
    within: Path | None = None
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
        stamp = stamp_of(self.path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        before, self.columns, self.problem = self.columns, {}, ""
        try:
            content = read_regular(self.path, MOST_TABLE, self.within)
            whole = len(content) if is_complete else content.rfind(b"\n") + 1
            self.columns, self.problem = read_table(content[:whole])
        except FileNotFoundError:
            self._stamp = None
        except UnusableFile as problem:
            self.problem = str(problem)
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


def stamp_of(path: Path) -> Stamp | None:
    """Return what changes whenever a file does; None if there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


@dataclass
class FollowedRun:
    """A run folder that may grow.

    within   a folder in which its files must lie, see `read_regular`
    config, environment, network  as they stand in their files; empty where there is none
    summary   how it ended; None while it has not
    problems  by file, what is wrong with it
    """

    path: Path
    within: Path | None = None
    metrics: FollowedTable = field(init=False)
    trace: FollowedTable = field(init=False)
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] | None = None
    problems: dict[str, str] = field(default_factory=dict)
    _stamps: dict[str, Stamp | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.metrics = FollowedTable(self.path / "metrics.csv", self.within)
        self.trace = FollowedTable(self.path / "trace.csv", self.within)

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
        stamp = stamp_of(self.path / file)
        if file in self._stamps and self._stamps[file] == stamp:
            return before
        self._stamps[file] = stamp
        self._report(file, "")
        try:
            return read_object(self.path / file, self.within)
        except FileNotFoundError:
            pass
        except UnusableFile as problem:
            self._report(file, str(problem))
        return {}

    def _report(self, file: str, problem: str) -> None:
        self.problems.pop(file, None)
        if problem:
            self.problems[file] = problem
