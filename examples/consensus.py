"""Consensus alone, before any learning: how fast do ten edge servers on a ring agree?

Every server starts with a number of its own. In each exchange it hears its two neighbours, and
nobody else. The table shows how much of the disagreement is left after each exchange.

    python examples/consensus.py
"""

from __future__ import annotations

import numpy as np

from sdfeel import Network

EXCHANGES = 10


def disagreement(values: np.ndarray, shares: np.ndarray) -> float:
    """The distance from the weighted mean, in the norm in which the theory is exact."""
    return float(np.sqrt((values - values @ shares) ** 2 @ shares))


def shrinking(network: Network, name: str) -> list[float]:
    """What is left of the disagreement before the first exchange and after each."""
    shares = network.shares.cluster
    averager = network.averager(name, alpha=EXCHANGES)
    values = np.random.default_rng(0).normal(size=network.servers)
    first = disagreement(values, shares)
    left = [1.0]
    for number in range(averager.exchanges):
        values = values @ averager.exchange(number)
        left.append(disagreement(values, shares) / first)
    return left


def main() -> None:
    network = Network.ring(servers=10)
    print(f"{network}, zeta = {network.zeta:.4f}\n")
    names = ("paper", "metropolis", "chebyshev", "finite-time", "all-reduce")
    columns = {name: shrinking(network, name) for name in names}
    print("exchange " + "".join(f"{name:>14}" for name in names))
    for number in range(EXCHANGES + 1):
        cells = [f"{c[number]:14.1e}" if number < len(c) else " " * 14 for c in columns.values()]
        print(f"{number:8} " + "".join(cells).rstrip())
    print("\nzeta^10 promises", f"{network.averager('paper', 10).contraction:.1e} at worst.")
    print("chebyshev aims at the tenth exchange; finite-time is exact after five, one for each")
    print("eigenvalue; all-reduce is exact at once, for the time of 0.9 models over one link.")


if __name__ == "__main__":
    main()
