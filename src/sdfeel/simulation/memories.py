"""What rules remember: rows of the local rule for clients, of the server rule for servers."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.local import Rows
from sdfeel.simulation.engines.engine import Indices

__all__ = ["Memories"]


class Memories:
    """The rows of both rules for those that this process holds; empty where they remember nothing.

    clients, servers  named rows, as checkpoints and ranks carry them
    """

    def __init__(
        self, algorithm: Algorithm, clients: int, servers: int, like: Tensor, width: int
    ) -> None:
        self._local, self._server = algorithm.local, algorithm.server
        self._like, self._width = like.new_empty(0), width  # its dtype and device alone
        names = self._local.keeps if self._local.remembers else ()
        self.clients: Rows = {name: self._zeros(clients) for name in names}
        self.servers: Rows = {}
        if self._server is not None:
            for name in self._server.keeps:
                self.servers[name] = self._zeros(servers).fill_(self._server.first(name))

    def _zeros(self, rows: int) -> Tensor:
        return self._like.new_zeros(rows, self._width)

    def of_a_period(self, rows: int) -> Rows:
        """What a rule with new memories in every period remembers, at its beginning."""
        names = () if self._local.remembers else self._local.keeps
        return {name: self._zeros(rows) for name in names}

    def of(
        self, held: Indices, period: Rows | None = None, block: slice = slice(None)
    ) -> Rows | None:
        """Of these clients: from the run, from their `block` of the period, or new and not kept."""
        if not self._local.keeps:
            return {}
        if self._local.remembers:
            return {name: self.clients[name][held] for name in self._local.keeps}
        return None if period is None else {name: rows[block] for name, rows in period.items()}

    def keep(self, kept: Rows | None, held: Indices) -> None:
        """What these clients remember now."""
        if self._local.remembers and kept:
            for name, rows in kept.items():
                self.clients[name][held] = rows

    def follow(self, begun: Tensor, means: Tensor, servers: Indices) -> None:
        """What these servers make of their clients' mean; buffers are the mean's."""
        if self._server is None:
            return
        for server in np.unique(servers):
            own = {name: rows[int(server)] for name, rows in self.servers.items()}
            mean, w = means[int(server), : self._width], begun[int(server), : self._width].clone()
            self._server.step(w, mean - w, own)
            mean.copy_(w)
