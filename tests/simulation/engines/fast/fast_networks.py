"""Networks, data and plain torch loops that the tests compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from sdfeel.algorithm.randomness import draw_batches

LOSSES = {"cross-entropy": functional.cross_entropy, "mse": functional.mse_loss}


def paper_cnn(channels: int = 1, a: int = 10, b: int = 20, hidden: int = 50) -> nn.Sequential:
    flat = b * (16 if channels == 1 else 25)
    return nn.Sequential(
        nn.Conv2d(channels, a, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(a, b, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(flat, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


def vector(module: nn.Module) -> NDArray[Any]:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()


def data(
    module: nn.Module, shape: tuple[int, ...], count: int, loss: str, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs with ties, as pictures have them, and targets that suit the loss."""
    inputs = torch.randn(count, *shape, dtype=dtype)
    inputs = torch.where(torch.rand_like(inputs) < 0.3, torch.zeros_like(inputs), inputs)
    outputs = module(inputs[:1]).shape[1]
    if loss == "cross-entropy":
        return inputs, torch.randint(0, outputs, (count,))
    return inputs, torch.randn(count, outputs, dtype=dtype)


def autograd(
    module: nn.Module, loss: str, inputs: torch.Tensor, targets: torch.Tensor
) -> tuple[float, NDArray[Any]]:
    value = LOSSES[loss](module(inputs), targets)
    gradients = torch.autograd.grad(value, list(module.parameters()), allow_unused=True)
    flat = [
        torch.zeros_like(p) if g is None else g
        for p, g in zip(module.parameters(), gradients, strict=True)
    ]
    return float(value.detach()), torch.cat([g.reshape(-1) for g in flat]).numpy()


def plain_loop(
    module: nn.Module,
    loss: str,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    client: int,
    *,
    seed: int,
    first: int,
    last: int,
    batch_size: int,
    lr: float,
) -> list[float]:
    """Local updates as a reader of the paper would write them; trains `module`."""
    losses = []
    for k in range(first, last + 1):
        x, y = inputs, targets
        if len(inputs) > batch_size:
            sizes = np.array([len(inputs)])
            chosen = draw_batches(seed, np.array([client]), sizes, np.array([k]), batch_size)
            index = torch.from_numpy(chosen[0, 0])
            x, y = inputs[index], targets[index]
        value = LOSSES[loss](module(x), y)
        gradients = torch.autograd.grad(value, list(module.parameters()))
        with torch.no_grad():
            for p, g in zip(module.parameters(), gradients, strict=True):
                p.sub_(lr * g)
        losses.append(float(value.detach()))
    return losses
