"""What the page may ask: a function for every address below /api/, from its query to JSON."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdfeel.errors import InputError
from sdfeel.page.deployment import Watcher
from sdfeel.page.runs import Runs, finite
from sdfeel.records.reading import Stamp, stamp_of

if TYPE_CHECKING:
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
        self._timelines: dict[tuple[str, str], Any] = {}
        self._planned: tuple[tuple[Path, Stamp | None], Plan] | None = None
        self.table: dict[str, Callable[[Query], Any]] = {
            "runs": self._table,
            "rows": self._rows,
            "band": self._band,
            "network": self._network,
            "timeline": self._timeline,
            "choices": self._choices,
            "what-if": self._what_if,
            "deployment": self._deployment,
        }

    def _table(self, _query: Query) -> dict[str, Any]:
        return {**self.runs.table(), "deployment": self.watcher is not None}

    def _rows(self, query: Query) -> dict[str, Any]:
        start = _whole(query, "start", 10**9, 0)
        return self.runs.rows(query.get("run", ""), start, query.get("table", "metrics"))

    def _band(self, query: Query) -> dict[str, Any]:
        names = [name for name in query.get("runs", "").split("\n") if name]
        return self.runs.band(names, query.get("x", "seconds"), query.get("y", "train_loss"))

    def _network(self, query: Query) -> dict[str, Any]:
        from sdfeel.algorithm.costs import round_cost
        from sdfeel.page.timeline import algorithm_of, network_of

        run = self.runs.get(query.get("run", ""))
        network = network_of(run.network, run.config)
        found: dict[str, Any] = {
            "servers": network.servers,
            "clients": [len(members) for members in network.clusters.members],
            "shares": network.shares.cluster.tolist(),
            "links": sorted(sorted(link) for link in network.graph.edges()),
            "zeta": network.zeta,
            "tau": None,
        }
        try:
            algorithm = algorithm_of(run.network, run.config)
        except InputError as problem:
            return {**found, "problem": str(problem)}
        on_edges = algorithm.network.servers == network.servers
        found |= {
            "scheme": algorithm.scheme.name,
            "averager": algorithm.averager.name if on_edges else None,
            "contraction": algorithm.averager.contraction if on_edges else None,
        }
        if "rounds" in algorithm.pace.breaks:
            words = "Nobody waits for another here: there are no rounds whose bytes could be told."
            return finite({**found, "problem": words})  # type: ignore[no-any-return]
        sent, links = round_cost(algorithm).bytes, network.graph.number_of_edges()
        uses_links = on_edges and algorithm.averager.route != "cloud"
        return finite({  # type: ignore[no-any-return]
            **found,
            "tau": algorithm.schedule.tau,
            "bytes_per_round": sent,
            "link_bytes_per_round": sent["between"] / links if uses_links and links else 0.0,
        })  # fmt: skip

    def _timeline(self, query: Query) -> dict[str, Any]:
        from sdfeel.page.timeline import Timeline, algorithm_of

        name = query.get("run", "")
        run = self.runs.get(name)
        rows = run.metrics.rows
        row = {"iteration": 0.0, "seconds": 0.0} | (run.metrics.row(rows - 1) if rows else {})
        key = (name, repr((run.config, run.network)))
        with self._lock:
            timeline = self._timelines.get(key)
            if timeline is None or timeline.is_past(row):
                algorithm = algorithm_of(run.network, run.config)
                steps = float(run.config.get("steps") or math.inf)
                while len(self._timelines) >= TIMELINES:
                    del self._timelines[next(iter(self._timelines))]
                timeline = self._timelines[key] = Timeline(algorithm, steps)
            whole = timeline.advance(row)
            shown = timeline.shown(_whole(query, "rounds", MOST_ROUNDS, 1))
        return finite({**shown, "whole": whole})  # type: ignore[no-any-return]

    def _choices(self, _query: Query) -> dict[str, Any]:
        from sdfeel.page.what_if import choices

        return choices()

    def _what_if(self, query: Query) -> dict[str, Any]:
        if not query.get("plan"):
            from sdfeel.page.what_if import what_if

            return finite(what_if(query))  # type: ignore[no-any-return]
        from sdfeel.page.planned import what_if_planned

        return finite(what_if_planned(query, self._plan(query["plan"])))  # type: ignore[no-any-return]

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
