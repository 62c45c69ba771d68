"""A client without PyTorch: local SGD on a quadratic, so that processes start at once.

Client i pulls its model towards its own goal; the batches' noise is a function of (seed, i, k).
"""

from __future__ import annotations

import os
import time

import numpy as np

from sdfeel.deploy.config import Deployment

SIZE = 13
LR = 0.1


def goal(number: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng([7, number]).normal(size=size).astype(np.float32)


def step(model: np.ndarray, number: int, k: int) -> np.ndarray:
    noise = np.random.default_rng([11, number, k]).normal(scale=0.1, size=model.size)
    gradient = model - goal(number, model.size) + noise.astype(np.float32)
    # Every client has a curvature of its own: leaving one exchange out changes the result.
    moved = model - np.float32(LR * (1 + 0.3 * (number % 4))) * gradient
    return np.asarray(moved, np.float32)


class ToyTrainer:
    """Honest by default; `delay` makes it slow and `poison` makes it send nonsense."""

    def __init__(self, number: int, samples: int, size: int = SIZE, delay: float = 0.0) -> None:
        self.number, self.samples, self.size, self.delay = number, samples, size, delay
        self.poison: float | None = None

    def train(self, model: np.ndarray, first: int, steps: int) -> np.ndarray:
        time.sleep(self.delay)
        for k in range(first, first + steps):
            model = step(model, self.number, k)
        return model if self.poison is None else np.full_like(model, self.poison)


def trainer(deployment: Deployment, client: str) -> ToyTrainer:
    """For `local.trainer = "toy:trainer"` of client processes."""
    number = [c.name for c in deployment.clients].index(client)
    options = deployment.local.options
    delay = float(os.environ.get("TOY_DELAY", options.get("delay", 0.0)))
    size = int(options.get("size", SIZE))
    return ToyTrainer(number, deployment.client(client).samples, size, delay)
