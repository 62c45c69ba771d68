"""Random matchings: in every round each server meets one other, drawn by (seed, round).

No round's graph is connected; over the rounds all servers meet. Use it with averager="paper", in
which a pair takes its weighted mean, or "metropolis".
"""

import numpy as np

import sdfeel


def matchings(network: sdfeel.Network, seed: int = 0) -> sdfeel.Network:
    """The clusters of a network whose servers meet in pairs."""

    def links(number: int) -> list[tuple[int, int]]:
        order = np.random.default_rng([seed, number]).permutation(network.servers).tolist()
        return list(zip(order[::2], order[1::2], strict=False))

    return network.changing(links)
