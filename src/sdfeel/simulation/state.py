"""The state of a run: named rows of servers and clients, and what aggregations do to them.

After a broadcast every client holds its server's model, so nothing of a client is kept but what its
rule and codec remember. Clients go through a period in blocks; a block's models exist only while
the engine works on them, and are added to their servers' sums in client order. Only in the middle
of a period, where a run is evaluated or saved, are the models of all present clients there.

On several ranks each holds whole clusters. All rows are in the order of servers, and of clients
server by server, so that the number of ranks shows in no bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.local import Rows
from sdfeel.algorithm.pace import Event
from sdfeel.network import Averager, Network
from sdfeel.simulation.arrival import at_once, by_rule, cuts, receive
from sdfeel.simulation.controls import Controls
from sdfeel.simulation.engines.engine import Engine, SummingEngine, Sums, Work
from sdfeel.simulation.exchange import Routes, mixed
from sdfeel.simulation.memories import Memories
from sdfeel.simulation.messages import Messages
from sdfeel.simulation.problem import Problem
from sdfeel.simulation.ranks import Placement, Ranks

__all__ = ["State"]


@dataclass
class _Visit:
    """The middle of a period: models, and what rules remember, of the clients that are present."""

    models: Tensor
    kept: Rows


@dataclass
class _Leg:
    """Part of a period: iterations first to last of the clients that are present here."""

    event: Event
    first: int
    last: int
    here: NDArray[np.int64]  # which of the clients held here
    weights: NDArray[np.float64]
    used: Tensor | None  # of a correction, for the clients of each server
    reach: float  # H of a correction
    sums: Tensor | None = None
    empty: NDArray[np.bool_] = field(default_factory=lambda: np.ones(0, dtype=bool))  # of `sums`
    losses: list[NDArray[np.float64]] = field(default_factory=list)

    @property
    def ends(self) -> bool:
        return self.last == self.event.last


class State:
    """Models and memories of the servers and clients that this process holds."""

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        start: Tensor,
        ranks: Ranks,
        placement: Placement,
    ) -> None:
        self.problem, self.algorithm = problem, algorithm
        self.ranks, self._placement = ranks, placement
        self._servers = placement.servers[ranks.rank]
        self.clients = np.array(placement.clients[ranks.rank])  # their numbers, server by server
        place = {int(client): at for at, client in enumerate(problem.client_ids)}
        self._places = np.array([place[int(client)] for client in self.clients])
        server_of = algorithm.network.clusters.server_of[self.clients]
        self._server_of = server_of - self._servers[0]
        self._routes = Routes.find(algorithm.network, placement, ranks.rank)
        self._other_routes: dict[tuple[tuple[int, int], ...], Routes] = {}
        self.models = start.to(problem.device).repeat(len(self._servers), 1)
        self._spare: Tensor | None = None  # memory of models that have been replaced
        width = problem.layout.parameters
        held = len(self.clients), len(self._servers)
        self._memories = Memories(algorithm, *held, self.models, width)
        self._controls = Controls(algorithm, ranks, placement, self.models, width)
        self._messages = Messages(algorithm, problem.seed, ranks, placement, self.models)
        self._parts = self._memories, self._controls, self._messages
        self._visit: _Visit | None = None
        self._ended = 0  # the last iteration of the period that ended last

    # Local updates

    def local_updates(
        self,
        engine: Engine,
        event: Event,
        first: int,
        last: int,
        pause: Callable[[], bool] = lambda: False,
    ) -> NDArray[np.float64] | None:
        """Lines 3 to 8 of Algorithm 1 for iterations first to last: eq. (2) and, where the period
        ends with them, eq. (3). Returns the losses, (present clients held here x iterations).

        `pause` is asked between two blocks of clients, where nothing is lost by going back to the
        beginning of the period; if it says so, all is as it was there and None is returned.
        """
        here = np.flatnonzero(event.clients[self.clients])
        weights = self.algorithm.network.shares.within_present(event.clients)[self.clients[here]]
        used = self._controls.in_use(event.clients)
        reach = self.algorithm.reach(event.last) if self._controls.of_clients else 0.0
        leg = _Leg(event, first, last, here, weights, used, reach)
        fresh = self._visit is None
        visit = self._visit
        if leg.ends:
            leg.sums, leg.empty = self._empty_sums(here)
        elif visit is None:
            kept = self._memories.of_a_period(len(here))
            visit = _Visit(self.models.new_empty(len(here), self.models.shape[1]), kept)
        undone = not engine.remembers and not any(part.clients for part in self._parts)
        ruled = self.algorithm.rule is not None
        for block in cuts(self._server_of[here], self.block(engine), ruled):
            if leg.losses and fresh and undone and pause():
                return None
            leg.losses.append(self._carry_out(engine, leg, block, visit, fresh))
        self._visit = None if leg.ends else visit
        if leg.sums is not None:
            begun = self._messages.held(self.models)
            if self._controls.of_clients:
                self._controls.after_mean(here, leg.sums - begun, leg.reach)
            self._memories.follow(begun, leg.sums, self._server_of[here])
            self.models, self._spare, self._ended = leg.sums, self.models, last
        if not leg.losses:
            return np.zeros((0, last - first + 1))
        return np.concatenate(leg.losses)

    def _empty_sums(self, here: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.bool_]]:
        """Where clients will be added up; a server without any keeps its model.

        In memory that was used before: new pages would cost as much as the sums.
        """
        sums = torch.empty_like(self.models) if self._spare is None else self._spare
        self._spare = None
        busy = np.zeros(len(sums), dtype=bool)
        busy[self._server_of[here]] = True
        if not busy.all():
            sums[~busy] = self.models[~busy]
        return sums, busy

    def block(self, engine: Engine) -> int:
        """How many clients an engine is handed at a time, at most."""
        unwritten = self._adds_up(engine) and not self._memories.clients
        return min(at_once(engine, self.models.shape[1], unwritten), len(self.clients))

    def _adds_up(self, engine: Engine) -> TypeGuard[SummingEngine]:
        """Whether the engine sees to all that a client's model is asked for."""
        if not isinstance(engine, SummingEngine):
            return False
        learns = not self._controls.of_clients or (engine.learns and self._controls.linear)
        return self.algorithm.rule is None and self._messages.as_they_are and learns

    def _carry_out(
        self, engine: Engine, leg: _Leg, block: slice, visit: _Visit | None, fresh: bool
    ) -> NDArray[np.float64]:
        held = leg.here[block]
        servers = self._server_of[held]
        ones = np.ones(len(held), dtype=np.int64)
        begun = self._messages.held(self.models)
        anchor = begun[servers] if self.algorithm.local.prox else None
        shift = self._controls.shift(leg.used, held)
        work = Work(self._places[held], leg.first * ones, leg.last * ones, anchor, shift)
        kept = self._memories.of(held, None if visit is None else visit.kept, block)
        sums = None if leg.sums is None else Sums(leg.sums, servers, leg.weights[block], leg.empty)
        if sums is not None and self._adds_up(engine):
            work = replace(work, learned=self._controls.learned(held, begun, leg.reach))
            rows = begun if fresh or visit is None else visit.models[block]
            begin = servers if fresh else np.arange(len(held))
            losses = engine.add_up(rows, begin, kept, work, sums)
        else:
            models = begun[servers] if fresh or visit is None else visit.models[block]
            losses = engine.local_updates(models, kept, work)
            if sums is not None:
                parts = self._messages, self._controls, leg.reach
                receive(models, begun, servers, held, leg.last, *parts)
                self._aggregate(models, sums)
            elif visit is not None:
                visit.models[block] = models
        self._memories.keep(kept, held)
        return losses

    # Aggregation

    def _aggregate(self, models: Tensor, sums: Sums) -> None:
        """Eq. (3), or what the rule makes of a whole cluster."""
        rule = self.algorithm.rule
        if rule is None:
            sums.add(models)
            return
        for server in np.unique(sums.to):
            own = np.flatnonzero(sums.to == server)
            before = self._messages.held(self.models)[int(server)]
            sums.rows[int(server)] = by_rule(rule, models[own], sums.weights[own], before)

    def exchange(self, averager: Averager) -> None:
        """Eq. (5): all exchanges of the averager, and what a correction learns from them."""
        before = self.models
        routes = self._routes_of(averager)
        self.models = mixed(averager, before, routes, self.ranks, self._messages, self._ended)
        if self.algorithm.correction is not None:
            reach = self.algorithm.reach(self._ended, self.algorithm.schedule.tau2)
            self._controls.after_exchange(before - self.models, reach)

    def _routes_of(self, averager: Averager) -> Routes:
        """Those of the network; of a graph that changes, those of the averager's own."""
        if averager.links is None:
            return self._routes
        if averager.links not in self._other_routes:
            self._other_routes.clear()  # a graph usually lasts for some rounds
            network = self.algorithm.network
            graph = Network(network.clusters, averager.links)
            found = Routes.find(graph, self._placement, self.ranks.rank)
            self._other_routes[averager.links] = found
        return self._other_routes[averager.links]

    def broadcast(self) -> None:
        """Eq. (4): clients hear of their server's model, by what the way down carries."""
        self._messages.down(self.models, self._ended)

    # Reading

    def mean(self, event: Event) -> Tensor:
        """u_k = sum of m-tilde_d x the model of cluster d; in a period its clients' mean."""
        models = self._now(event)
        own = torch.from_numpy(self.algorithm.network.shares.cluster[list(self._servers)])
        total = self.ranks.chain(own[:, None].to(models.device) * models.double())
        return total.to(models.dtype)

    def _now(self, event: Event) -> Tensor:
        """The servers' models, were all to aggregate now."""
        if self._visit is None:
            return self.models
        here = np.flatnonzero(event.clients[self.clients])
        shares = self.algorithm.network.shares.within_present(event.clients)
        models = self.models.clone()
        servers, empty = self._server_of[here], np.ones(len(models), dtype=bool)
        Sums(models, servers, shares[self.clients[here]], empty).add(self._visit.models)
        return models

    def servers(self, event: Event | None = None) -> Tensor:
        """D x M: at the leading process the models of all servers; with `event` as of now."""
        rows = [len(servers) for servers in self._placement.servers]
        return self.ranks.gather(self.models if event is None else self._now(event), rows)

    # Saving

    def save(self, event: Event) -> Rows:
        """All that training needs to go on; at the leading process that of all ranks."""
        everyone = [len(clients) for clients in self._placement.clients]
        there = [int(event.clients[list(c)].sum()) for c in self._placement.clients]
        saved = {"servers.model": self.servers()}
        held = [len(servers) for servers in self._placement.servers]
        for part in self._parts:
            for name, rows in part.clients.items():
                saved[f"clients.{name}"] = self.ranks.gather(rows, everyone)
            for name, rows in part.servers.items():
                saved[f"servers.{name}"] = self.ranks.gather(rows, held)
        if self._visit is not None:
            saved["period.model"] = self.ranks.gather(self._visit.models, there)
            for name, rows in self._visit.kept.items():
                saved[f"period.{name}"] = self.ranks.gather(rows, there)
        return saved

    def restore(self, saved: Rows, event: Event) -> None:
        """Each rank takes its part of what was saved; `event` is the period it was saved in."""
        rank, like = self.ranks.rank, self.models
        order = [list(clients) for clients in self._placement.clients]
        before = sum(len(clients) for clients in order[:rank])
        mine = slice(before, before + len(order[rank]))
        there = [int(event.clients[clients].sum()) for clients in order]
        present = slice(sum(there[:rank]), sum(there[: rank + 1]))
        own = list(self._servers)
        self.models = saved["servers.model"].to(like)[own]
        for part in self._parts:
            for name in part.clients:
                part.clients[name] = saved[f"clients.{name}"].to(like)[mine].clone()
            for name in part.servers:
                part.servers[name] = saved[f"servers.{name}"].to(like)[own].clone()
        self._visit = None
        if "period.model" in saved:
            names = self._memories.of_a_period(0)
            kept = {name: saved[f"period.{name}"].to(like)[present].clone() for name in names}
            self._visit = _Visit(saved["period.model"].to(like)[present].clone(), kept)
