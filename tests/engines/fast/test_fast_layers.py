"""Networks with branches, normalisation and convolutions of single channels, against autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fast_networks import check, train_as_the_reference
from torch import Tensor, nn
from torch.nn import functional

from sdfeel.algorithm.methods.chain import Chain
from sdfeel.algorithm.methods.optimizers import SGD, Adam, Momentum, Optimizer
from sdfeel.algorithm.methods.rates import Constant
from sdfeel.data import ClientData
from sdfeel.engines.engine import Work
from sdfeel.engines.fast import Unsupported, compile_model
from sdfeel.engines.fast.engine import FastEngine
from sdfeel.engines.problem import make_problem


class Block(nn.Module):
    """Two convolutions around a shortcut, as in a ResNet."""

    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(ins, outs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outs, outs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(2, outs), nn.GroupNorm(2, outs)])
        plain = stride == 1 and ins == outs
        self.short = nn.Identity() if plain else nn.Conv2d(ins, outs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(y)) + self.short(x))


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, 1, 1, bias=False), nn.ReLU(), Block(6, 6, 1), Block(6, 10, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(10, 4),
    )  # fmt: skip


def mobile() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, 2, 1), nn.ReLU6(),
        nn.Conv2d(6, 6, 3, 1, 1, groups=6, bias=False), nn.GroupNorm(3, 6), nn.ReLU6(),
        nn.Conv2d(6, 9, 1), nn.ReLU(),
        nn.Conv2d(9, 9, (3, 2), (2, 1), (0, 1), groups=9), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(9, 4),
    )  # fmt: skip


class Dense(nn.Module):
    """Layer normalisation of vectors, values that three others read, and one added to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(7, 7) for _ in range(3))
        self.norm, self.plain = nn.LayerNorm(7), nn.LayerNorm(7, elementwise_affine=False)
        self.groups = nn.GroupNorm(1, 7)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x))
        z = self.norm(self.second(y)) + y
        return self.groups(self.third(y + y)) + self.plain(z) + torch.add(x, z)


class Images(nn.Module):
    """Layer normalisation of images; a padded convolution beside other readers of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm((2, 5, 4))
        self.wide, self.narrow = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(2, 3, 1)
        self.after = nn.LayerNorm((3, 5, 4), bias=False)
        self.head = nn.Linear(60, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return self.head(torch.relu(self.after(self.wide(y) + self.narrow(y))).flatten(1))


NETWORKS = {
    "resnet": (resnet, (3, 8, 8)),
    "mobile": (mobile, (2, 9, 8)),
    "dense": (Dense, (7,)),
    "images": (Images, (2, 5, 4)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_autograd(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    make, shape = NETWORKS[name]
    check(make(), shape, "cross-entropy", dtype, 9)


def data(shape: tuple[int, ...]) -> ClientData:
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(30, *shape, generator=generator)
    labels = torch.randint(0, 4, (30,), generator=generator)
    return ClientData(inputs, labels, np.array([0, 12, 17, 30]))


@pytest.mark.parametrize("optimizer", [SGD(), Momentum(0.9, weight_decay=0.1), Adam(clip=1.0)])
def test_a_residual_network_trains_as_the_reference_does(optimizer: Optimizer) -> None:
    torch.manual_seed(3)
    case = make_problem(
        resnet().double(), data((3, 8, 8)), loss=functional.cross_entropy, batch_size=6, seed=1,
        chain=Chain(optimizer), rate=Constant(0.05),
    )  # fmt: skip
    clients = np.arange(3)
    start = case.layout.vector(case.model).repeat(3, 1)
    work = Work(clients, clients * 0 + 1, clients + 2, (start, clients))
    train_as_the_reference(case, work, 1e-9)


def test_a_large_network_is_left_to_torch() -> None:
    """Its convolutions are as quick there, and to prove it would take minutes."""
    wide = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.GroupNorm(8, 64), nn.ReLU(),
        nn.Conv2d(64, 80, 3, padding=1), nn.Flatten(), nn.LazyLinear(4),
    )  # fmt: skip
    wide(torch.zeros(1, 3, 32, 32))
    case = make_problem(
        wide, data((3, 32, 32)), loss=functional.cross_entropy, batch_size=6, seed=1
    )
    with pytest.raises(Unsupported, match="million multiplications"):
        FastEngine(case)


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ([nn.GroupNorm(5, 5), nn.Linear(5, 4)], "single numbers"),
        ([nn.Linear(5, 4), nn.LayerNorm((2, 4))], "normalises"),
    ],
)
def test_what_would_be_wrong_is_refused(layers: list[nn.Module], why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        compile_model(nn.Sequential(*layers), "cross-entropy", (5,))
