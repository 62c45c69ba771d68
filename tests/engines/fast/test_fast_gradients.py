"""Gradients equal autograd's, for every layer and for random shapes."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from fast_networks import (
    autograd,
    check,
    paper_cnn,
    random_convolutions,
    random_perceptron,
    vector,
)
from torch import nn
from torch.nn import functional

from sdfeel.engines.fast import compile_model

DTYPES = [torch.float32, torch.float64]
# A test for each network: a compiler takes a second or two, and on a machine with much else to do a
# test of fourteen was longer than any test may be.
FEW = range(14)


@pytest.mark.parametrize("seed", FEW)
def test_random_convolutions(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311
    network = random_convolutions(draw.randint(0, 10_000))
    check(*network, draw.choice(["cross-entropy", "mse"]), DTYPES[seed % 2])


@pytest.mark.parametrize("seed", FEW)
def test_random_perceptrons(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311
    network = random_perceptron(draw.randint(0, 10_000))
    count = draw.choice([1, 7, 8, 9, 10, 11, 15, 16, 17, 127, 128, 129, 150])
    check(*network, "mse", DTYPES[seed % 2], count)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("tile", [1088, 3136])  # bytes of a row in linear.h, by registers
def test_rows_below_at_and_above_a_tile(tile: int, more: int, dtype: torch.dtype) -> None:
    """A row of several tiles is summed up piece by piece; the last one may be of one lane."""
    torch.manual_seed(5)
    width = tile // dtype.itemsize + more
    module = nn.Sequential(nn.Linear(width, 18), nn.ReLU(), nn.Linear(18, 3))
    check(module, (width,), "cross-entropy", dtype, 11)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("network", ["mnist", "cifar", "mlp"])
def test_the_networks_of_the_benchmarks_fully_optimised(network: str, dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    module, shape = {
        "mnist": (paper_cnn(), (1, 28, 28)),
        "cifar": (paper_cnn(3, 9, 15, 46), (3, 32, 32)),
        "mlp": (nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)), (784,)),
    }[network]
    check(module, shape, "cross-entropy", dtype, 10, "-O3")


ACTIVATIONS = {
    "relu": functional.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.2),
    "elu": lambda x: functional.elu(x, alpha=0.7),
}


class Functional(nn.Module):
    """A `forward` in plain functions, with every way to flatten."""

    def __init__(self, activation: str, flatten: str) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 5, 3, padding="same")
        self.unused = nn.Parameter(torch.zeros(3))
        self.fc = nn.Linear(5 * 3 * 2, 4)
        self.activation, self.flatten = activation, flatten

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = ACTIVATIONS[self.activation](self.conv(x))
        x = functional.adaptive_avg_pool2d(x, (3, 2))
        if self.flatten == "view":
            x = x.view(-1, 30)
        elif self.flatten == "size":
            x = x.view(x.size(0), -1)
        elif self.flatten == "shape":
            x = x.reshape(x.shape[0], -1)
        else:
            x = torch.flatten(x, 1)
        return self.fc(x)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("flatten", ["view"])
def test_functions_and_activations(activation: str, flatten: str) -> None:
    torch.manual_seed(1)
    check(Functional(activation, flatten), (2, 6, 4), "mse", torch.float64)


@pytest.mark.parametrize("flatten", ["size", "shape", "flatten"])
def test_every_way_to_flatten(flatten: str) -> None:
    torch.manual_seed(1)
    check(Functional("relu", flatten), (2, 6, 4), "mse", torch.float64)


def test_the_first_of_equal_maxima_takes_the_gradient() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 3, 1), nn.MaxPool2d(3, 2, 1), nn.Flatten(), nn.Linear(12, 2)
    )
    compiled = compile_model(module, "cross-entropy", (1, 4, 4), optimise="-O1")
    inputs, targets = torch.ones(3, 1, 4, 4), torch.tensor([0, 1, 0])
    _, expected = autograd(module, "cross-entropy", inputs, targets)
    _, own = compiled.gradient(vector(module), inputs, targets)
    np.testing.assert_allclose(own, expected, atol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so(value: float) -> None:
    module = paper_cnn()
    compiled = compile_model(module, "cross-entropy", (1, 28, 28))
    inputs, targets = torch.zeros(2, 1, 28, 28), torch.tensor([0, 1])
    inputs[1, 0, 14, 14] = value
    loss, gradient = compiled.gradient(vector(module), inputs, targets)
    assert not np.isfinite(loss)
    assert not np.isfinite(gradient).all()
