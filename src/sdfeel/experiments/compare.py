"""Comparisons: several contenders, one run after the other, each in its own folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from sdfeel.api import Result
from sdfeel.errors import InputError
from sdfeel.experiments.config import RunConfig
from sdfeel.experiments.run import run, simulation_of
from sdfeel.simulation.loop import Progress

__all__ = ["Contender", "FromConfig", "Interrupted", "run_all", "run_or_resume", "slug"]

Started = Callable[[str, str], None]


class Interrupted(Exception):  # noqa: N818 - the user's wish, not an error
    """The user stopped a run; its checkpoint is in `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"stopped: its checkpoint is in {folder}; the same call goes on")
        self.folder = folder


class Contender(Protocol):
    """One curve of a comparison."""

    def check(self) -> None:
        """Name every mistake, before anything is trained."""

    def run(
        self,
        seed: int | None,
        out: Path | None,
        on_start: Started,
        on_progress: Callable[[Progress], None],
    ) -> Result | None:
        """The result; None if `out` holds it already. A seed of None is its own."""


@dataclass(frozen=True)
class FromConfig:
    """A contender that a TOML table describes."""

    config: RunConfig

    def check(self) -> None:
        simulation_of(self.config)

    def run(
        self,
        seed: int | None,
        out: Path | None,
        on_start: Started,
        on_progress: Callable[[Progress], None],
    ) -> Result | None:
        config = self.config if seed is None else self.config.changed(seed=seed)
        if out is None:
            return run(config, on_start=on_start, on_progress=on_progress)
        return run_or_resume(config, out, on_start=on_start, on_progress=on_progress)


@dataclass(frozen=True)
class Entry:
    """A run of a comparison: its seed, its folder and, if it was carried out, its result."""

    seed: int | None
    folder: Path | None
    result: Result | None


def run_all(
    contenders: Mapping[str, Contender],
    seeds: Sequence[int | None],
    out: Path | None,
    *,
    on_start: Started = lambda *_: None,
    on_progress: Callable[[str, Progress], None] = lambda *_: None,
) -> dict[str, list[Entry]]:
    """Every contender with every seed, by label; all are checked before the first is trained."""
    names = {
        (label, seed): label if len(seeds) == 1 else f"{label}, seed {seed}"
        for label in contenders
        for seed in seeds
    }
    _check_folders(list(names.values()))
    for label, one in contenders.items():
        try:
            one.check()
        except InputError as mistake:
            where = f"variant {label}: {mistake.field}"
            raise InputError(where, mistake.value, mistake.remedy) from None
    found: dict[str, list[Entry]] = {}
    for (label, seed), name in names.items():
        folder = None if out is None else out / slug(name)
        result = contenders[label].run(seed, folder, on_start, partial(on_progress, name))
        if result is not None and result.interrupted and folder is not None:
            raise Interrupted(folder)
        found.setdefault(label, []).append(Entry(seed, folder, result))
    return found


def run_or_resume(
    config: RunConfig,
    folder: Path,
    *,
    on_start: Started = lambda *_: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Result | None:
    """A run that is done already is left, one that was interrupted goes on, else it starts."""
    if _finished(folder, config):
        return None
    result = run(config, out=folder, resume=True, on_start=on_start, on_progress=on_progress)
    if result.interrupted:
        raise Interrupted(folder)
    return result


def slug(label: str) -> str:
    """A label as the name of a folder."""
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.") or "run"


def _check_folders(names: Sequence[str]) -> None:
    taken: dict[str, str] = {}
    for name in names:
        other = taken.setdefault(slug(name), name)
        if other != name:
            raise InputError(
                "variant.label", name, f"would have the same folder as {other!r}: {slug(name)}"
            )


def _finished(folder: Path, config: RunConfig) -> bool:
    kept, summary = _json(folder / "run.json"), _json(folder / "summary.json")
    asked = json.loads(json.dumps(config.table(), default=str))
    same = {key: kept.get(key) for key in asked} == asked
    return same and summary.get("interrupted") is False


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
