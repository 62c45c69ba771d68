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
import torch
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

# Factors of models up to which they are rounding errors of numbers whose sum is 0.
ROUNDING = 1e-15
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
        groups = self._here(event.groups)
        for group in groups:
            if len(group.clients):
                self._combine(group, trained)
        if self._are_means(event.groups):
            for group in groups:
                mean = trained.sums[trained.place[group.number]]
                row = self.row_of_server[group.server]
                if len(group.clients):
                    self._optimize(group, self.held[row], mean)
                else:
                    mean.copy_(self.models[row])
            self.models, self._training.spare = trained.sums, self.models
            return
        self.set_begun_apart()
        for group in groups:
            if len(group.clients):
                self._merge(group, trained.sums[trained.place[group.number]])

    def _are_means(self, groups: Sequence[Group]) -> bool:
        """Return whether every server takes the mean of its clients, and no neighbour moved it."""
        if self.begun is not self.models or len(groups) != self.algorithm.network.servers:
            return False
        return all(g.scale == g.keep == g.follow == 1 and g.stretch is None for g in groups)

    def _combine(self, group: Group, trained: Trained) -> None:
        """Make one model out of those of the clients, and keep what clients remember."""
        place, number = trained.place[group.number], self.rows_of_groups[group.number]
        models, total, received = (
            trained.models.get(group.number),
            trained.sums[place],
            self.held[number],
        )
        if models is not None:
            period, mean = Period(group, self.algorithm), total
            for method in self.algorithm.having("combine"):
                brought = models
                if group.stretch is not None:
                    brought = received + as_tensor(group.stretch, models)[:, None] * (
                        models - received
                    )
                arrays = (
                    as_array(brought),
                    as_array(as_tensor(group.shares, models)),
                    as_array(received),
                )
                own_rows = self.rows_of(method, group)
                mean = as_tensor(method.combine(*arrays, own_rows, period), total)
                total.copy_(group.scale * mean)
            if mean is total and (group.scale != 1 or group.stretch is not None):
                mean = received + (total - group.total * received) / group.scale
            moved, move = (models - received)[:, : self._size], (mean - received)[: self._size]
            for method in self.algorithm.having("learn"):
                client_rows = {
                    name: as_array(rows) for name, rows in trained.rows_of(method, group).items()
                }
                both = ChainMap(client_rows, self.rows_of(method, group))
                method.learn(as_array(moved), as_array(move), both, period)
        here = self.row_of_client[group.clients]
        for name, rows in trained.rows.items():
            self.clients[name][here] = rows[trained.part[group.number]]

    def _merge(self, group: Group, total: Tensor) -> None:
        """The formula of `Group`, in float64; total is the weighted sum of its clients' models."""
        row, number = self.row_of_server[group.server], self.rows_of_groups[group.number]
        weights = group.scale if self.algorithm.having("combine") else group.total
        # The factors of the server's model, of what it was and of what clients got of it.
        factors = [group.keep, -((group.keep - 1) + group.follow), group.follow - weights]
        if self.held is self.begun:
            factors = [group.keep, -((group.keep - 1) + weights), 0.0]
        if group.waits:
            factors[0] -= group.keep
        models = self.models[row], self.begun[number], self.held[number]
        # First these differences: they are 0 where nobody moved the model meanwhile, eq. (3).
        after = torch.zeros_like(models[0], dtype=torch.float64)
        for factor, model in zip(factors, models, strict=True):
            if abs(factor) > ROUNDING:
                after += factor * model.double()
        after += total.double()
        if group.waits:
            self.aside[row] += after
            return
        after += self.aside[row]
        self.aside[row] = 0
        taken = after.to(total.dtype)
        if self.algorithm.having("take"):
            model, begun, received = models
            before = group.follow * received + group.keep * model
            self._optimize(group, before - ((group.keep - 1) + group.follow) * begun, taken)
        self.models[row] = taken

    def _optimize(self, group: Group, before: Tensor, after: Tensor) -> None:
        """Apply server optimizers to the mean of a server's clients, in place, but for buffers."""
        for method in self.algorithm.having("take"):
            models = as_array(before[: self._size]), as_array(after[: self._size])
            rows, period = self.rows_of(method, group), Period(group, self.algorithm)
            after[: self._size] = as_tensor(method.take(*models, rows, period), after)

    # Eq. (5)

    def mix(self, event: Event) -> None:
        """Servers exchange models with each other, if it is time."""
        ending, mixing = self.algorithm.having("ended"), event.mixing
        before = self.models.clone() if ending else self.models
        if mixing is not None and mixing.among is None:
            coded = None if "between.held" not in self.servers else partial(self._shown, event.k)
            if self.algorithm.having("exchange") or self.algorithm.having("tell"):
                self.models = self._exchange_one_by_one(mixing, coded)
            else:
                self.models = exchanged(mixing, self.models, self.ranks, coded)
        elif mixing is not None:
            self.set_begun_apart()
            self._swap(event, mixing)
        for method in ending:
            both = as_array(before[:, : self._size]), as_array(self.models[:, : self._size])
            method.ended(*both, self.all_rows_of(method), event, self.algorithm)

    def _exchange_one_by_one(
        self, mixing: Averager, coded: Callable[[Tensor, int], Tensor] | None
    ) -> Tensor:
        """Exchanges in which servers look at each model that they hear, which may be a lie."""
        rules, tellers = self.algorithm.having("exchange"), self.algorithm.having("tell")
        result = as_array(self.models.double())
        for number in range(mixing.exchanges):
            models = result
            if coded is not None:
                models = as_array(coded(as_tensor(result, self.models), number).double())

            def told(sender: int, receiver: int, now: Floats = models) -> tuple[Floats, bool]:
                for method in tellers:
                    if sender in method.liars:
                        rows = self.all_rows_of(method)
                        return method.tell(now, sender, receiver, rows, mixing), True
                return now[sender], False

            exchange = rules[0].exchange if rules else mixed
            rows = self.all_rows_of(rules[0]) if rules else {}
            result = result + (exchange(models, told, rows, mixing, number) - models)
        return as_tensor(result, self.models)

    def _shown(self, k: int, models: Tensor, number: int) -> Tensor:
        """Return what neighbours hold of each server's model in an exchange."""
        shown = self.servers["between.held"]
        draw = Draw(self.problem.seed, np.array(self.ranks.servers), k, BETWEEN + number)
        shown += self._through("between", models - shown, draw)
        return shown

    def _swap(self, event: Event, mixing: Averager) -> None:
        """Exchange one server's model with its neighbours; the others keep theirs."""
        here = [self.row_of_server[d] for d in mixing.among or () if d in self.row_of_server]
        if "between.held" not in self.servers:
            self.models[here] = exchanged(mixing, self.models[here], self.ranks)
            return
        # Each neighbour holds something else of a server: a row for each end of each link.
        models = self.models.to(torch.float64, copy=True)
        P, place = mixing.exchange(0), (mixing.among or ()).index
        for near, other in mixing.links or ():
            shown = {}
            for end, far in ((near, other), (other, near)):
                last_shown = self.servers["between.held"][self.links.index((end, far))]
                draw = Draw(self.problem.seed, np.array([end]), event.number, BETWEEN + far)
                change = self.models[self.row_of_server[end]] - last_shown
                last_shown += self._through("between", change[None], draw)[0]
                shown[end] = last_shown.double()
            for end, far in ((near, other), (other, near)):
                weight = float(P[place(far), place(end)])
                models[self.row_of_server[end]] += weight * (shown[far] - shown[end])
        self.models[here] = models[here].to(self.models.dtype)

    # Eq. (4)

    def begin(self, event: Event) -> None:
        """Groups begin anew from their server's model, by what the way down carries."""
        groups, is_plain = self._here(event.groups), self.held is self.begun
        rows = [self.rows_of_groups[group.number] for group in groups]
        is_whole = len(event.groups) == self.algorithm.network.servers
        if self.algorithm.pace.groups == "servers" and is_whole:
            self.begun = self.models
        else:
            self.begun[rows] = self.models[[self.row_of_server[group.server] for group in groups]]
        if is_plain:
            self.held = self.begun
        elif groups:
            numbers = np.array([group.number for group in groups])
            draw = Draw(self.problem.seed, numbers, np.array([g.k for g in groups]), DOWN)
            received = self.held[rows]
            self.held[rows] = received + self._through("down", self.begun[rows] - received, draw)

    def _through(self, way: str, change: Tensor, draw: Draw) -> Tensor:
        """Return what arrives of a difference, which includes what did not arrive before."""
        return as_tensor(self.algorithm.codecs[way].through(way, as_array(change), draw), change)

    def _here(self, groups: Iterable[Group]) -> list[Group]:
        return [group for group in groups if group.number in self.rows_of_groups]
