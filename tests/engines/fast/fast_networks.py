"""Networks, data and plain torch loops that the tests compare with."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from sdfeel.algorithm.randomness import draw_batches
from sdfeel.engines.engine import Work
from sdfeel.engines.fast import Rule, compile_model
from sdfeel.engines.fast.engine import FastEngine
from sdfeel.engines.problem import Problem
from sdfeel.engines.reference import ReferenceEngine

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


def random_convolutions(seed: int) -> tuple[nn.Sequential, tuple[int, ...]]:
    """One to three convolutions with anything between them, then one or two linear layers."""
    torch.manual_seed(seed)
    draw = random.Random(seed)  # noqa: S311

    def pair(low: int, high: int) -> tuple[int, int]:
        return draw.randint(low, high), draw.randint(low, high)

    channels, (height, width) = draw.randint(1, 4), pair(5, 14)
    shape, layers = (channels, height, width), []
    activations = [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.GELU, nn.ELU, nn.LeakyReLU]
    for _ in range(draw.randint(1, 3)):
        kernel = draw.randint(1, min(5, height)), draw.randint(1, min(5, width))
        step, pad, out = pair(1, 2), pair(0, 2), draw.randint(1, 20)
        layers.append(nn.Conv2d(channels, out, kernel, step, pad, bias=draw.random() < 0.7))
        height = (height + 2 * pad[0] - kernel[0]) // step[0] + 1
        width = (width + 2 * pad[1] - kernel[1]) // step[1] + 1
        channels = out
        for what in draw.sample(["activation", "pool", "none"], 2):
            if what == "activation":
                layers.append(draw.choice(activations)())
            elif what == "pool" and min(height, width) >= 2:
                size, stride = draw.randint(2, min(3, height, width)), draw.randint(1, 3)
                frame = draw.randint(0, size // 2)
                layers.append(draw.choice([nn.MaxPool2d, nn.AvgPool2d])(size, stride, frame))
                height = (height + 2 * frame - size) // stride + 1
                width = (width + 2 * frame - size) // stride + 1
    layers.append(nn.Flatten())
    features = channels * height * width
    if draw.random() < 0.5:
        hidden = draw.randint(1, 40)
        layers += [nn.Linear(features, hidden, bias=draw.random() < 0.7), nn.ReLU()]
        features = hidden
    layers.append(nn.Linear(features, draw.randint(2, 12)))
    return nn.Sequential(*layers), shape


def random_perceptron(seed: int) -> tuple[nn.Sequential, tuple[int, ...]]:
    torch.manual_seed(seed)
    draw = random.Random(seed)  # noqa: S311
    sizes = [draw.randint(1, 70) for _ in range(draw.randint(2, 4))]
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b, bias=draw.random() < 0.8), nn.ReLU()]
    return nn.Sequential(*layers[:-1]), (sizes[0],)


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


def train_as_the_reference(case: Problem, work: Work, near: float) -> None:
    """Models and losses of the fast engine are those of the reference."""
    ends = []
    for engine in (FastEngine(case), ReferenceEngine(case)):
        models = work.start[0].clone()
        losses = engine.train(work, models)
        ends.append((models, torch.from_numpy(losses)))
    for mine, other in zip(*ends, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=near, equal_nan=True)


def check(
    module: nn.Module,
    shape: tuple[int, ...],
    loss: str = "cross-entropy",
    dtype: torch.dtype = torch.float32,
    count: int = 7,
    optimise: str = "-O1",
    target: str = "native",
) -> None:
    """Gradient, loss and outputs of the compiled network are autograd's."""
    module = module.to(dtype)
    compiled = compile_model(module, loss, shape, dtype, optimise, target)
    inputs, targets = data(module, shape, count, loss, dtype)
    value, gradient = autograd(module, loss, inputs, targets)
    ours, own = compiled.gradient(vector(module), inputs, targets)
    near = 1e-10 if dtype == torch.float64 else 2e-5
    scale = max(1.0, float(np.abs(gradient).max()))
    np.testing.assert_allclose(own, gradient, rtol=0, atol=near * scale)
    assert ours == pytest.approx(value, rel=near, abs=near)
    outputs = compiled.forward(vector(module), inputs)
    expected = module(inputs).detach().numpy()
    np.testing.assert_allclose(outputs, expected, rtol=near, atol=near * 10)


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
    rates: NDArray[np.float64],
    first_rate: int,
    rule: Rule | None = None,
    anchor: NDArray[Any] | None = None,
    shift: NDArray[Any] | None = None,
) -> list[float]:
    """Local updates as a reader of the paper would write them with torch.optim; trains `module`."""
    rule = rule or Rule()
    start = torch.from_numpy(vector(module) if anchor is None else anchor)
    parameters = list(module.parameters())
    optimiser = torch.optim.SGD(
        parameters,
        lr=0.0,
        momentum=rule.momentum,
        nesterov=rule.nesterov,
        weight_decay=rule.weight_decay,
    )
    losses = []
    for k in range(first, last + 1):
        x, y = inputs, targets
        if len(inputs) > batch_size:
            sizes = np.array([len(inputs)])
            chosen = draw_batches(seed, np.array([client]), sizes, np.array([k]), batch_size)
            index = torch.from_numpy(chosen[0, 0])
            x, y = inputs[index], targets[index]
        optimiser.zero_grad()
        value = LOSSES[loss](module(x), y)
        value.backward()
        extra = rule.prox * (torch.from_numpy(vector(module)) - start)
        if shift is not None:
            extra = extra + torch.from_numpy(shift)
        for p, part in zip(
            parameters, torch.split(extra, [p.numel() for p in parameters]), strict=True
        ):
            p.grad = part.reshape(p.shape) + (0 if p.grad is None else p.grad)
        optimiser.param_groups[0]["lr"] = float(rates[k - first_rate])
        optimiser.step()
        losses.append(float(value.detach()))
    return losses
