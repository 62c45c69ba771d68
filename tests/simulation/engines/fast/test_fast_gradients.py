"""Gradients equal autograd's, for every layer and for random shapes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from fast_networks import autograd, data, paper_cnn, vector
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from sdfeel.simulation.engines.fast import compile_model

FEW = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # shrinking would compile hundreds of networks
    suppress_health_check=[HealthCheck.too_slow],
)


def check(
    module: nn.Module,
    shape: tuple[int, ...],
    loss: str = "cross-entropy",
    dtype: torch.dtype = torch.float32,
    count: int = 7,
    optimise: str = "-O1",
) -> None:
    module = module.to(dtype)
    compiled = compile_model(module, loss, shape, dtype, optimise)
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


def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@st.composite
def networks(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    """One to three convolutions with anything between them, then one or two linear layers."""
    torch.manual_seed(draw(st.integers(0, 1000)))
    channels, height, width = draw(st.integers(1, 4)), *draw(pairs(5, 14))
    shape, layers = (channels, height, width), []
    activations = [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.GELU, nn.ELU, nn.LeakyReLU]
    for _ in range(draw(st.integers(1, 3))):
        kernel = draw(st.tuples(st.integers(1, min(5, height)), st.integers(1, min(5, width))))
        step, pad = draw(pairs(1, 2)), draw(pairs(0, 2))
        out = draw(st.integers(1, 20))
        conv = nn.Conv2d(channels, out, kernel, step, pad, bias=draw(st.booleans()))
        layers.append(conv)
        height = (height + 2 * pad[0] - kernel[0]) // step[0] + 1
        width = (width + 2 * pad[1] - kernel[1]) // step[1] + 1
        channels = out
        extra = draw(st.permutations(["activation", "pool", "none"]))[:2]
        for what in extra:
            if what == "activation":
                layers.append(draw(st.sampled_from(activations))())
            elif what == "pool" and min(height, width) >= 2:
                size = draw(st.integers(2, min(3, height, width)))
                stride = draw(st.integers(1, 3))
                frame = draw(st.integers(0, size // 2))
                kind = draw(st.sampled_from([nn.MaxPool2d, nn.AvgPool2d]))
                layers.append(kind(size, stride, frame))
                height = (height + 2 * frame - size) // stride + 1
                width = (width + 2 * frame - size) // stride + 1
        if min(height, width) < 1:
            break
    layers.append(nn.Flatten())
    features = channels * height * width
    if draw(st.booleans()):
        hidden = draw(st.integers(1, 40))
        layers += [nn.Linear(features, hidden, bias=draw(st.booleans())), nn.ReLU()]
        features = hidden
    layers.append(nn.Linear(features, draw(st.integers(2, 12))))
    return nn.Sequential(*layers), shape


@FEW
@given(networks(), st.sampled_from(["cross-entropy", "mse"]))
def test_random_networks_in_float64(network: tuple[nn.Module, tuple[int, ...]], loss: str) -> None:
    check(*network, loss, torch.float64)


@FEW
@given(networks(), st.sampled_from(["cross-entropy", "mse"]))
def test_random_networks_in_float32(network: tuple[nn.Module, tuple[int, ...]], loss: str) -> None:
    check(*network, loss)


@FEW
@given(st.lists(st.integers(1, 70), min_size=2, max_size=4), st.integers(1, 150), st.booleans())
def test_random_perceptrons(sizes: list[int], count: int, double: bool) -> None:
    torch.manual_seed(sum(sizes))
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    dtype = torch.float64 if double else torch.float32
    check(nn.Sequential(*layers[:-1]), (sizes[0],), "mse", dtype, count)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
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
