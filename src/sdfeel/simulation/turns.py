"""The state of a run by turns: servers' models, and what each group of clients began from.

Groups that come one after the other are trained in one call, as what they train depends only on
what they began from; their turns are then taken in order. What becomes of a server's model is in
`sdfeel.algorithm.turns`. On several ranks each holds whole clusters and all know the order; the
models of neighbours cross ranks at a server's turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.local import Rows
from sdfeel.algorithm.turns import Agenda, Flow, Part, Turn
from sdfeel.network import Averager
from sdfeel.simulation import flows
from sdfeel.simulation.arrival import at_once, by_rule, cuts, receive
from sdfeel.simulation.engines.engine import Engine, SummingEngine, Sums, Work
from sdfeel.simulation.exchange import Routes, mixed
from sdfeel.simulation.memories import Memories
from sdfeel.simulation.messages import Messages
from sdfeel.simulation.problem import Problem
from sdfeel.simulation.ranks import Placement, Ranks

__all__ = ["TurnState"]


class TurnState:
    """Models and memories of the servers, groups and clients that this process holds."""

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        agenda: Agenda,
        start: Tensor,
        ranks: Ranks,
        placement: Placement,
    ) -> None:
        self.problem, self.algorithm = problem, algorithm
        self.ranks, self._placement = ranks, placement
        self._servers = list(placement.servers[ranks.rank])
        self._rank_of = {d: r for r, own in enumerate(placement.servers) for d in own}
        groups = [g for g in range(len(agenda.groups)) if agenda.server_of(g) in self._servers]
        self._group_rows = {group: row for row, group in enumerate(groups)}
        per_rank = [len(own) for own in placement.servers]
        self._groups_held = per_rank if ranks.size > 1 else [len(groups)]
        self._place = {int(client): at for at, client in enumerate(problem.client_ids)}
        self._routes = Routes.find(algorithm.network, placement, ranks.rank)
        self._messages = Messages(algorithm, problem.seed, ranks, placement, start[None])
        self.models = start.to(problem.device).repeat(len(self._servers), 1)
        self._begun = start.to(problem.device).repeat(len(groups), 1)
        # What the clients of each group hold of that.
        self._held = self._begun if self._messages.told_as_they_are else self._begun.clone()
        self._aside = torch.zeros_like(self.models, dtype=torch.float64)
        held = placement.clients[ranks.rank]
        self._rows_of = {int(client): row for row, client in enumerate(held)}
        rows = len(held), len(self._servers)
        self._memories = Memories(algorithm, *rows, self.models, problem.layout.parameters)
        self._sums = self.models[:0]

    # Local updates

    def local_updates(
        self, engine: Engine, turns: Sequence[Turn], pause: Callable[[], bool]
    ) -> list[NDArray[np.float64]] | None:
        """Train the groups of these turns: the losses of each client held here, in their order.

        None if `pause` said so between two blocks of clients; then nothing has happened.
        """
        here = [turn for turn in turns if turn.group in self._group_rows]
        parts = [turn.part for turn in here]
        clients = np.array([c for part in parts for c in part.clients], dtype=np.int64)
        to = np.repeat(np.arange(len(here)), [len(part.clients) for part in parts])
        rows = np.array([self._group_rows[turn.group] for turn in here], dtype=np.int64)
        if len(self._sums) < len(here):
            self._sums = self.models.new_empty(len(here), self.models.shape[1])
        if len(clients) == 0:
            return []
        empty = np.ones(len(here), dtype=bool)
        first, last, weights = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("first", "last", "weights")
        )
        losses: list[NDArray[np.float64]] = []
        undone = not self._memories.clients and not self._messages.clients and not engine.remembers
        for block in cuts(to, self._block(engine), self.algorithm.rule is not None):
            if losses and undone and pause():
                return None
            sums = Sums(self._sums, to[block], weights[block], empty)
            made = self._carry_out(
                engine, clients[block], rows[to[block]], first[block], last[block], sums, parts
            )
            steps = last[block] - first[block] + 1
            losses += [own[:count] for own, count in zip(made, steps, strict=True)]
        return losses

    def trained_here(self, turns: Sequence[Turn]) -> list[tuple[int, int]]:
        """The clients that `local_updates` told losses of, and their first iterations."""
        parts = [turn.part for turn in turns if turn.group in self._group_rows]
        return [(int(c), int(k)) for p in parts for c, k in zip(p.clients, p.first, strict=True)]

    def _carry_out(
        self,
        engine: Engine,
        clients: NDArray[np.int64],
        rows: NDArray[np.int64],
        first: NDArray[np.int64],
        last: NDArray[np.int64],
        sums: Sums,
        parts: Sequence[Part],
    ) -> NDArray[np.float64]:
        places = np.array([self._place[int(client)] for client in clients])
        anchor = self._held[rows] if self.algorithm.local.prox else None
        work = Work(places, first, last, anchor)
        own = np.array([self._rows_of[int(client)] for client in clients])
        kept = self._memories.of(own)
        if isinstance(engine, SummingEngine) and self._only_sums:
            losses = engine.add_up(self._held, rows, kept, work, sums)
        else:
            models = self._held[rows]
            losses = engine.local_updates(models, kept, work)
            receive(models, self._held, rows, own, last, self._messages)
            self._aggregate(models, rows, sums, parts)
        self._memories.keep(kept, own)
        return losses

    @property
    def _only_sums(self) -> bool:
        """Whether nobody asks for a client's model but the sum of its group."""
        return self.algorithm.rule is None and self._messages.as_they_are

    def _aggregate(
        self, models: Tensor, rows: NDArray[np.int64], sums: Sums, parts: Sequence[Part]
    ) -> None:
        """The weighted sum; or what the rule makes of models brought to as many steps."""
        rule = self.algorithm.rule
        if rule is None:
            sums.add(models)
            return
        for turn in np.unique(sums.to):
            own, part = np.flatnonzero(sums.to == turn), parts[int(turn)]
            before = self._held[int(rows[own[0]])]
            assert part.shares is not None and part.stretch is not None  # noqa: S101, PT018 - no star
            stretch = torch.from_numpy(part.stretch).to(models)[:, None]
            alike = bool((part.stretch == 1).all())
            brought = models[own] if alike else before + stretch * (models[own] - before)
            sums.rows[int(turn)] = part.scale * by_rule(rule, brought, part.shares, before)

    def _block(self, engine: Engine) -> int:
        """How many clients an engine is handed at a time, at most."""
        unwritten = self._only_sums and not self._memories.clients
        return at_once(engine, self.models.shape[1], unwritten)

    # Turns

    def take(self, turns: Sequence[Turn]) -> None:
        """What was trained is taken, turn by turn, and servers mix."""
        trained = 0
        together = bool(turns) and isinstance(turns[-1].mixing, Averager)
        for turn in turns:
            if turn.group in self._group_rows:
                self._merge(turn, self._sums[trained])
                trained += 1
            if isinstance(turn.mixing, Flow):
                self._flow(turn.mixing)
            elif isinstance(turn.mixing, Averager):
                parts = self._routes, self.ranks, self._messages, 0
                self.models = mixed(turn.mixing, self.models, *parts)
            if not together:
                self._begin([turn])
        if together:
            self._begin(turns)

    def _merge(self, turn: Turn, trained: Tensor) -> None:
        """What is left of the models before, and what was trained; in double precision."""
        part, row = turn.part, turn.server - self._servers[0]
        group = self._group_rows[turn.group]
        model, begun = self.models[row], self._begun[group]
        if len(part.clients):
            left = (0.0 if part.waits else part.keep) * model.double()
            # First this difference: it is 0 where nobody moved the model meanwhile, eq. (3).
            if self.algorithm.rule is not None:
                left -= part.scale * begun.double()
            elif self._held is self._begun:
                left -= part.total * begun.double()
            else:
                left -= part.scale * begun.double()
                left -= (part.total - part.scale) * self._held[group].double()
            if part.waits:
                self._aside[row] += left + trained.double()
                return
            self.models[row] = (left + trained.double()).to(model.dtype)
        if not part.waits and bool(self._aside[row].any()):
            self.models[row] = (self.models[row].double() + self._aside[row]).to(model.dtype)
            self._aside[row] = 0

    def _begin(self, turns: Sequence[Turn]) -> None:
        """Eq. (4): groups begin anew from their server's model, by what the way down carries."""
        here = [turn for turn in turns if turn.group in self._group_rows]
        if not here:
            return
        rows = [self._group_rows[turn.group] for turn in here]
        self._begun[rows] = self.models[[turn.server - self._servers[0] for turn in here]]
        if self._held is not self._begun:
            groups, k = (np.array([getattr(t, name) for t in here]) for name in ("group", "k"))
            told = self._messages.told(self._begun[rows], self._held[rows], groups, k)
            self._held[rows] = told

    def _flow(self, flow: Flow) -> None:
        flows.carry_out(flow, self.models, self._servers, self._rank_of, self.ranks)

    # Reading and saving

    def mean(self) -> Tensor:
        """The weighted mean of the servers' models, m-tilde; what is being trained counts later."""
        own = torch.from_numpy(self.algorithm.network.shares.cluster[self._servers])
        total = self.ranks.chain(own[:, None].to(self.models.device) * self.models.double())
        return total.to(self.models.dtype)

    def servers(self) -> Tensor:
        """D x M: at the leading process the models of all servers."""
        return self.ranks.gather(self.models, [len(own) for own in self._placement.servers])

    def save(self) -> Rows:
        """All that training needs to go on; at the leading process that of all ranks."""
        servers = [len(own) for own in self._placement.servers]
        clients = [len(own) for own in self._placement.clients]
        saved = {
            "servers.model": self.servers(),
            "groups.model": self.ranks.gather(self._begun, self._groups_held),
            "servers.aside": self.ranks.gather(self._aside, servers),
        }
        if self._held is not self._begun:
            saved["groups.held"] = self.ranks.gather(self._held, self._groups_held)
        for name, rows in (self._memories.clients | self._messages.clients).items():
            saved[f"clients.{name}"] = self.ranks.gather(rows, clients)
        return saved

    def restore(self, saved: Rows) -> None:
        """Each rank takes its part."""
        before = sum(len(own) for own in self._placement.clients[: self.ranks.rank])
        held = slice(before, before + len(self._rows_of))
        self.models = saved["servers.model"].to(self.models)[self._servers].clone()
        self._aside = saved["servers.aside"].to(self._aside)[self._servers].clone()
        self._begun = saved["groups.model"].to(self._begun)[list(self._group_rows)].clone()
        self._held = self._begun
        if not self._messages.told_as_they_are:
            self._held = saved["groups.held"].to(self._begun)[list(self._group_rows)].clone()
        for rows in (self._memories.clients, self._messages.clients):
            for name in rows:
                rows[name] = saved[f"clients.{name}"].to(self.models)[held].clone()
