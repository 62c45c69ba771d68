"""Rows of servers, groups and clients: the models, and what methods remember.

On several ranks each holds whole clusters. All rows are in the order of servers, and of clients
server by server, so that the number of ranks shows in no bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.events import Group, Indices
from sdfeel.algorithm.methods.method import Floats, Method, Row
from sdfeel.engines.problem import Problem
from sdfeel.errors import InputError
from sdfeel.simulation.ranks import Ranks


class Rows:
    """Rows of the servers, groups and clients that this process holds.

    models  of servers; begun: of groups, their server's model when they began; held: what clients
            got of it; aside: what servers have put aside, in float64
    clients, servers  what methods and codecs remember, as `name.row`
    row_of_client, row_of_server, rows_of_groups  the rows of those held here, by number
    """

    def __init__(self, problem: Problem, algorithm: Algorithm, start: Tensor, ranks: Ranks) -> None:
        self.problem, self.algorithm, self.ranks = problem, algorithm, ranks
        if ranks.size > 1 and algorithm.having("exchange") + algorithm.having("tell"):
            remedy = (
                f"averager {algorithm.averager.name} or attacks of servers: on one process only"
            )
            raise InputError("ranks", ranks.size, remedy)
        start, self._size = start.to(problem.device), problem.layout.parameters
        self.models = start.repeat(len(ranks.servers), 1)
        self.aside = torch.zeros_like(self.models, dtype=torch.float64)
        self.row_of_server = {server: row for row, server in enumerate(ranks.servers)}
        self.rows_of_groups = self.row_of_server
        # As long as nobody moves a server's model, these are the very same rows.
        self.begun = self.models
        if algorithm.pace.groups == "clients":
            self.rows_of_groups = {int(c): row for row, c in enumerate(ranks.clients)}
            self.begun = start.repeat(len(ranks.clients), 1)
        self.held = self.begun if algorithm.codecs["down"].exact else self.begun.clone()
        self.clients, self.servers = self._first_rows(start)
        self.row_of_client = np.full(max(ranks.clients, default=-1) + 1, -1)
        self.row_of_client[ranks.clients] = np.arange(len(ranks.clients))

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
            servers["between.held"] = start.repeat(len(self.links or self.ranks.servers), 1)
        return clients, servers

    def _new_rows(self, row: Row, start: Tensor, count: int) -> Tensor:
        if row.first == "model":
            return start[: self._size].repeat(count, 1)
        return start.new_full((count, row.width or self._size), row.first)

    @cached_property
    def links(self) -> dict[tuple[int, int], int]:
        """The row of what a server has told another, where neighbours hold different things of it.

        So it is with codecs where paces have no rounds: servers meet a few of their neighbours at a
        time. Else there is none, and every neighbour holds the same.
        """
        algorithm = self.algorithm
        if algorithm.codecs["between"].exact or "rounds" not in algorithm.pace.breaks:
            return {}
        graph = algorithm.network.graph
        uses = nx.to_numpy_array(graph, nodelist=range(algorithm.network.servers), weight=None)
        uses += np.abs(algorithm.averager.generator)  # a cloud links all servers
        pairs = np.argwhere(np.triu(uses + uses.T, 1)).tolist()
        ways = [(a, b) for a, b in pairs] + [(b, a) for a, b in pairs]
        return {way: row for row, way in enumerate(ways)}

    # Rows of some

    def rows_of(self, method: Method, group: Group) -> OwnRows:
        """Rows of a group's server, to be changed; and of its clients, to be read."""
        server, here = self.row_of_server[group.server], self.row_of_client[group.clients]
        return OwnRows(self.servers, self.clients, method.name, server, here)

    def all_rows_of(self, method: Method) -> dict[str, Floats]:
        """Rows of all servers and clients held here."""
        known = {**self.servers, **self.clients}
        names = {name: f"{method.name}.{name}" for name in method.rows}
        return {name: as_array(known[rows]) for name, rows in names.items() if rows in known}

    def mean_of_rows(self, method: Method, name: str, weights: Mapping[int, float]) -> Floats:
        """The weighted mean of a row over servers, wherever they are held."""
        weights_here = torch.tensor(
            [weights.get(d, 0.0) for d in self.ranks.servers], dtype=torch.float64
        )
        rows = self.servers[f"{method.name}.{name}"]
        return as_array(self.ranks.chain(weights_here[:, None] * rows.double()).to(rows.dtype))

    # Reading, saving

    def mean(self) -> Tensor:
        """u_k: the weighted mean of the servers' models, with the shares m-tilde of the honest."""
        shares = torch.from_numpy(self.algorithm.counted[self.ranks.servers])
        total = self.ranks.chain(shares[:, None].to(self.models.device) * self.models.double())
        return total.to(self.models.dtype)

    def model_of(self, client: int) -> Tensor:
        """The model of a client's server, which is held here."""
        return self.models[
            self.row_of_server[int(self.algorithm.network.clusters.server_of[client])]
        ]

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
            self.set_begun_apart()
        for name, (rows, of) in self._saved().items():
            if name in saved:
                rows.copy_(self.ranks.part(saved[name].to(rows), of))

    def set_begun_apart(self) -> None:
        """Groups that go on while a server's model moves keep the one that they began from."""
        if self.begun is self.models:
            self.begun = self.models.clone()
            if self.held is self.models:
                self.held = self.begun


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
            return as_array(self.servers[key][self.server])
        return as_array(self.clients[key][torch.from_numpy(self.here)])

    def __setitem__(self, name: str, values: Floats) -> None:
        self[name][...] = values

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"the row {name} of {self.method} stays")

    def __iter__(self) -> Iterator[str]:
        known = (*self.servers, *self.clients)
        return (n.partition(".")[2] for n in known if n.partition(".")[0] == self.method)

    def __len__(self) -> int:
        return len(list(iter(self)))


def as_array(tensor: Tensor) -> Floats:
    """Return the same memory as an array, where it is the processor's."""
    array: Floats = tensor.detach().cpu().numpy()
    return array


def as_tensor(values: Floats, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(like)
