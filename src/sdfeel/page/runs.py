"""The runs below the given folders: found, followed and told to the page as JSON has them."""

from __future__ import annotations

import json
import math
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from sdfeel.errors import InputError
from sdfeel.page.glance import Glance
from sdfeel.records.reading import FollowedRun, FollowedTable, UnusableFile, read_regular

__all__ = ["Runs", "finite"]

PLAN = "plan.json"
REPORT = frozenset({"comparison.json", "index.html"})  # what the folder of a comparison has
MOST_REPORT = 16 * 2**20  # bytes
DEEP = 4  # levels below a given folder at which a run may lie: reproduce has it at 2
MOST_RUNS = 1000
MOST_FOLDERS = 20_000
MOST_ENTRIES = 20_000  # of a folder that are looked at
SCAN_EVERY = 0.5  # seconds between two looks for new runs
LOOK_EVERY = 0.15  # seconds between two looks at files
SEEDS = ("seed", "data.seed", "model.seed")
LONGEST = 5000  # rows of one answer
MOST_ROWS = 1_000_000  # of all runs together of which one answer makes a band


def finite(content: Any) -> Any:
    """As JSON can have it: what is no finite number becomes null."""
    if isinstance(content, Mapping):
        return {str(key): finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


class PlanPlace(NamedTuple):
    """The folder of a plan or a report, and the given folder in which its file must lie."""

    folder: Path
    within: Path


class Runs:
    """All runs of the given folders by name; safe to be asked by several threads.

    A name is a run's path below its folder, or the folder's own name where that is the run.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = [folder.absolute() for folder in folders]
        self.lock = threading.RLock()
        self._runs: dict[str, FollowedRun] = {}
        self._plans: dict[str, PlanPlace] = {}
        self._reports: dict[str, PlanPlace] = {}
        self._scanned = self._looked = -math.inf
        self._left_off = 0
        self._glance = Glance()

    def get(self, name: str) -> FollowedRun:
        """InputError if no given folder holds it: nothing else is ever opened."""
        with self.lock:
            if name not in self._runs:
                raise InputError("run", name, "is no run of the folders that are watched")
            return self._runs[name]

    def look(self) -> dict[str, FollowedRun]:
        """All of them, as they are on disk now (or were a moment ago)."""
        with self.lock:
            now = time.monotonic()
            if now - self._scanned >= SCAN_EVERY:
                self._scan()
                self._scanned = time.monotonic()
            if now - self._looked >= LOOK_EVERY:
                for run in self._runs.values():
                    run.look()
                self._looked = time.monotonic()
            return dict(self._runs)

    def _scan(self) -> None:
        runs: dict[str, FollowedRun] = {}
        plans: dict[str, PlanPlace] = {}
        reports: dict[str, PlanPlace] = {}
        self._left_off = 0
        for folder in self.folders:
            within = folder.resolve()
            with_run, with_plan, with_report = _folders(folder)
            for path in with_run:
                if len(runs) == MOST_RUNS:
                    self._left_off += 1
                    continue
                name = _name(path, folder, runs)
                run = self._runs.get(name)
                is_same = run is not None and (run.path, run.within) == (path, within)
                runs[name] = run if run is not None and is_same else FollowedRun(path, within)
            for path in with_plan:
                plans[_name(path, folder, plans)] = PlanPlace(path, within)
            for path in with_report:
                reports[_name(path, folder, reports)] = PlanPlace(path, within)
        self._plans, self._reports = plans, reports
        self._runs = dict(sorted(runs.items(), key=lambda item: _natural(item[0])))

    def plan(self, name: str) -> PlanPlace:
        """Return where a plan lies; InputError if no given folder holds it."""
        with self.lock:
            if name not in self._plans:
                raise InputError("plan", name, "is no plan of the folders that are watched")
            return self._plans[name]

    def report(self, name: str) -> bytes:
        """Return the report of a comparison, as it was written; InputError if there is none."""
        with self.lock:
            if name not in self._reports:
                raise InputError("report", name, "is no comparison of the folders that are watched")
            folder, within = self._reports[name]
        try:
            return read_regular(folder / "index.html", MOST_REPORT, within)
        except (OSError, UnusableFile) as problem:
            raise InputError("report", name, str(problem)) from None

    def table(self) -> dict[str, Any]:
        """What `/api/runs` answers."""
        runs = self.look()
        with self.lock:
            groups = _groups(runs)
            rows = [_about(name, run, groups[name]) for name, run in runs.items()]
            plans, reports = list(self._plans), list(self._reports)
            differing = self._glance.add(rows, runs)
        return {
            "runs": rows, "plans": plans, "notes": self._notes(rows), "folders": self._shown(),
            "differing": differing, "reports": reports,
        }  # fmt: skip

    def _shown(self) -> list[str]:
        return [folder.name or str(folder) for folder in self.folders]

    def _notes(self, rows: list[dict[str, Any]]) -> list[str]:
        """Sentences for people: what is not there, and what could not be read."""
        notes = []
        missing = [folder.name for folder in self.folders if not folder.is_dir()]
        notes += [f"The folder {name} is not there yet." for name in missing]
        if not rows and not self._plans and self.folders and not missing:
            shown = ", ".join(self._shown())
            notes.append(f"No run in {shown} yet: a run shows up here as soon as it begins.")
        if self._left_off:
            notes.append(f"{self._left_off} more runs are left off: name fewer folders.")
        return notes

    def rows(self, name: str, start: int, table: str = "metrics") -> dict[str, Any]:
        """Columns of a run from row `start` on, a few thousand at a time."""
        with self.lock:
            run = self.get(name)
            found: FollowedTable = run.trace if table == "trace" else run.metrics
            end = min(found.rows, start + LONGEST)
            columns = {key: list(column[start:end]) for key, column in found.columns.items()}
            return {
                "run": name, "edition": found.edition, "start": start, "rows": found.rows,
                "columns": finite(columns),
            }  # fmt: skip

    def band(self, names: Iterable[str], x: str, y: str) -> dict[str, Any]:
        """Median and range over seeds, by the function that draws the figures."""
        import pandas as pd

        from sdfeel.reports.bands import band

        with self.lock:
            runs = {name: self.get(name) for name in names}
            rows = sum(run.metrics.rows for run in runs.values())
            if rows > MOST_ROWS:
                raise InputError("runs", f"{rows} rows", f"at most {MOST_ROWS} together")
            frames = [pd.DataFrame(self.columns(name)) for name in runs]
        result = band(frames, x, y)
        if result is None:
            return {"seeds": 0, "x": [], "middle": [], "low": [], "high": []}
        lists = {key: getattr(result, key).tolist() for key in ("x", "middle", "low", "high")}
        return {"seeds": result.seeds, **finite(lists)}

    def columns(self, name: str) -> dict[str, list[float]]:
        """The metrics of a run, with its real seconds where it has noted them."""
        with self.lock:
            run = self.get(name)
            result = {key: list(column) for key, column in run.metrics.columns.items()}
            return result | {"elapsed": _elapsed(run)}


def _elapsed(run: FollowedRun) -> list[float]:
    """Real seconds at every row; a deployment's clock is real to begin with."""
    steps = run.metrics.columns.get("iteration", ())
    if run.config.get("engine") == "deployment":
        return list(run.metrics.columns.get("seconds", ()))
    trace = run.trace.columns
    at = dict(zip(trace.get("iteration", ()), trace.get("elapsed", ()), strict=False))
    return [at.get(step, math.nan) for step in steps]


def _name(path: Path, folder: Path, taken: Mapping[str, Any]) -> str:
    name = folder.name if path == folder else str(path.relative_to(folder))
    while name in taken:
        name = f"{path.parent.name}/{name}" if "/" not in name else f"{name}'"
    return name


def _folders(folder: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Those with a run, with a plan and with a report, the given one or below.

    Links to elsewhere are not followed.
    """
    runs: list[Path] = []
    plans: list[Path] = []
    reports: list[Path] = []
    level, seen = [folder], 0
    for _ in range(DEEP + 1):
        below: list[Path] = []
        for place in level:
            seen += 1
            if seen > MOST_FOLDERS:
                return runs, plans, reports
            try:
                with os.scandir(place) as entries:
                    inside = list(islice(entries, MOST_ENTRIES))
            except OSError:
                continue
            files = {e.name for e in inside if e.is_file(follow_symlinks=False)}
            if PLAN in files and len(plans) < MOST_RUNS:
                plans.append(place)
            if files >= REPORT and len(reports) < MOST_RUNS:
                reports.append(place)
            if "run.json" in files:
                runs.append(place)
                continue
            below += [
                Path(e.path)
                for e in inside
                if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")
            ]
        level = below
    return runs, plans, reports


def _natural(name: str) -> list[tuple[int, str]]:
    """Run 9 comes before run 10."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d{1,9})", name)]


def _about(name: str, run: FollowedRun, group: str) -> dict[str, Any]:
    metrics, config = run.metrics, run.config
    last = metrics.row(metrics.rows - 1) if metrics.rows else None
    ended = run.summary or {}
    state = "under way" if run.summary is None else "finished"
    if ended.get("interrupted"):
        state = "stopped"
    if run.problems.keys() - {"trace.csv"}:  # a trace is no part of a record
        state = "damaged"
    return finite(  # type: ignore[no-any-return]
        {
            "name": name,
            "group": group,
            "rows": metrics.rows,
            "last": last,
            "edition": metrics.edition,
            "traced": run.trace.rows,
            "trace_edition": run.trace.edition,
            "columns": list(metrics.columns),
            "scheme": str(config.get("scheme") or ended.get("scheme") or ""),
            "seed": config.get("seed"),
            "title": str(config.get("title") or ""),
            "steps": config.get("steps"),
            "until": config.get("until"),
            "real": config.get("engine") == "deployment",
            "state": state,
            "summary": run.summary,
            "problems": [*(f"{file} {what}" for file, what in run.problems.items()), *_newer(run)],
        }
    )


def _newer(run: FollowedRun) -> list[str]:
    """A sentence about a run of a later version than this one."""
    packages = run.environment.get("packages")
    wrote = packages.get("sdfeel") if isinstance(packages, Mapping) else None
    ours = version("sdfeel")
    if not isinstance(wrote, str) or _numbers(wrote) <= _numbers(ours):
        return []
    return [
        f"was written by sdfeel {wrote[:40]}, and this is {ours}: what it does not know is left "
        "out; `pip install --upgrade sdfeel` shows all"
    ]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d{1,9}", text)[:3]]


def _groups(runs: Mapping[str, FollowedRun]) -> dict[str, str]:
    """Runs that differ by their seed alone belong together; by name, what the group is called."""
    alike: dict[str, dict[str, str]] = {}  # names by seeds
    for name, run in runs.items():
        rest = json.loads(json.dumps(run.config, default=str))
        seeds = []
        for key in SEEDS:
            section, _, leaf = key.rpartition(".")
            place = rest.get(section) if section else rest
            if isinstance(place, dict):
                seeds.append(place.pop(leaf, None))
        mark = json.dumps([str(run.path.parent), rest], sort_keys=True) if rest else name
        if json.dumps(seeds) in alike.get(mark, {}):
            mark = name  # the same run twice is no other seed
        alike.setdefault(mark, {})[json.dumps(seeds)] = name
    return {
        name: _common(list(names.values())) for names in alike.values() for name in names.values()
    }


def _common(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    begin = os.path.commonprefix(list(names))  # noqa: RUF071 - letters, not folders
    return re.sub(r"[-_ ,/]*(seed)?[-_ ,/]*$", "", begin) or names[0]
