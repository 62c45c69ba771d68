"""comparison.json: which runs of a folder belong together, and what each is called."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sdfeel.errors import InputError
from sdfeel.files import write_json, write_report
from sdfeel.records.reading import RunRecord, read_run

COMPARISON = "comparison.json"
VERSION = 1
MAX_BYTES = 2**22


def note_runs(folder: Path, title: str, runs: Mapping[str, Sequence[Path]]) -> None:
    """Write it, with one folder for each seed under a label; not of runs that lie elsewhere."""
    inside: dict[str, list[str]] = {}
    for label, paths in runs.items():
        for path in paths:
            if not path.absolute().is_relative_to(folder.absolute()) or path == folder:
                return
            inside.setdefault(label, []).append(
                path.absolute().relative_to(folder.absolute()).as_posix()
            )
    content = {"version": VERSION, "title": title, "runs": inside}
    write_json(folder / COMPARISON, content, write_report)


def read_runs(folder: str | Path) -> tuple[str, dict[str, list[RunRecord]]]:
    """The title, and the records by label; InputError says what is damaged."""
    path = Path(folder) / COMPARISON
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        content = json.loads(text) if len(text) <= MAX_BYTES else None
    except OSError as problem:
        remedy = f"holds no {COMPARISON}: {problem.strerror}"
        raise InputError("comparison", str(folder), remedy) from None
    except (ValueError, RecursionError) as problem:
        raise InputError("comparison", str(path), f"is damaged: {problem}") from None
    title, runs = _checked(content, path)
    records = {label: [read_run(Path(folder) / name) for name in of] for label, of in runs.items()}
    return title, records


def _checked(content: Any, path: Path) -> tuple[str, dict[str, list[str]]]:
    if not isinstance(content, dict) or not isinstance(content.get("runs"), dict):
        raise InputError("comparison", str(path), "is damaged: it must hold runs by label")
    if content.get("version") != VERSION:
        version = content.get("version")
        raise InputError("comparison", version, f"{path}: this sdfeel reads version {VERSION}")
    for label, names in content["runs"].items():
        if not isinstance(names, list) or not names or not all(_inside(name) for name in names):
            remedy = f"{path}: {label!r} needs folders that lie in this one"
            raise InputError("comparison", names, remedy)
    if not content["runs"]:
        raise InputError("comparison", str(path), "is damaged: it names no run")
    return str(content.get("title", "")), content["runs"]


def _inside(name: object) -> bool:
    """Nothing outside of the folder is ever opened."""
    if not isinstance(name, str) or not name or "\0" in name:
        return False
    return not Path(name).is_absolute() and ".." not in Path(name).parts
