"""What a correction keeps: z of the clients and y of the servers that this process holds."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.correction import Correction
from sdfeel.algorithm.local import Rows
from sdfeel.simulation.engines.engine import Indices, Learned, Shift
from sdfeel.simulation.ranks import Placement, Ranks

__all__ = ["Controls"]


class Controls:
    """The rows of a correction, and what aggregations do to them; empty where there is none.

    clients, servers  named rows, as checkpoints and ranks carry them
    """

    def __init__(
        self, algorithm: Algorithm, ranks: Ranks, placement: Placement, like: Tensor, width: int
    ) -> None:
        self._algorithm, self._ranks = algorithm, ranks
        self._servers = list(placement.servers[ranks.rank])
        self._numbers = np.array(placement.clients[ranks.rank])
        server_of = algorithm.network.clusters.server_of[self._numbers]
        self._server_of = server_of - self._servers[0]
        found = algorithm.correction
        self.clients: Rows = {}
        self.servers: Rows = {}
        if found is not None and found.clients:
            self.clients["control"] = like.new_zeros(len(self._numbers), width)
        if found is not None and found.servers:
            self.servers["control"] = like.new_zeros(len(self._servers), width)
        self._width = width
        self._present = np.zeros(0, dtype=np.int64)  # clients in a period, of each server
        self._learned = np.zeros(0, dtype=bool)  # servers whose mean an engine has seen to

    @property
    def of_clients(self) -> bool:
        return bool(self.clients)

    def in_use(self, present: NDArray[np.bool_]) -> Tensor | None:
        """What a period adds to z of each server's clients: y, and what re-centres both.

        None where there is nothing to add to any gradient. All ranks ask at the same time.
        """
        if not self.clients and not self.servers:
            return None
        many = len(self._servers)
        here = self._server_of[present[self._numbers]]
        self._present, self._learned = np.bincount(here, minlength=many), np.zeros(many, dtype=bool)
        z = next(iter(self.clients.values()), None)
        y = next(iter(self.servers.values()), None)
        like = z if y is None else y
        assert like is not None  # noqa: S101 - one of the two is there
        centre = 0.0 if y is None else self._centre_of_servers(y, present)
        if y is not None and isinstance(centre, float) and present.all():
            return y  # as it is: y changes only after a period
        found = like.new_zeros(len(self._servers), self._width) if y is None else y - centre
        if z is not None:
            self._centre_clients(z, found, present)
        return found

    def shift(self, used: Tensor | None, held: Indices) -> Shift | None:
        """z_i + y_d of these clients, as this period uses them."""
        if used is None:
            return None
        servers = self._server_of[held]
        if not self.clients:
            return Shift(used, servers)
        return Shift(self.clients["control"], held, used, servers)

    @property
    def linear(self) -> bool:
        """Whether z gains w_i - wbar_d over H, as compiled code has it."""
        found = self._algorithm.correction
        return found is not None and type(found).of_clients is Correction.of_clients

    def learned(self, held: Indices, begun: Tensor, reach: float) -> Learned | None:
        """`after_client`, for an engine to see to; and `after_mean` of clusters with all here."""
        if not self.clients or reach <= 0:
            return None
        servers = self._server_of[held]
        whole = np.bincount(servers, minlength=len(self._servers)) == self._present
        self._learned[servers] = whole[servers]
        return Learned(self.clients["control"], held, begun, servers, reach, whole[servers])

    def after_client(self, held: Indices, moved: Tensor, reach: float) -> None:
        """The part of w_i - wbar_d that a client knows: its way since the broadcast."""
        found = self._algorithm.correction
        if found is not None and self.clients and reach > 0:
            change = found.of_clients(moved[:, : self._width], reach)
            for client, gained in zip(held, change, strict=True):
                self.clients["control"][int(client)] += gained

    def after_mean(self, here: Indices, moved: Tensor, reach: float) -> None:
        """The other part: the way of the cluster's mean, where no engine has seen to it."""
        found = self._algorithm.correction
        if found is not None and self.clients and reach > 0:
            servers = self._server_of[here]
            left = np.unique(servers[~self._learned[servers]])
            if not len(left):
                return
            change, z = found.of_clients(moved[:, : self._width], reach), self.clients["control"]
            for server in left:
                rows = here[servers == server]
                if rows[-1] - rows[0] + 1 == len(rows):
                    z[int(rows[0]) : int(rows[-1]) + 1] -= change[int(server)]
                else:
                    z[torch.from_numpy(rows)] -= change[int(server)]

    def after_exchange(self, moved: Tensor, reach: float) -> None:
        """Moved is wbar_d - w_d, a row for each server held here."""
        found = self._algorithm.correction
        if found is None:
            return
        if found.servers and reach > 0:
            self.servers["control"] += found.of_servers(moved[:, : self._width], reach)
        if found.forgets:
            self.clients["control"].zero_()

    def _centre_of_servers(self, y: Tensor, present: NDArray[np.bool_]) -> Tensor | float:
        """The mean of y over clusters that train, where some do not: else it is 0."""
        network = self._algorithm.network
        active = np.zeros(network.servers, dtype=bool)
        active[network.clusters.server_of[present]] = True
        if active.all() or not active.any():
            return 0.0
        weights = np.where(active, network.shares.cluster, 0.0)
        own = torch.from_numpy((weights / weights.sum())[self._servers]).to(y.device)
        return self._ranks.chain(own[:, None] * y.double()).to(y.dtype)

    def _centre_clients(self, z: Tensor, found: Tensor, present: NDArray[np.bool_]) -> None:
        """Take off the mean of z over the present, in clusters where somebody is absent."""
        weights = self._algorithm.network.shares.within_present(present)[self._numbers]
        there = present[self._numbers]
        short = np.zeros(len(self._servers), dtype=bool)
        short[self._server_of[~there]] = True
        for row in np.flatnonzero(there & short[self._server_of]):
            found[int(self._server_of[row])].sub_(z[int(row)], alpha=float(weights[row]))
