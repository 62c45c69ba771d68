"""How often the two-level correction diverges, guarded and not, on random networks.

    python benchmarks/correction_guard.py                # 200 networks

Each: 2 to 12 servers with 1 to 6 clients and any amounts of data, any connected graph, any of three
averagers with alpha = 1 to 6, tau1 to 4, tau2 to 3. The problem is least squares by full gradients
with one direction that is all but flat, where the bound is sharp. A run of 500 rounds has diverged
if in its last quarter its servers disagree more than in its second one, or its loss is higher, each
by the worst of five looks: a disagreement that swings while it shrinks is no divergence.
"""

from __future__ import annotations

import argparse
import warnings

import networkx as nx
import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

import sdfeel
from sdfeel.errors import DivergedError

ROUNDS, LOOKS = 500, 20
FLAT = 1e-3  # scale of the flat feature beside 1


def drawn(
    seed: int,
) -> tuple[sdfeel.Network, list[tuple[torch.Tensor, torch.Tensor]], dict[str, object]]:
    """A network, data of its clients, and settings."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, int(rng.integers(2, 13)))
    graph = nx.random_labeled_tree(len(sizes), seed=seed)
    for a, b in nx.non_edges(graph.copy()):
        if rng.random() < rng.choice([0.0, 0.2, 0.6]):
            graph.add_edge(a, b)
    ends = np.cumsum([0, *sizes])
    clusters = [list(range(ends[d], ends[d + 1])) for d in range(len(sizes))]
    data = []
    for _ in range(int(ends[-1])):
        count = int(rng.integers(1, 60))
        inputs = rng.normal(size=(count, 3)) * [1.0, 0.3, FLAT]
        targets = inputs @ rng.normal(size=(3, 1)) + rng.normal()
        data.append((torch.tensor(inputs), torch.tensor(targets)))
    tau1, tau2 = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    chosen = {
        "schedule": sdfeel.Schedule(tau1, tau2, int(rng.integers(1, 7))),
        "averager": str(rng.choice(["paper", "metropolis", "chebyshev"])),
        "steps": ROUNDS * tau1 * tau2,
        "evaluate_every": ROUNDS // LOOKS * tau1 * tau2,
    }
    return sdfeel.Network(clusters, graph), data, chosen


def diverged(seed: int, correction: object) -> bool:
    network, data, chosen = drawn(seed)
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 1, bias=False).double()
    try:
        history = sdfeel.train(
            model,
            data,
            network=network,
            loss=F.mse_loss,
            lr=0.05,
            batch_size=60,
            correction=correction,
            engine="fast",
            evaluate_servers=False,
            **chosen,
        ).history
    except DivergedError:
        return True
    quarter = LOOKS // 4
    worst = [
        history.iloc[1 + n * quarter : 1 + (n + 1) * quarter][["disagreement", "train_loss"]].max()
        for n in (1, 3)
    ]
    apart = worst[1]["disagreement"] > 1.01 * worst[0]["disagreement"] + 1e-9
    worse = worst[1]["train_loss"] > (1 + 1e-6) * worst[0]["train_loss"]
    return bool(apart or worse)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=200)
    many = parser.parse_args().networks
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rivals = {
        "guarded: gamma = min(1, 0.9 gamma*)": "two-level",
        "gamma = 1 without the guard": sdfeel.Correction(gamma=1.0, guard=False),
    }
    for name, correction in rivals.items():
        bad = [seed for seed in range(many) if diverged(seed, correction)]
        print(f"{name}: {len(bad)} of {many} diverged", bad[:10])


if __name__ == "__main__":
    main()
