"""Algorithms for tests, from names and objects as users give them."""

from __future__ import annotations

from sdfeel import LatencyProfile, Network, load_profile
from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.events import Event
from sdfeel.simulation.settings import Settings


def algorithm_of(
    network: Network | None = None,
    profile: str | LatencyProfile = "paper",
    parameters: int = 21840,
    **settings: object,
) -> Algorithm:
    """What these settings mean on a network; by default ten servers in a ring with five clients."""
    latency = load_profile(profile) if isinstance(profile, str) else profile
    network = network or Network.ring(10, 5)
    return Settings.of(settings).algorithm(network, latency, parameters)


def clients_of(event: Event) -> list[int]:
    """Who takes part in an event."""
    return sorted(int(client) for group in event.groups for client in group.clients)
