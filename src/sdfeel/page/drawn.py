"""A network as the page draws it: nodes, links that carry models, and a cloud if there is one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm
    from sdfeel.network import Network

__all__ = ["drawn", "drawn_of", "places_in"]


def drawn(network: Network) -> dict[str, Any]:
    """Describe servers, clients and links.

    names    of the nodes; hub: a node without clients that all exchange with, else None
    clients  of each node, how many; shares: of all data
    """
    return {
        "names": [str(server) for server in range(network.servers)],
        "hub": None,
        "servers": network.servers,
        "clients": [len(members) for members in network.clusters.members],
        "shares": network.shares.cluster.tolist(),
        "links": sorted(sorted(link) for link in network.graph.edges()),
    }


def places_in(file: Mapping[str, Any], servers: int) -> list[list[float]] | None:
    """Return where servers stand by network.json; None where it does not say so of all."""
    places = file.get("positions")
    if not isinstance(places, list) or len(places) != servers:
        return None
    are_pairs = all(
        isinstance(place, list)
        and len(place) == 2
        and all(isinstance(value, float | int) and math.isfinite(value) for value in place)
        for place in places
    )
    return places if are_pairs else None


def drawn_of(algorithm: Algorithm) -> dict[str, Any]:
    """Describe what a scheme makes of the network: one server, a cloud, or clients alone."""
    network, scheme = algorithm.network, algorithm.scheme
    shown = drawn(network)
    if scheme.servers == "one":
        reach = algorithm.participation.reach
        shown["clients"] = [network.clients if reach is None else len(reach)]
        shown["names"] = ["cloud" if scheme.uplink == "cloud" else "server"]
    elif scheme.servers == "clients":
        shown["clients"] = [0] * network.servers  # each is a client itself
    if algorithm.averager.route == "cloud" and network.servers > 1:
        shown |= {"links": [], "hub": "cloud"}
    elif not algorithm.averager.exchanges and algorithm.averager.route == "neighbours":
        shown["links"] = []
    return shown
