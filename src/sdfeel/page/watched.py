"""What may be read of a folder that others write to: plain files of a bounded size and depth.

A link would lead out of the folder, a pipe would keep every answer waiting, a device never ends.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sdfeel.errors import InputError
from sdfeel.records.reading import FollowedRun

__all__ = ["MOST_JSON", "MOST_TABLE", "check_file", "look_at", "problem_of"]

MOST_JSON = 16 * 2**20
MOST_TABLE = 2**28
DEEPEST = 50  # levels of lists and tables in a JSON file; a run folder of ours has 7 at most
OBJECTS = {"run.json": "config", "environment.json": "environment", "network.json": "network",
           "summary.json": "summary"}  # fmt: skip
TABLES = ("metrics.csv", "trace.csv")
TOO_DEEP = f"is damaged: it is nested deeper than {DEEPEST} levels"


def problem_of(path: Path, most: int) -> str:
    """Why a file must not be opened, in a sentence without its subject; "" if it may be.

    A file that is not there is no problem.
    """
    try:
        status = path.lstat()
    except OSError:
        return ""
    if not stat.S_ISREG(status.st_mode):
        return "must be a regular file: links, pipes and folders are not opened"
    if status.st_size > most:
        return f"is larger than {most} bytes, so it is not read"
    return ""


def check_file(field: str, path: Path, most: int) -> None:
    """Raise InputError unless the file may be opened."""
    problem = problem_of(path, most)
    if problem:
        raise InputError(field, str(path), problem)


def look_at(run: FollowedRun) -> None:
    """Read what changed of a run, if all of its files may be opened; else `problems` says why."""
    for file in (*OBJECTS, *TABLES):
        if run.problems.get(file, "").startswith(("must be a regular", "is larger than")):
            del run.problems[file]
    limits = dict.fromkeys(OBJECTS, MOST_JSON) | dict.fromkeys(TABLES, MOST_TABLE)
    problems = {file: problem_of(run.path / file, most) for file, most in limits.items()}
    wrong = {file: problem for file, problem in problems.items() if problem}
    if wrong:
        run.problems.update(wrong)
        return
    run.look()
    for file, name in OBJECTS.items():
        if _is_deep(getattr(run, name)):
            setattr(run, name, None if name == "summary" else {})
            run.problems[file] = TOO_DEEP


def _is_deep(content: Any) -> bool:
    """Whether it has more levels than `DEEPEST`; without recursion, which has its own bound."""
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
