"""What training comes to, as an edge sees it: its own losses and metrics, and what clients say.

A row belongs to the model after one iteration. The edge's own numbers, on a holdout, come when they
are done. Clients measure the model that they are given, so their numbers for a row come with the
uploads of the next period: nobody can check them, so they are columns of their own (`clients_...`)
and never the accuracy of an edge or of a run. Rows are those of the simulator's run folders.
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

__all__ = ["CLAIMED", "Results", "Row"]

Row = dict[str, float]
NAME = re.compile(r"(batch|train|test)_[a-z0-9][a-z0-9_-]{0,39}")
MOST = 16  # measures of one client in one period
KINDS = 64  # of measures in all, however many clients invent
LARGEST = 1e30
CLAIMED = "clients_"  # begins the name of a column that clients fill
BATCH_LOSS = CLAIMED + "batch_loss"


class Results:
    """The rows of one edge, and the last value of everything that was measured.

    last      of the edge's own measures
    claims    by client, the last measures that came with a model which was accepted
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
        self.last: Row = {}
        self.claims: dict[str, Row] = {}
        self.on_begin: Callable[[int], None] = lambda _: None
        self.on_change: Callable[[], None] = lambda: None
        self._tau1, self._periods, self._every = tau1, periods, every
        self._weights, self._tell, self._metrics = weights, tell, metrics
        self._reports: dict[str, Row] = {}
        self._kinds: set[str] = set()
        self._losses: list[float] = []
        self._started = time.monotonic()

    def resume(self, rows: Iterable[Row], done: int) -> None:
        """Take over what an earlier life of this edge wrote, but for what it has not done."""
        past = [row for row in rows if row["iteration"] <= done * self._tau1]
        self.rows = {int(row["iteration"]): dict(row) for row in past}
        if past:
            self._started -= past[-1].get("seconds", 0.0)

    def report(self, client: str, measures: Iterable[v1.Measure]) -> None:
        """Note what came with an accepted model, but for what is no number or has no good name."""
        report: Row = {}
        for measure in list(measures)[: MOST + 1]:
            is_good = NAME.fullmatch(measure.name) and abs(measure.value) <= LARGEST
            has_room = measure.name in self._kinds or len(self._kinds) < KINDS
            if not is_good or not has_room or len(report) == MOST:
                self._metrics.refused.labels("measure").inc()
                continue
            self._kinds.add(measure.name)
            report[measure.name] = measure.value
            self._metrics.claims.labels(client, measure.name).set(measure.value)
        self._reports[client] = report
        if report:
            self.claims[client] = report

    def take(self, worked: int, period: int, clients: Sequence[str]) -> None:
        """End a period: `clients` were in it, and it is on disk as `period`."""
        means = self._means(clients)
        self._reports.clear()
        if BATCH_LOSS in means:
            self._losses.append(means.pop(BATCH_LOSS))
        if means:
            iteration = (worked - 1) * self._tau1
            self._tell(facts.ClientsMeasured(iteration=iteration, values=means))
            self._fill(iteration, means)
        if period == self._periods or self._is_due(period, period - worked + 1):
            self.begin(period * self._tau1, len(clients))

    def _means(self, clients: Sequence[str]) -> Row:
        """Return means weighted as the models are, over the clients that reported."""
        names = dict.fromkeys(name for c in clients for name in self._reports.get(c, {}))
        means = {}
        for name in names:
            speakers = [c for c in clients if name in self._reports.get(c, {})]
            values = [self._reports[c][name] for c in speakers]
            weighted = zip(self._weights(speakers), values, strict=True)
            means[CLAIMED + name] = sum(weight * value for weight, value in weighted)
        return means

    def _is_due(self, period: int, periods: int) -> bool:
        now, before = period * self._tau1, (period - periods) * self._tau1
        return now // self._every > before // self._every

    def begin(self, iteration: int, participants: int = 0) -> None:
        """Begin a row of the model that the edge holds now."""
        row: Row = {"iteration": iteration, "seconds": time.monotonic() - self._started}
        if self._losses:
            row[BATCH_LOSS] = sum(self._losses) / len(self._losses)
        self._losses.clear()
        self.rows[iteration] = row | {"participants": float(participants)}
        self.on_begin(iteration)

    def _fill(self, iteration: int, values: Mapping[str, float]) -> None:
        if iteration not in self.rows:
            self.rows[iteration] = {
                "iteration": iteration,
                "seconds": time.monotonic() - self._started,
            }
        self.rows[iteration] |= values
        self.on_change()

    def evaluated(self, iteration: int, values: Mapping[str, float]) -> None:
        """Note the edge's own measures of the model of a row."""
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self.last |= finite
        self._tell(facts.Measured(iteration=iteration, values=finite))
        if iteration in self.rows:
            self._fill(iteration, finite)

    @property
    def in_order(self) -> list[Row]:
        return [self.rows[iteration] for iteration in sorted(self.rows)]
