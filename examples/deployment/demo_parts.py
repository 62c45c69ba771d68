"""What the demo's clients run: the paper's network on their own part of 5,000 MNIST images.

On one machine every client can draw the same partition and keep its own part. A real client would
open its private data here instead, and nobody else would have that file.
"""

from __future__ import annotations

from torch import nn
from torch.utils.data import TensorDataset

from sdfeel.data import load, partition
from sdfeel.models import mnist_cnn

CLIENTS = 9


def model() -> nn.Module:
    """The CNN with 21,840 parameters."""
    return mnist_cnn()


def data(_name: str, number: int) -> TensorDataset:
    """The images of one client: Dirichlet(0.5) shares of every digit, as in the paper."""
    images = load("mnist-5k")
    part = partition("dirichlet-fedma", images.train_targets.numpy(), CLIENTS, 0)[number]
    return TensorDataset(images.train_inputs[part], images.train_targets[part])
