"""A scheme of your own is one more row of the table of schemes.

Two rows that the paper does not have: edge servers that never talk to each other, and servers that
agree exactly by an all-reduce between neighbours, without a cloud. Both run through the same loop,
clock and engines as sd-feel.

    python examples/own_scheme.py
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn
from torch.utils.data import TensorDataset

import sdfeel
from sdfeel import Network, Schedule, Scheme

NEVER = 10**9

ISOLATED = Scheme(
    "isolated",
    "edge servers average their clients and never exchange",
    schedule=lambda schedule: replace(schedule, tau2=NEVER),
)
ALL_REDUCE = Scheme(
    "edge-all-reduce",
    "servers get the exact mean from their neighbours, without a cloud",
    averager="all-reduce",
)


def clients(count: int, classes: int = 4) -> list[TensorDataset]:
    """Noisy points around one centre per class; each cluster knows two of the classes only."""
    chance = torch.Generator().manual_seed(0)
    centres = 2 * torch.randn(classes, 8, generator=chance)
    datasets = []
    for client in range(count):
        labels = (client // 5 + torch.randint(0, 2, (40,), generator=chance)) % classes
        points = centres[labels] + torch.randn(40, 8, generator=chance)
        datasets.append(TensorDataset(points, labels))
    return datasets


def main() -> None:
    torch.manual_seed(0)
    model, datasets = nn.Linear(8, 4), clients(20)
    print(f"{'scheme':16}{'simulated ms':>14}{'loss':>8}{'worst server':>14}")
    for scheme in ("sd-feel", ALL_REDUCE, "hierfavg", ISOLATED):
        result = sdfeel.train(
            model,
            datasets,
            network=Network.ring(servers=4, clients_per_server=5),
            schedule=Schedule(tau1=2, tau2=1, alpha=2),
            scheme=scheme,
            steps=100,
            lr=0.1,
            profile="counted",  # the time that this small model takes, not the paper's
            test=torch.utils.data.ConcatDataset(datasets),
        )
        last = result.history.iloc[-1]
        worst = last["server_accuracy_min"]
        print(
            f"{result.scheme:16}{1000 * result.seconds:14.1f}{last['test_loss']:8.3f}{worst:13.0%}"
        )
    print("\nA server that never hears of others' classes cannot know them; an exchange is cheap.")


if __name__ == "__main__":
    main()
