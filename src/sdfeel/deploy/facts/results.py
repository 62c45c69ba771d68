"""What training comes to, as an edge sees it: losses and metrics of its clients and its own.

A row belongs to the model after one iteration. Clients measure the model that they are given, so
their numbers for a row come with the uploads of the next period; the edge's own, on a holdout, come
when they are done. Rows are those of the simulator's run folders.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.metrics import Metrics
from sdfeel.deploy.facts.stream import Tell
from sdfeel.deploy.protocol import v1

__all__ = ["Results", "Row"]

Row = dict[str, float]
NAME = re.compile(r"(batch|train|test)_[a-z0-9][a-z0-9_-]{0,39}")
MOST = 16  # measures of one client in one period
KINDS = 64  # of measures in all, however many clients invent
LARGEST = 1e30


class Results:
    """The rows of one edge, and the last value of everything that was measured.

    weights   m-hat of clients, by their names
    on_begin  called with the iteration of a new row
    on_change called when a row has got a number
    """

    def __init__(
        self,
        tau1: int,
        periods: int,
        every: int,
        weights: Callable[[Sequence[str]], list[float]],
        tell: Tell,
        metrics: Metrics,
    ) -> None:
        self.rows: dict[int, Row] = {}
        self.last: dict[str, float] = {}
        self.on_begin: Callable[[int], None] = lambda _: None
        self.on_change: Callable[[], None] = lambda: None
        self._tau1, self._periods, self._every = tau1, periods, every
        self._weights, self._tell, self._metrics = weights, tell, metrics
        self._reports: dict[str, Row] = {}
        self._losses: list[float] = []
        self._started = time.monotonic()

    def resume(self, rows: Iterable[Row], done: int) -> None:
        """What an earlier life of this edge wrote, without what it has not done any more."""
        past = [row for row in rows if row["iteration"] <= done * self._tau1]
        self.rows = {int(row["iteration"]): dict(row) for row in past}
        if past:
            self._started -= past[-1].get("seconds", 0.0)

    def report(self, client: str, measures: Iterable[v1.Measure]) -> None:
        """Of a model that was accepted. What is no number or has no proper name is left out."""
        found: Row = {}
        for measure in list(measures)[: MOST + 1]:
            good = NAME.fullmatch(measure.name) and abs(measure.value) <= LARGEST
            is_room = measure.name in self.last or len({*self.last, *found}) < KINDS
            if not good or not is_room or len(found) == MOST:
                self._metrics.refused.labels("measure").inc()
                continue
            found[measure.name] = measure.value
        self._reports[client] = found

    def take(self, worked: int, period: int, clients: Sequence[str]) -> None:
        """A period has ended: `clients` were in it, and it is on disk as `period`."""
        found = self._means(clients)
        self._reports.clear()
        self._show(found)
        if "batch_loss" in found:
            self._losses.append(found.pop("batch_loss"))
        if found:
            self._fill((worked - 1) * self._tau1, found)
        if period == self._periods or self._is_due(period, period - worked + 1):
            self.begin(period * self._tau1, len(clients))

    def _means(self, clients: Sequence[str]) -> Row:
        """Weighted as the models are, over the clients that reported."""
        names = dict.fromkeys(name for c in clients for name in self._reports.get(c, {}))
        means = {}
        for name in names:
            told = [c for c in clients if name in self._reports.get(c, {})]
            values = [self._reports[c][name] for c in told]
            means[name] = sum(w * v for w, v in zip(self._weights(told), values, strict=True))
        return means

    def _is_due(self, period: int, periods: int) -> bool:
        now, before = period * self._tau1, (period - periods) * self._tau1
        return now // self._every > before // self._every

    def begin(self, iteration: int, participants: int = 0) -> None:
        """A row of the model that the edge holds now."""
        row: Row = {"iteration": iteration, "seconds": time.monotonic() - self._started}
        if self._losses:
            row["batch_loss"] = sum(self._losses) / len(self._losses)
        self._losses.clear()
        self.rows[iteration] = row | {"participants": float(participants)}
        self.on_begin(iteration)

    def _fill(self, iteration: int, found: Mapping[str, float]) -> None:
        if iteration not in self.rows:
            self.rows[iteration] = {
                "iteration": iteration,
                "seconds": time.monotonic() - self._started,
            }
        self.rows[iteration] |= found
        self._tell(facts.Measured(iteration=iteration, values=found))
        self.on_change()

    def evaluated(self, iteration: int, found: Mapping[str, float]) -> None:
        """The edge's own look at the model of a row."""
        good = {name: value for name, value in found.items() if math.isfinite(value)}
        self._show(good)
        if iteration in self.rows:
            self._fill(iteration, good)

    def _show(self, found: Mapping[str, float]) -> None:
        self.last |= found
        for name, value in found.items():
            self._metrics.measures.labels(name).set(value)

    @property
    def in_order(self) -> list[Row]:
        return [self.rows[iteration] for iteration in sorted(self.rows)]
