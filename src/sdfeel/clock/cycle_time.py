"""Cycle times: how long an exchange takes in the long run, where servers wait for whom they hear.

A server begins its next period when it has computed and the models of all that it hears are there:
t_j(k+1) = max over i of t_i(k) + w(i, j), where w(j, j) is its own computing. In the long run a
period takes the largest mean weight of a cycle, lambda (Baccelli et al., Synchronization and
Linearity, 1992), however early single servers are.
"""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from sdfeel.errors import InputError

Seconds = NDArray[np.float64]
Arc = tuple[int, int]


def cycle_time(weights: Seconds) -> float:
    """The largest mean weight of a cycle (Karp, 1978); -inf where no arc is.

    weights  w(i, j) from i to j; -inf for none. From any server every other must be reached.
    """
    D = len(weights)
    walks = np.full((D + 1, D), -np.inf)  # the heaviest walk of k arcs from server 0 to each
    walks[0, 0] = 0.0
    for k in range(D):
        walks[k + 1] = (walks[k][:, None] + weights).max(axis=0)
    reached = np.isfinite(walks[D])
    if not reached.any():
        return -np.inf
    arcs_left = D - np.arange(D)[:, None]
    with np.errstate(invalid="ignore"):
        means = (walks[D] - walks[:D]) / arcs_left  # inf where no walk of k arcs is: no bound
    return float(means[:, reached].min(axis=0).max())


def timed_arcs(
    arcs: Iterable[Arc], latency: Seconds, transfer: Seconds, compute: float, access: float = 0.0
) -> Seconds:
    """Return the weights of a graph: the seconds of computing and of a message over each arc.

    arcs      from a to b; both ways of a link are two arcs
    latency   seconds by which a message between each two servers is late, whatever its length
    transfer  seconds of a model on the way between each two
    compute   seconds of computing, before a server sends
    access    seconds of a model on a server's own line, which all that it sends or hears share
    """
    arcs, D = list(arcs), len(latency)
    sent, heard = np.zeros(D), np.zeros(D)
    for a, b in arcs:
        sent[a] += 1
        heard[b] += 1
    weights = np.full((D, D), -np.inf)
    weights[np.diag_indices(D)] = compute
    for a, b in arcs:
        slowest = max(transfer[a, b], access * max(sent[a], heard[b]))
        weights[a, b] = compute + latency[a, b] + slowest
    return weights


def both_ways(links: Iterable[Arc]) -> list[Arc]:
    """Return two arcs for each link."""
    return [arc for a, b in links for arc in ((a, b), (b, a))]


def star_links(latency: Seconds) -> list[Arc]:
    """Return the links of a star, whose centre lies on most shortest paths."""
    ways = _between(latency)
    central = nx.load_centrality(ways, weight="weight")
    centre = max(central, key=central.__getitem__)
    return [(centre, other) for other in ways if other != centre]


def tree_links(message: Seconds) -> list[Arc]:
    """The spanning tree whose messages together are the shortest."""
    return list(nx.minimum_spanning_tree(_between(message)).edges())


def short_ring(message: Seconds) -> list[int]:
    """A short round trip through all servers: at most half longer than the shortest (Christofides).

    Where messages obey the triangle inequality; the servers in their order.
    """
    D = len(message)
    if D < 2:
        raise InputError("servers", D, "at least two for a ring")
    if D == 2:
        return [0, 1]
    tour: list[int] = nx.approximation.christofides(_between(message))
    return tour[:-1]


def _between(seconds: Seconds) -> nx.Graph:
    """A graph of all servers, weighted; without the way from a server to itself."""
    return nx.from_numpy_array(np.where(np.eye(len(seconds)) > 0, 0.0, seconds))
