"""What every program of the comparison trains: the same clients, data, network and steps.

It needs torch alone, so that each library has an environment of its own. A round is what lies
between two averages of all clients' models: `STEPS` local updates of every client.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
from torch import Tensor, nn

STEPS, BATCH, RATE = 5, 10, 0.01


def arguments() -> argparse.Namespace:
    """Return what `peers.py` passes to a program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--samples", type=int, default=STEPS * BATCH, help="of each client")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--how", default="", help="of loops.py: plain, processes or vmap")
    return parser.parse_args()


def network() -> nn.Module:
    """The paper's network of 21,840 parameters, with the same first values everywhere."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 10, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(10, 20, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(320, 50),
        nn.ReLU(),
        nn.Linear(50, 10),
    )


def data(clients: int, samples: int) -> list[tuple[Tensor, Tensor]]:
    """Return images and labels of each client; nobody learns anything from them, all compute."""
    numbers = torch.Generator().manual_seed(1)
    images = torch.randn(clients, samples, 1, 28, 28, generator=numbers)
    labels = torch.randint(10, (clients, samples), generator=numbers)
    return list(zip(images, labels, strict=True))


class Rounds:
    """Notes when each round ended, and prints it all at the end."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def ended(self) -> None:
        self.ends.append(time.clock_gettime(time.CLOCK_MONOTONIC))

    def report(self) -> None:
        print("REPORT", json.dumps({"ends": self.ends, "pid": os.getpid()}), flush=True)
