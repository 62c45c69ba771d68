"""The state of a run: rows of servers, groups and clients, and what an event does to them.

After a broadcast every client holds its server's model, so nothing of a client is kept but what
methods remember. Training changes nothing: what it gave is written when a server takes its group,
so training that is interrupted can be dropped.

On several ranks each holds whole clusters. All rows are in the order of servers, and of clients
server by server, so that the number of ranks shows in no bit.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.events import Event, Group, Indices
from sdfeel.algorithm.methods.codecs import Draw
from sdfeel.algorithm.methods.method import Floats, Method, Period, Row
from sdfeel.engines.engine import Engine
from sdfeel.engines.problem import Problem
from sdfeel.errors import InputError
from sdfeel.network import Averager
from sdfeel.simulation.exchange import exchanged
from sdfeel.simulation.ranks import Ranks
from sdfeel.simulation.training import Trained, Training

__all__ = ["State"]

# Factors of models up to which they are rounding errors of numbers whose sum is 0.
ROUNDING = 1e-15
# What tells the streams of random numbers of messages apart: up, down, and an exchange each.
DOWN, BETWEEN = 1, 2


class State:
    """Rows of the servers, groups and clients that this process holds.

    models  of servers; begun: of groups, their server's model when they began; held: what clients
            got of it; aside: what servers have put aside, in float64
    clients, servers  what methods and codecs remember, as `name.row`
    """

    def __init__(self, problem: Problem, algorithm: Algorithm, start: Tensor, ranks: Ranks) -> None:
        self.problem, self.algorithm, self.ranks = problem, algorithm, ranks
        start, self._size = start.to(problem.device), problem.layout.parameters
        self.models = start.repeat(len(ranks.servers), 1)
        self.aside = torch.zeros_like(self.models, dtype=torch.float64)
        self._row_of = {server: row for row, server in enumerate(ranks.servers)}
        self.rows_of_groups = self._row_of
        # As long as nobody moves a server's model, these are the very same rows.
        self.begun = self.models
        if algorithm.pace.groups == "clients":
            self.rows_of_groups = {int(c): row for row, c in enumerate(ranks.clients)}
            self.begun = start.repeat(len(ranks.clients), 1)
        self.held = self.begun if algorithm.codecs["down"].exact else self.begun.clone()
        self.clients, self.servers = self._first_rows(start)
        self._training = Training(self)

    def _first_rows(self, start: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return what methods and codecs remember at the beginning."""
        algorithm = self.algorithm
        clients, servers = {}, {}
        for name, row in algorithm.rows.items():
            if row.of == "clients" and not row.new_each_period:
                clients[name] = self._new_rows(row, start, len(self.ranks.clients))
            elif row.of == "servers":
                servers[name] = self._new_rows(row, start, len(self.ranks.servers)).cpu()
        if algorithm.codecs["up"].feeds_back:
            clients["up.residual"] = start.new_zeros(len(self.ranks.clients), len(start))
        if not algorithm.codecs["between"].exact:
            if "rounds" in algorithm.pace.breaks and self.ranks.size > 1:
                remedy = "codecs.between with a pace without rounds: on one process only"
                raise InputError("ranks", self.ranks.size, remedy)
            links = [] if "rounds" not in algorithm.pace.breaks else self._links
            servers["between.held"] = start.repeat(len(links or self.ranks.servers), 1)
        return clients, servers

    def _new_rows(self, row: Row, start: Tensor, count: int) -> Tensor:
        if row.first == "model":
            return start[: self._size].repeat(count, 1)
        return start.new_full((count, row.width or self._size), row.first)

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
            method.prepare(rows, periods, partial(self._mean_of_rows, method))
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
                mean, row = trained.sums[trained.place[group.number]], self._row_of[group.server]
                if len(group.clients):
                    self._optimize(group, self.held[row], mean)
                else:
                    mean.copy_(self.models[row])
            self.models, self._training.spare = trained.sums, self.models
            return
        self._own_rows()
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
                    brought = received + _as(group.stretch, models)[:, None] * (models - received)
                arrays = _array(brought), _array(_as(group.shares, models)), _array(received)
                own_rows = self.rows_of(method, group)
                mean = _as(method.combine(*arrays, own_rows, period), total)
                total.copy_(group.scale * mean)
            if mean is total and (group.scale != 1 or group.stretch is not None):
                mean = received + (total - group.total * received) / group.scale
            moved, move = (models - received)[:, : self._size], (mean - received)[: self._size]
            for method in self.algorithm.having("learn"):
                client_rows = {
                    name: _array(rows) for name, rows in trained.rows_of(method, group).items()
                }
                both = ChainMap(client_rows, self.rows_of(method, group))
                method.learn(_array(moved), _array(move), both, period)
        here = self._training.rows_of_clients(group.clients)
        for name, rows in trained.rows.items():
            self.clients[name][here] = rows[trained.part[group.number]]

    def _merge(self, group: Group, total: Tensor) -> None:
        """The formula of `Group`, in float64; total is the weighted sum of its clients' models."""
        row, number = self._row_of[group.server], self.rows_of_groups[group.number]
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
            models = _array(before[: self._size]), _array(after[: self._size])
            rows, period = self.rows_of(method, group), Period(group, self.algorithm)
            after[: self._size] = _as(method.take(*models, rows, period), after)

    def _own_rows(self) -> None:
        """Groups that go on while a server's model moves keep the one that they began from."""
        if self.begun is self.models:
            self.begun = self.models.clone()
            if self.held is self.models:
                self.held = self.begun

    # Eq. (5)

    def mix(self, event: Event) -> None:
        """Servers exchange models with each other, if it is time."""
        ending, mixing = self.algorithm.having("ended"), event.mixing
        before = self.models.clone() if ending else self.models
        if mixing is not None and mixing.among is None:
            coded = None if "between.held" not in self.servers else partial(self._shown, event.k)
            self.models = exchanged(mixing, self.models, self.ranks, coded)
        elif mixing is not None:
            self._own_rows()
            self._swap(event, mixing)
        for method in ending:
            both = _array(before[:, : self._size]), _array(self.models[:, : self._size])
            method.ended(*both, self._all_rows_of(method), event, self.algorithm)

    def _shown(self, k: int, models: Tensor, number: int) -> Tensor:
        """Return what neighbours hold of each server's model in an exchange."""
        shown = self.servers["between.held"]
        draw = Draw(self.problem.seed, np.array(self.ranks.servers), k, BETWEEN + number)
        shown += self._through("between", models - shown, draw)
        return shown

    def _swap(self, event: Event, mixing: Averager) -> None:
        """Exchange one server's model with its neighbours; the others keep theirs."""
        here = [self._row_of[d] for d in mixing.among or () if d in self._row_of]
        if "between.held" not in self.servers:
            self.models[here] = exchanged(mixing, self.models[here], self.ranks)
            return
        # Each neighbour holds something else of a server: a row for each end of each link.
        models = self.models.to(torch.float64, copy=True)
        P, place = mixing.exchange(0), (mixing.among or ()).index
        for near, other in mixing.links or ():
            shown = {}
            for end, far in ((near, other), (other, near)):
                last_shown = self.servers["between.held"][self._links.index((end, far))]
                draw = Draw(self.problem.seed, np.array([end]), event.number, BETWEEN + far)
                change = self.models[self._row_of[end]] - last_shown
                last_shown += self._through("between", change[None], draw)[0]
                shown[end] = last_shown.double()
            for end, far in ((near, other), (other, near)):
                weight = float(P[place(far), place(end)])
                models[self._row_of[end]] += weight * (shown[far] - shown[end])
        self.models[here] = models[here].to(self.models.dtype)

    @cached_property
    def _links(self) -> list[tuple[int, int]]:
        """Both directions of every link."""
        edges = sorted((int(a), int(b)) for a, b in self.algorithm.network.graph.edges())
        return [*edges, *((b, a) for a, b in edges)]

    # Eq. (4)

    def begin(self, event: Event) -> None:
        """Groups begin anew from their server's model, by what the way down carries."""
        groups, is_plain = self._here(event.groups), self.held is self.begun
        rows = [self.rows_of_groups[group.number] for group in groups]
        is_whole = len(event.groups) == self.algorithm.network.servers
        if self.algorithm.pace.groups == "servers" and is_whole:
            self.begun = self.models
        else:
            self.begun[rows] = self.models[[self._row_of[group.server] for group in groups]]
        if is_plain:
            self.held = self.begun
        elif groups:
            numbers = np.array([group.number for group in groups])
            draw = Draw(self.problem.seed, numbers, np.array([g.k for g in groups]), DOWN)
            received = self.held[rows]
            self.held[rows] = received + self._through("down", self.begun[rows] - received, draw)

    def _through(self, way: str, change: Tensor, draw: Draw) -> Tensor:
        """Return what arrives of a difference, which includes what did not arrive before."""
        return _as(self.algorithm.codecs[way].through(way, _array(change), draw), change)

    # Rows

    def _here(self, groups: Iterable[Group]) -> list[Group]:
        return [group for group in groups if group.number in self.rows_of_groups]

    def row_of_server(self, server: int) -> int:
        """Return the row of a server among those held here."""
        return self._row_of[server]

    def rows_of(self, method: Method, group: Group) -> OwnRows:
        """Rows of a group's server, to be changed; and of its clients, to be read."""
        clients = self._training.rows_of_clients(group.clients)
        return OwnRows(self.servers, self.clients, method.name, self._row_of[group.server], clients)

    def _all_rows_of(self, method: Method) -> dict[str, Floats]:
        """Rows of all servers and clients held here."""
        known = {**self.servers, **self.clients}
        names = {name: f"{method.name}.{name}" for name in method.rows}
        return {name: _array(known[rows]) for name, rows in names.items() if rows in known}

    def _mean_of_rows(self, method: Method, name: str, weights: Mapping[int, float]) -> Floats:
        """The weighted mean of a row over servers, wherever they are held."""
        weights_here = torch.tensor(
            [weights.get(d, 0.0) for d in self.ranks.servers], dtype=torch.float64
        )
        rows = self.servers[f"{method.name}.{name}"]
        return _array(self.ranks.chain(weights_here[:, None] * rows.double()).to(rows.dtype))

    # Reading, saving

    def mean(self) -> Tensor:
        """u_k: the weighted mean of the servers' models, with the shares m-tilde."""
        shares = torch.from_numpy(self.algorithm.network.shares.cluster[self.ranks.servers])
        total = self.ranks.chain(shares[:, None].to(self.models.device) * self.models.double())
        return total.to(self.models.dtype)

    def model_of(self, client: int) -> Tensor:
        """The model of a client's server, which is held here."""
        return self.models[self._row_of[int(self.algorithm.network.clusters.server_of[client])]]

    def all_servers(self) -> Tensor:
        """D x M: at the leading process the models of all servers."""
        return self.ranks.gather(self.models, "servers")

    def _saved(self) -> dict[str, tuple[Tensor, Literal["servers", "clients"]]]:
        """Return what training needs to go on, by name."""
        groups = self.algorithm.pace.groups
        saved = {"servers.model": (self.models, "servers"), "groups.begun": (self.begun, groups)}
        if self.held is not self.begun:
            saved["groups.held"] = (self.held, groups)
        if self.algorithm.pace.groups == "clients":
            saved["servers.aside"] = (self.aside, "servers")
        rows_of = self.algorithm.rows
        for name, rows in self.servers.items():
            if name not in rows_of or not rows_of[name].new_each_period:
                saved[f"servers.{name}"] = (rows, "servers")
        return saved | {f"clients.{name}": (rows, "clients") for name, rows in self.clients.items()}

    def save(self) -> dict[str, Tensor]:
        """Return all that training needs to go on; at the leading process that of all ranks."""
        saved = self._saved()
        if self.begun is self.models:
            del saved["groups.begun"]
        return {name: self.ranks.gather(rows, of) for name, (rows, of) in saved.items()}

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Go on from there; each rank takes its part."""
        if "groups.begun" in saved:
            self._own_rows()
        for name, (rows, of) in self._saved().items():
            if name in saved:
                rows.copy_(self.ranks.part(saved[name].to(rows), of))


@dataclass(frozen=True, eq=False)
class OwnRows(MutableMapping[str, Floats]):
    """Rows by name; those of clients are put together when they are asked for."""

    servers: Mapping[str, Tensor]
    clients: Mapping[str, Tensor]
    method: str
    server: int
    here: Indices

    def __getitem__(self, name: str) -> Floats:
        key = f"{self.method}.{name}"
        if key in self.servers:
            return _array(self.servers[key][self.server])
        return _array(self.clients[key][torch.from_numpy(self.here)])

    def __setitem__(self, name: str, values: Floats) -> None:
        self[name][...] = values

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"the row {name} of {self.method} stays")

    def __iter__(self) -> Iterator[str]:
        known = (*self.servers, *self.clients)
        return (n.partition(".")[2] for n in known if n.partition(".")[0] == self.method)

    def __len__(self) -> int:
        return len(list(iter(self)))


def _array(tensor: Tensor) -> Floats:
    """Return the same memory as an array, where it is the processor's."""
    array: Floats = tensor.detach().cpu().numpy()
    return array


def _as(values: Floats, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(like)
