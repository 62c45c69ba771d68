"""What the page may ask: a function for every address below /api/, from its query to JSON."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdfeel.errors import InputError
from sdfeel.page.deployment import Watcher
from sdfeel.page.drawn import drawn, drawn_of, places_in
from sdfeel.page.runs import LONGEST, Runs, finite
from sdfeel.records.reading import Stamp, stamp_of

if TYPE_CHECKING:
    from sdfeel.page.timeline import Timeline
    from sdfeel.planner.plan import Plan

__all__ = ["Views"]

Query = Mapping[str, str]
MOST_ROUNDS = 20
TIMELINES = 32  # that are kept: a run whose settings change has another


class Views:
    """Of some folders, of a deployment, or of both."""

    def __init__(self, runs: Runs, watcher: Watcher | None = None) -> None:
        self.runs, self.watcher = runs, watcher
        self._lock = threading.Lock()
        self._timelines: dict[tuple[str, str], Timeline] = {}
        self._planned: tuple[tuple[Path, Stamp | None], Plan] | None = None
        self.table: dict[str, Callable[[Query], Any]] = {
            "runs": self._table,
            "rows": self._rows,
            "band": self._band,
            "network": self._network,
            "timeline": self._timeline,
            "choices": self._choices,
            "what-if": self._what_if,
            "edited": self._edited,
            "deployment": self._deployment,
        }

    def _table(self, _query: Query) -> dict[str, Any]:
        return {**self.runs.table(), "deployment": self.watcher is not None}

    def _rows(self, query: Query) -> dict[str, Any]:
        start, name = _whole(query, "start", 10**9, 0), query.get("run", "")
        if query.get("table") == "events":
            return self._events(name, start)
        return self.runs.rows(name, start, query.get("table", "metrics"))

    def _events(self, name: str, start: int) -> dict[str, Any]:
        """Columns of what a run's servers did, from row `start` on; `whole`: no more will come."""
        with self._lock:
            timeline, whole = self._played(name)
            sample = timeline.sample
            end = min(sample.rows, start + LONGEST)
            columns = {key: list(column[start:end]) for key, column in sample.columns.items()}
            return {
                "run": name, "edition": sample.edition, "start": start, "rows": sample.rows,
                "columns": columns, "stride": sample.stride, "kind": timeline.kind, "whole": whole,
            }  # fmt: skip

    def _band(self, query: Query) -> dict[str, Any]:
        names = [name for name in query.get("runs", "").split("\n") if name]
        return self.runs.band(names, query.get("x", "seconds"), query.get("y", "train_loss"))

    def _network(self, query: Query) -> dict[str, Any]:
        from sdfeel.algorithm.costs import round_cost
        from sdfeel.page.timeline import algorithm_of, network_of

        run = self.runs.get(query.get("run", ""))
        network = network_of(run.network, run.config)
        try:
            algorithm = algorithm_of(run.network, run.config)
        except InputError as problem:
            return {**drawn(network), "zeta": network.zeta, "tau": None, "problem": str(problem)}
        averager = algorithm.averager
        answer = {**drawn_of(algorithm), "tau": None, "scheme": algorithm.scheme.name}
        if algorithm.scheme.servers == "edge":
            answer["positions"] = places_in(run.network, network.servers)
        if algorithm.network.servers > 1:
            answer |= {"averager": averager.name, "contraction": averager.contraction}
            answer["zeta"] = algorithm.network.zeta if answer["links"] else None
        if "rounds" in algorithm.pace.breaks:
            words = "Nobody waits for another here: there are no rounds whose bytes could be told."
            return finite({**answer, "problem": words})  # type: ignore[no-any-return]
        sent, links = round_cost(algorithm).bytes, len(answer["links"])
        return finite({  # type: ignore[no-any-return]
            **answer,
            "tau": algorithm.schedule.tau,
            "exchanges": averager.exchanges,
            "bytes_per_round": sent,
            "link_bytes_per_round": sent["between"] / links if links else 0.0,
        })  # fmt: skip

    def _timeline(self, query: Query) -> dict[str, Any]:
        with self._lock:
            timeline, whole = self._played(query.get("run", ""))
            shown = timeline.shown(_whole(query, "rounds", MOST_ROUNDS, 1))
        return finite({**shown, "whole": whole})  # type: ignore[no-any-return]

    def _played(self, name: str) -> tuple[Timeline, bool]:
        """The timeline of a run up to its last row, and whether it has come so far."""
        from sdfeel.page.timeline import Timeline, algorithm_of

        run = self.runs.get(name)
        rows = run.metrics.rows
        row = {"iteration": 0.0, "seconds": 0.0} | (run.metrics.row(rows - 1) if rows else {})
        key = (name, repr((run.config, run.network)))
        timeline = self._timelines.get(key)
        if timeline is None or timeline.is_past(row):
            algorithm = algorithm_of(run.network, run.config)
            steps = float(run.config.get("steps") or math.inf)
            while len(self._timelines) >= TIMELINES:
                del self._timelines[next(iter(self._timelines))]
            timeline = self._timelines[key] = Timeline(algorithm, steps)
        return timeline, timeline.advance(row)

    def _choices(self, _query: Query) -> dict[str, Any]:
        from sdfeel.page.what_if import choices

        return choices()

    def _what_if(self, query: Query) -> dict[str, Any]:
        if not query.get("plan"):
            from sdfeel.page.what_if import what_if

            return finite(what_if(query))  # type: ignore[no-any-return]
        from sdfeel.page.planned import what_if_planned

        return finite(what_if_planned(query, self._plan(query["plan"])))  # type: ignore[no-any-return]

    def _edited(self, query: Query) -> dict[str, Any]:
        from sdfeel.page.edit import draft_of_deployment, draft_of_run, draft_of_the_paper, edited

        name = query.get("run", "")
        if name == "/deployment" and self.watcher is not None:
            from sdfeel.deploy.config import load_deployment

            prediction = self.watcher.prediction
            deployment = load_deployment(self.watcher.file)
            draft = draft_of_deployment(deployment, prediction.profile if prediction else None)
        elif name:
            run = self.runs.get(name)
            draft = draft_of_run(run.network, run.config)
        else:
            draft = draft_of_the_paper()
        return finite(edited(draft, query))  # type: ignore[no-any-return]

    def _plan(self, name: str) -> Plan:
        """Read again only where it has changed."""
        from sdfeel.page.work import PLAN_WORK, Budget
        from sdfeel.planner.saved import PLAN, read_plan

        folder, within = self.runs.plan(name)
        with self._lock:
            stamp = (folder, stamp_of(folder / PLAN))
            if self._planned is None or self._planned[0] != stamp or stamp[1] is None:
                spend = Budget("plan", PLAN_WORK).spend
                self._planned = (stamp, read_plan(folder, spend=spend, within=within))
            return self._planned[1]

    def _deployment(self, _query: Query) -> dict[str, Any]:
        if self.watcher is None:
            raise InputError("deployment", "", "none is watched: `sdfeel watch --deployment FILE`")
        return self.watcher.shown()


def _whole(query: Query, name: str, most: int, least: int) -> int:
    text = query.get(name) or str(least)
    if not text.isdecimal() or len(text) > 10 or not least <= int(text) <= most:
        raise InputError(name, text[:40], f"a whole number from {least} to {most}")
    return int(text)
