"""Data, models and trainers of others' experiments, which `published/*.toml` name by import path.

Written from what the sources' settings and files say; none of it is their code.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.data import load

Pair = tuple[Tensor, Tensor]
Array = NDArray[np.float32]

# MLL-SGD: digits 0-4 against 5-9 by logistic regression, every pixel scaled by its largest value.


@lru_cache(maxsize=1)
def _binary() -> Pair:
    mnist = load("mnist")
    pixels, labels = mnist.train_pixels.values.flatten(1).float(), mnist.train_targets
    largest = pixels.max(dim=0).values
    return pixels / largest.where(largest > 0, torch.tensor(1.0)), (labels < 5).float()[:, None]


def binary_mnist() -> tuple[Pair, None]:
    """All training images, with 1 for the digits 0 to 4 and 0 for the others."""
    return _binary(), None


def logit(shape: tuple[int, ...], classes: int | None) -> nn.Module:  # noqa: ARG001
    """Logistic regression that begins at zero."""
    model = nn.Linear(math.prod(shape), 1)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


binary_loss = F.binary_cross_entropy_with_logits


class Redrawing:
    """A client of MLL-SGD: draws 600 of all images each time, and goes over them in two batches.

    So a call of tau1 steps is tau1 / 2 passes over the 600.
    """

    rate, batch, drawn = 0.2, 300, 600

    def __init__(self, client: int, inputs: Tensor, targets: Tensor, model: nn.Module) -> None:
        self.client, self.samples = client, len(targets)
        self.size = sum(parameter.numel() for parameter in model.parameters())
        assert inputs.shape[1] + 1 == self.size  # noqa: S101 - the model is `logit`

    def train(self, model: Array, first: int, steps: int) -> Array:
        rng = np.random.default_rng((self.client, first))
        inputs, targets = (each.numpy() for each in _binary())
        rows = rng.choice(len(targets), self.drawn, replace=False)
        inputs, targets = inputs[rows], targets[rows, 0]
        weights, bias = model[:-1].copy(), model[-1].copy()
        order = np.arange(self.drawn)
        for step in range(steps):
            begin = step * self.batch % self.drawn
            if begin == 0:
                order = rng.permutation(self.drawn)
            x, y = inputs[order[begin : begin + self.batch]], targets[order[begin:][: self.batch]]
            error = y - 1 / (1 + np.exp(-(x @ weights + bias)))
            weights += np.float32(self.rate / self.batch) * (error @ x)
            bias += np.float32(self.rate / self.batch) * error.sum()
        return np.append(weights, bias).astype(np.float32)


# The dumbbell of 20: every worker has 960 images, those of one half of the digits where it says so.


def few_images(clients: int, seed: int, by_digit: bool = False) -> tuple[list[Pair], Pair]:
    """960 training images for each client, of digits 0-4 or 5-9 by its half if `by_digit`."""
    mnist = load("mnist")
    inputs = mnist.train_inputs
    rng, labels = np.random.default_rng(seed), mnist.train_targets
    halves = (labels < 5, labels >= 5) if by_digit else (labels >= 0, labels >= 0)
    drawn = [rng.permutation(np.flatnonzero(half.numpy())) for half in halves]
    pairs = []
    for client in range(clients):
        half, place = divmod(client, clients // 2) if by_digit else (0, client)
        rows = torch.from_numpy(drawn[half][960 * place : 960 * (place + 1)])
        pairs.append((inputs[rows], labels[rows]))
    return pairs, (mnist.test_inputs, mnist.test_targets)


class DumbbellNet(nn.Sequential):
    """Two convolutions of 32 and 64 channels and two layers with dropout: 1,199,882 values."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(
            nn.Conv2d(shape[0], 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.MaxPool2d(2),
            nn.Dropout2d(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(128, classes),
        )  # fmt: skip


# FLUTE: 1,000 users with two digits each, and numbers of images that follow a power law.


def users_of_two_digits(clients: int, seed: int) -> tuple[list[Pair], Pair]:
    """MNIST as LEAF's users have it: two digits each, sizes by a lognormal law, at least ten."""
    mnist = load("mnist")
    inputs, tested = (
        pixels.values.flatten(1).float() / 255 for pixels in (mnist.train_pixels, mnist.test_pixels)
    )
    rng, labels = np.random.default_rng(seed), mnist.train_targets
    law = rng.lognormal(0.0, 2.0, clients)
    sizes = 10 + np.floor(law / law.sum() * (len(labels) - 10 * clients)).astype(int)
    by_digit = [rng.permutation(np.flatnonzero((labels == digit).numpy())) for digit in range(10)]
    taken = np.zeros(10, dtype=int)
    pairs = []
    for client, size in enumerate(sizes):
        rows: list[int] = []
        for digit, count in ((client % 10, size // 2), ((client + 1) % 10, size - size // 2)):
            # A digit whose images are given out begins anew.
            places = np.arange(taken[digit], taken[digit] + count) % len(by_digit[digit])
            rows += by_digit[digit][places].tolist()
            taken[digit] += count
        pairs.append((inputs[rows], labels[rows]))
    return pairs, (tested, mnist.test_targets)
