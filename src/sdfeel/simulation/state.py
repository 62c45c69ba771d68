"""The state of a run: what an event does to the rows of servers, groups and clients.

After a broadcast every client holds its server's model, so nothing of a client is kept but what
methods remember. Training changes nothing: what it gave is written when a server takes its group,
so training that is interrupted can be dropped.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from torch import Tensor

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.events import Event, Group
from sdfeel.algorithm.methods.codecs import Draw
from sdfeel.algorithm.methods.method import Floats, Period
from sdfeel.engines.engine import Engine
from sdfeel.engines.problem import Problem
from sdfeel.network import Averager
from sdfeel.simulation.exchange import exchanged, mixed
from sdfeel.simulation.ranks import Ranks
from sdfeel.simulation.rows import Rows, as_array, as_tensor
from sdfeel.simulation.training import Trained, Training

# What tells the streams of random numbers of messages apart: up, down, and an exchange each.
DOWN, BETWEEN = 1, 2


class State(Rows):
    """The rows, and Algorithm 1's steps on them."""

    def __init__(self, problem: Problem, algorithm: Algorithm, start: Tensor, ranks: Ranks) -> None:
        super().__init__(problem, algorithm, start, ranks)
        self._training = Training(self)

    # Eq. (2)

    def train(
        self, window: Sequence[Event], engine: Engine, is_stopped: Callable[[], bool]
    ) -> Trained:
        """Train the groups of a window; raises `Interrupted` if it `is_stopped`."""
        everywhere = [group for event in window for group in event.groups]
        here, periods = self._here(everywhere), [Period(g, self.algorithm) for g in everywhere]
        for method in self.algorithm.having("prepare"):
            present = self.rows_of_groups
            rows = [self.rows_of(method, g) if g.number in present else None for g in everywhere]
            method.prepare(rows, periods, partial(self.mean_of_rows, method))
        return self._training.carry_out(here, engine, is_stopped)

    # Eq. (3)

    def take(self, event: Event, trained: Trained) -> None:
        """Servers take what their groups trained."""
        for group in self._here(event.groups):
            if len(group.clients):
                self._merge(group, self._combined(group, trained))
        self._training.spare = trained.sums

    def _combined(self, group: Group, trained: Trained) -> Tensor:
        """Return the weighted sum of the clients' models; keep what clients remember."""
        total = mean = trained.sums[trained.place[group.number]]
        models = trained.models.get(group.number)
        if models is not None:
            period = Period(group, self.algorithm)
            received = self.held[self.rows_of_groups[group.number]]
            for method in self.algorithm.having("combine"):
                brought = models
                if group.stretch is not None:
                    stretch = as_tensor(group.stretch, models)[:, None]
                    brought = received + stretch * (models - received)
                shares, rows = as_tensor(group.shares, models), self.rows_of(method, group)
                arrays = as_array(brought), as_array(shares), as_array(received)
                mean = as_tensor(method.combine(*arrays, rows, period), total)
                total.copy_(group.scale * mean)
            if mean is total and not group.is_mean:
                mean = received + (total - group.total * received) / group.scale
            moved, move = (models - received)[:, : self._size], (mean - received)[: self._size]
            for method in self.algorithm.having("learn"):
                both = ChainMap(trained.rows_of(method, group), self.rows_of(method, group))
                method.learn(as_array(moved), as_array(move), both, period)
        here = self.row_of_client[group.clients]
        for name, rows_of_all in trained.rows.items():
            self.clients[name][here] = rows_of_all[trained.part[group.number]]
        return total

    def _merge(self, group: Group, total: Tensor) -> None:
        """The formula of `Group`; total is the weighted sum of its clients' models."""
        row, number = self.row_of_server[group.server], self.rows_of_groups[group.number]
        takers, back, after = self.algorithm.having("take"), group.keep - 1 + group.follow, total
        is_moved = self.begun is not self.models or not group.is_mean
        if is_moved or takers:
            model, begun, received = self.models[row], self.begun[number], self.held[number]
        if is_moved:
            weights = group.scale if self.algorithm.having("combine") else group.total
            # First this difference: it is 0 where nobody moved the model meanwhile, eq. (3).
            now = (0.0 if group.waits else group.keep) * model.double() - back * begun.double()
            now = now + (group.follow - weights) * received.double() + total + self.aside[row]
            self.aside[row] = now if group.waits else 0.0
            if group.waits:
                return
            after = now.to(total.dtype)
        for method in takers:
            before = (group.keep * model - back * begun + group.follow * received)[: self._size]
            both = as_array(before), as_array(after[: self._size])
            taken = method.take(*both, self.rows_of(method, group), Period(group, self.algorithm))
            after[: self._size] = as_tensor(taken, after)
        self.models[row] = after

    # Eq. (5)

    def mix(self, event: Event) -> None:
        """Servers exchange models with each other, if it is time."""
        ending, mixing = self.algorithm.having("ended"), event.mixing
        before = self.models.clone() if ending else self.models
        if mixing is not None:
            if len(event.groups) < self.algorithm.network.servers:
                self.set_begun_apart()  # other groups go on
            if self.links or self.algorithm.having("exchange") or self.algorithm.having("tell"):
                self.models[:] = self._exchange_one_by_one(event, mixing)
            else:
                here: slice | list[int] = slice(None)
                if mixing.among is not None:
                    rows = self.row_of_server
                    here = [rows[server] for server in mixing.among if server in rows]
                is_coded = "between.held" in self.servers
                shown = partial(self._show, mixing, event.k) if is_coded else None
                self.models[here] = exchanged(mixing, self.models[here], self.ranks, shown)
        for method in ending:
            both = as_array(before[:, : self._size]), as_array(self.models[:, : self._size])
            method.ended(*both, self.all_rows_of(method), event, self.algorithm)

    def _exchange_one_by_one(self, event: Event, mixing: Averager) -> Tensor:
        """Exchanges in which servers hear each neighbour apart: by its own link, or a lie."""
        stamp = event.k if mixing.among is None else event.number
        mixing = mixing.of_all(self.algorithm.network.shares.cluster)
        rules, models = self.algorithm.having("exchange"), as_array(self.models.double())
        exchange = rules[0].exchange if rules else mixed
        rows = self.all_rows_of(rules[0]) if rules else {}
        for number in range(mixing.exchanges):
            shown = models
            if "between.held" in self.servers:
                now = as_tensor(models, self.models)
                shown = as_array(self._show(mixing, stamp, now, number).double())
            hear = partial(self._told, mixing, models, shown)
            models = exchange(models, hear, rows, mixing, number)
        return as_tensor(models, self.models)

    def _told(
        self, mixing: Averager, models: Floats, shown: Floats, sender: int, receiver: int
    ) -> tuple[Floats, bool]:
        """Return what a server hears of a neighbour's model, and whether that is a lie.

        It hears how that model differs from its own, as both ends of the link know them.
        """
        seen = models if self.links else shown
        for method in self.algorithm.having("tell"):
            if sender in method.liars:
                lie = method.tell(seen, sender, receiver, self.all_rows_of(method), mixing)
                return models[receiver] + (lie - seen[receiver]), True
        there, here = sender, receiver
        if self.links:
            there, here = self.links[sender, receiver], self.links[receiver, sender]
        return models[receiver] + (shown[there] - shown[here]), False

    def _show(self, mixing: Averager, stamp: int, models: Tensor, number: int) -> Tensor:
        """Tell neighbours what has changed; return what they hold: a row of a server, or a link."""
        shown, senders = self.servers["between.held"], list(self.ranks.servers)
        rows = list(range(len(shown)))
        if self.links:
            uses = mixing.generator + mixing.generator.T != 0
            rows = [row for way, row in self.links.items() if uses[way]]
            senders = [sender for sender, receiver in self.links if uses[sender, receiver]]
        change = models[[self.row_of_server[sender] for sender in senders]] - shown[rows]
        draw = Draw(self.problem.seed, np.array(senders), stamp, BETWEEN + number)
        shown[rows] += self._through("between", change, draw)
        return shown

    # Eq. (4)

    def begin(self, event: Event) -> None:
        """Groups begin anew from their server's model, by what the way down carries."""
        groups = self._here(event.groups)
        rows = [self.rows_of_groups[group.number] for group in groups]
        if self.begun is not self.models:
            self.begun[rows] = self.models[[self.row_of_server[group.server] for group in groups]]
        if self.held is not self.begun and groups:
            numbers = np.array([group.number for group in groups])
            draw = Draw(self.problem.seed, numbers, np.array([g.k for g in groups]), DOWN)
            self.held[rows] += self._through("down", self.begun[rows] - self.held[rows], draw)

    def _through(self, way: str, change: Tensor, draw: Draw) -> Tensor:
        """Return what arrives of a difference, which includes what did not arrive before."""
        return as_tensor(self.algorithm.codecs[way].through(way, as_array(change), draw), change)

    def _here(self, groups: Iterable[Group]) -> list[Group]:
        return [group for group in groups if group.number in self.rows_of_groups]
