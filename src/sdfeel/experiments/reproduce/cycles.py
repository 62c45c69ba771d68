"""Cycle times of overlays on the underlays of Marfoq et al. (NeurIPS 2020), as they compute them.

A model of iNaturalist (44,961,717 bits) after one local step of 25.4 ms, lines of 1 Gbit/s in the
core and of 10 Gbit/s at every server.
"""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from sdfeel.clock.cycle_time import (
    Arc,
    both_ways,
    cycle_time,
    short_ring,
    star_links,
    timed_arcs,
    tree_links,
)
from sdfeel.clock.underlays import load_underlay
from sdfeel.experiments.reproduce.spec import Claim

BITS, COMPUTE, CORE, ACCESS = 44_961_717, 0.0254, 1e9, 1e10
Seconds = NDArray[np.float64]


def measured_cycle(claim: Claim) -> float:
    """Seconds of a period in the long run, on the claim's overlay."""
    underlay = load_underlay(claim.underlay or "")
    latency, transfer = underlay.latency, underlay.transfer(BITS, CORE)
    if claim.overlay == "star":
        links = star_links(latency)
        arcs, (latency, transfer) = both_ways(links), _relayed(links, latency, transfer)
    elif claim.overlay == "tree":
        arcs = both_ways(tree_links(COMPUTE + latency + transfer))
    else:
        tour = short_ring(COMPUTE + latency + transfer)
        arcs = list(zip(tour, tour[1:] + tour[:1], strict=True))
    period = cycle_time(timed_arcs(arcs, latency, transfer, COMPUTE, BITS / ACCESS))
    # To the centre and back are two messages, one after the other.
    return 2 * (period - COMPUTE) + COMPUTE if claim.overlay == "star" else period


def _relayed(links: list[Arc], latency: Seconds, transfer: Seconds) -> tuple[Seconds, Seconds]:
    """Send to and from a centre by other servers where that is faster.

    As their program has it, a relayed message has the latency of all of its way, and the rate of
    its last part.
    """
    hops = np.where(np.eye(len(latency)) > 0, 0.0, COMPUTE + latency + transfer)
    centre = links[0][0]
    ways = nx.single_source_dijkstra_path(nx.from_numpy_array(hops), centre)
    late, rate = latency.copy(), transfer.copy()
    for _, end in links:
        parts = list(pairwise(ways[end]))
        late[centre, end] = late[end, centre] = sum(latency[part] for part in parts)
        rate[centre, end] = rate[end, centre] = transfer[parts[-1]]
    return late, rate
