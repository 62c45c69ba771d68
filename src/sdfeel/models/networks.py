"""The networks of the experiments, as plain `nn.Sequential`: torch.fx traces them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from sdfeel.errors import InputError, closest

Shape = Sequence[int]


def mnist_cnn(classes: int = 10) -> nn.Sequential:
    """The paper's CNN on 1x28x28: convolutions of 10 and 20, hidden 50; 21,840 parameters."""
    return _two_convolutions((1, 28, 28), 10, 20, 50, classes)


def cifar_cnn(classes: int = 10) -> nn.Sequential:
    """The paper's CNN on 3x32x32: convolutions of 9 and 15, hidden 46; 21,840 parameters.

    The layout of `mnist_cnn` would have 31,340 on colour images; the paper states 21,840.
    """
    return _two_convolutions((3, 32, 32), 9, 15, 46, classes)


def paper_cnn(shape: Shape, classes: int = 10) -> nn.Sequential:
    """`mnist_cnn` or `cifar_cnn`, whichever fits the shape of a sample."""
    known: dict[tuple[int, ...], Callable[[int], nn.Sequential]] = {
        (1, 28, 28): mnist_cnn,
        (3, 32, 32): cifar_cnn,
    }
    if tuple(shape) not in known:
        remedy = f"the paper's CNN takes one of {list(known)}"
        raise InputError("sample shape", tuple(shape), remedy)
    return known[tuple(shape)](classes)


def mlp(inputs: int, hidden: Sequence[int] = (200,), classes: int = 10) -> nn.Sequential:
    """Fully connected layers with ReLU between them, on flattened inputs."""
    widths = [inputs, *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


def logistic_regression(inputs: int, classes: int = 10) -> nn.Sequential:
    """Build one linear layer on flattened inputs: with cross-entropy, a convex problem."""
    return mlp(inputs, (), classes)


def _two_convolutions(
    shape: tuple[int, int, int], first: int, second: int, hidden: int, classes: int
) -> nn.Sequential:
    channels, side, _ = shape
    side = ((side - 4) // 2 - 4) // 2  # twice: a 5x5 convolution without padding, then a pool of 2
    return nn.Sequential(
        nn.Conv2d(channels, first, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(first, second, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * side * side, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def _only_for(
    name: str, wanted: tuple[int, ...], builder: Callable[[int], nn.Module]
) -> Callable[[Shape, int], nn.Module]:
    def checked(shape: Shape, classes: int) -> nn.Module:
        if tuple(shape) != wanted:
            raise InputError("sample shape", tuple(shape), f"model {name} takes {wanted}")
        return builder(classes)

    return checked


MODELS: dict[str, Callable[[Shape, int], nn.Module]] = {
    "paper-cnn": paper_cnn,
    "mnist-cnn": _only_for("mnist-cnn", (1, 28, 28), mnist_cnn),
    "cifar-cnn": _only_for("cifar-cnn", (3, 32, 32), cifar_cnn),
    "mlp": lambda shape, classes: mlp(math.prod(shape), classes=classes),
    "logistic": lambda shape, classes: logistic_regression(math.prod(shape), classes),
}


def build(name: str, shape: Shape, classes: int, seed: int) -> nn.Module:
    """The model of that name for samples of `shape`, with w_0 a function of the seed alone.

    Torch's global generator is neither read nor moved.
    """
    if name not in MODELS:
        raise InputError("model", name, closest(name, MODELS))
    if classes < 1:
        raise InputError("classes", classes, "must be 1 or more")
    if not 0 <= seed < 2**63:
        raise InputError("seed", seed, "must be an integer in 0..2^63-1")
    # Only the generator of the CPU is seeded: torch.manual_seed would reach every GPU's as well.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        return MODELS[name](shape, classes)
