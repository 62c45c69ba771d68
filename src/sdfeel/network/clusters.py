"""Clusters: which client is attached to which edge server, and how much data each holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sdfeel.errors import InputError


@dataclass(frozen=True)
class Clusters:
    """C_d for every edge server d: each client 0..C-1 is attached to exactly one server."""

    members: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise InputError("clusters", [], "at least one cluster with one client is needed")
        seen: dict[int, int] = {}
        for server, clients in enumerate(self.members):
            if not clients:
                remedy = (
                    "an edge server needs at least one client; leave the server out or move one"
                )
                raise InputError(f"clusters[{server}]", [], remedy)
            for client in clients:
                if client in seen:
                    remedy = (
                        f"client {client} is attached to server {seen[client]} already; "
                        "a client belongs to exactly one server"
                    )
                    raise InputError(f"clusters[{server}]", list(clients), remedy)
                seen[client] = server
        missing = sorted(set(range(len(seen))) - set(seen))
        if missing:
            remedy = f"clients are numbered 0 to C-1, but {missing[:5]} have no server"
            raise InputError("clusters", [list(clients) for clients in self.members], remedy)

    @classmethod
    def of(cls, clusters: Sequence[Sequence[int]]) -> Clusters:
        """Make clusters of any nested sequence of client numbers."""
        try:
            members = tuple(tuple(int(client) for client in cluster) for cluster in clusters)
        except (TypeError, ValueError):
            remedy = "a list of client numbers for each server: [[0, 1], [2]]"
            raise InputError("clusters", clusters, remedy) from None
        return cls(members)

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> Clusters:
        """Consecutive clients: sizes (3, 1) gives clusters (0, 1, 2) and (3,)."""
        ends = np.cumsum([0, *sizes])
        return cls.of([range(ends[d], ends[d + 1]) for d in range(len(sizes))])

    @property
    def servers(self) -> int:
        return len(self.members)

    @property
    def clients(self) -> int:
        return sum(len(members) for members in self.members)

    @cached_property
    def server_of(self) -> NDArray[np.int64]:
        """d(i): the server of every client."""
        server_of = np.empty(self.clients, dtype=np.int64)
        for server, members in enumerate(self.members):
            server_of[list(members)] = server
        return server_of


@dataclass(frozen=True)
class Shares:
    """The shares of the data. The only place where m, m-hat and m-tilde are computed.

    With |S_i| samples at client i, |S~_d| in the cluster of server d and |S| in all:
    m_i = |S_i|/|S|, m-hat_i = |S_i|/|S~_d(i)|, m-tilde_d = |S~_d|/|S|.
    """

    clusters: Clusters
    samples: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.samples) != self.clusters.clients:
            remedy = f"one number of samples for each of the {self.clusters.clients} clients"
            raise InputError("samples", len(self.samples), remedy)
        counts = np.array(self.samples)
        for client in np.flatnonzero(~(np.isfinite(counts) & (counts > 0)))[:1]:
            remedy = "every client needs data: a number above 0"
            raise InputError(f"samples[{client}]", self.samples[client], remedy)

    @classmethod
    def of(cls, clusters: Clusters, samples: ArrayLike | None = None) -> Shares:
        """`samples` per client; without it every client holds the same amount."""
        counts = np.ones(clusters.clients) if samples is None else np.asarray(samples, dtype=float)
        return cls(clusters, tuple(counts.astype(float).reshape(-1).tolist()))

    @cached_property
    def client(self) -> NDArray[np.float64]:
        """m: each client's share of all data."""
        counts = np.array(self.samples)
        shares: NDArray[np.float64] = counts / counts.sum()
        return shares

    @cached_property
    def cluster(self) -> NDArray[np.float64]:
        """m-tilde: each cluster's share of all data."""
        totals = self._per_server(np.array(self.samples))
        shares: NDArray[np.float64] = totals / totals.sum()
        return shares

    @cached_property
    def within(self) -> NDArray[np.float64]:
        """m-hat: each client's share of its cluster."""
        shares = self._within(np.ones(self.clusters.clients, dtype=bool))
        shares.setflags(write=False)  # every round of a run with everybody asks for it
        return shares

    def within_present(self, present: NDArray[np.bool_]) -> NDArray[np.float64]:
        """m-hat renormalised over those present; 0 for who is absent (partial participation)."""
        return self.within if present.all() else self._within(present)

    def _within(self, present: NDArray[np.bool_]) -> NDArray[np.float64]:
        counts = np.where(present, np.array(self.samples), 0.0)
        totals = self._per_server(counts)[self.clusters.server_of]
        return np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)

    def _per_server(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        totals = np.bincount(self.clusters.server_of, counts, self.clusters.servers)
        return totals.astype(np.float64)

    @property
    def V(self) -> NDArray[np.float64]:  # noqa: N802 - the paper's name
        """C x D: V[i, d] = m-hat_i if i in C_d (eq. 3 as a matrix)."""
        return np.ascontiguousarray(self.B.T) * self.within[:, None]

    @property
    def B(self) -> NDArray[np.float64]:  # noqa: N802 - the paper's name
        """D x C: B[d, i] = 1 if i in C_d (eq. 4 as a matrix)."""
        servers = np.arange(self.clusters.servers)
        B: NDArray[np.float64] = np.equal.outer(servers, self.clusters.server_of).astype(np.float64)
        return B
