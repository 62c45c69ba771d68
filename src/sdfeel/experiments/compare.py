"""Comparisons: the variants of an experiment, one run after the other, each in its own folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from sdfeel.experiments.config import RunConfig
from sdfeel.experiments.run import run
from sdfeel.simulation.loop import Progress

__all__ = ["Interrupted", "run_or_resume", "slug"]


class Interrupted(Exception):  # noqa: N818 - the user's wish, not an error
    """The user stopped a run; its checkpoint is in `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.folder = folder


def run_or_resume(
    config: RunConfig,
    folder: Path,
    *,
    on_start: Callable[[str, str], None] = lambda *_: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> None:
    """A run that is done already is left, one that was interrupted goes on, else it starts."""
    if _finished(folder, config):
        return
    result = run(config, out=folder, resume=True, on_start=on_start, on_progress=on_progress)
    if result.interrupted:
        raise Interrupted(folder)


def slug(label: str) -> str:
    """A label as the name of a folder."""
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-")


def _finished(folder: Path, config: RunConfig) -> bool:
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        kept = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    asked = json.loads(json.dumps(config.table(), default=str))
    same = {key: kept.get(key) for key in asked} == asked
    return same and summary.get("interrupted") is False
