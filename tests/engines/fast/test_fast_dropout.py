"""Dropout in compiled code drops what torch drops: the same elements for each client and step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fast_networks import train_as_the_reference
from torch import Tensor, nn
from torch.nn import functional

from sdfeel.algorithm.methods.chain import Chain
from sdfeel.algorithm.methods.optimizers import SGD, Adam, Optimizer
from sdfeel.algorithm.methods.rates import Constant
from sdfeel.data import ClientData
from sdfeel.engines.engine import Work
from sdfeel.engines.fast import Unsupported, compile_model
from sdfeel.engines.fast.engine import FastEngine
from sdfeel.engines.fast.source import MOST_DRAWN
from sdfeel.engines.problem import Problem, make_problem

SAMPLES = (300, 3, 40)


class Dropping(nn.Module):
    """Dropout of pixels, of channels, of a padded image, of what lies flat, and by a function."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 5, 3), nn.Conv2d(5, 6, 3, padding=1)
        self.pixels, self.channels = nn.Dropout(0.1), nn.Dropout2d(0.3)
        self.flat = nn.Dropout(0.2)
        self.hidden, self.last = nn.Linear(6 * 3 * 2, 9), nn.Linear(9, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.channels(functional.relu(self.first(self.pixels(x))))
        y = self.pixels(torch.tanh(self.second(y)))
        y = functional.relu(self.hidden(self.flat(y.flatten(1))))
        return self.last(functional.dropout(y, 0.5, self.training))


class Always(nn.Module):
    """Drops in evaluation, too."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(self.body(x), 0.5, training=True)


class Different(nn.Module):
    """Does something else in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return torch.tanh(y) if self.training else y


def problem(
    batch_size: int,
    optimizer: Optimizer | None = None,
    loss: object = functional.cross_entropy,
    dtype: torch.dtype = torch.float64,
) -> Problem:
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(sum(SAMPLES), 2, 5, 4, generator=generator, dtype=dtype)
    labels = torch.randint(0, 4, (sum(SAMPLES),), generator=generator)
    torch.manual_seed(3)
    return make_problem(
        Dropping().to(dtype), ClientData(inputs, labels, np.cumsum([0, *SAMPLES])), loss=loss,
        batch_size=batch_size, seed=7, chain=Chain(optimizer or SGD()), rate=Constant(0.05),
    )  # fmt: skip


def agree(case: Problem, steps: int, near: float) -> None:
    """Train a few steps, each client from another iteration on, with both engines."""
    clients = np.arange(len(SAMPLES))
    start = case.layout.vector(case.model).repeat(len(clients), 1)
    work = Work(clients, clients + 1, clients + steps, (start, clients))
    train_as_the_reference(case, work, near)


@pytest.mark.parametrize("batch_size", [1, 7, 10, 40, 127, 128, 129, 300])
def test_every_length_of_a_batch_drops_the_same(batch_size: int) -> None:
    """All of a batch is drawn layer after layer, also where it is worked on in several blocks."""
    agree(problem(batch_size), 2, 1e-10)


def test_single_precision_adam_and_a_loss_of_python_drop_the_same() -> None:
    agree(problem(10, dtype=torch.float32), 3, 1e-5)
    agree(problem(10, Adam(clip=1.0)), 3, 1e-9)

    def sharper(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(2 * outputs, targets)

    agree(problem(10, loss=sharper), 3, 1e-9)
    agree(problem(150, loss=sharper), 2, 1e-9)


def test_evaluation_drops_nothing_and_leaves_the_model_as_it_was() -> None:
    case = problem(10)
    case.model.eval()
    case.model.pixels.train()
    engine = FastEngine(case)
    assert not case.model.training
    assert case.model.pixels.training
    vector = case.layout.vector(case.model)
    outputs = engine.predict(vector, case.data.inputs)
    torch.testing.assert_close(outputs, case.model.eval()(case.data.inputs), rtol=0, atol=1e-12)
    agree(case, 2, 1e-10)  # given in evaluation mode it drops in training all the same
    again = engine.predict(vector, case.data.inputs)
    torch.testing.assert_close(again, outputs, rtol=0, atol=0)


def test_batches_beyond_what_is_drawn_are_refused() -> None:
    sizes = np.array([0, MOST_DRAWN + 1])
    data = ClientData(torch.zeros(MOST_DRAWN + 1, 4), torch.zeros(MOST_DRAWN + 1).long(), sizes)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))

    def engine(batch_size: int) -> FastEngine:
        return FastEngine(
            make_problem(model, data, loss=functional.cross_entropy, batch_size=batch_size, seed=0)
        )

    engine(MOST_DRAWN)
    with pytest.raises(Unsupported, match="batches of more than 384"):
        engine(MOST_DRAWN + 1)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Always(), "goes on in evaluation"),
        (Different(), "something else in evaluation"),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(1.0)), "everything"),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout2d(0.5)), "dropout2d of vectors"),
    ],
)
def test_what_would_be_wrong_is_refused(model: nn.Module, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        compile_model(model, "cross-entropy", (4,))


def test_a_part_of_zero_is_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0))
    assert not compile_model(model, "cross-entropy", (4,)).drops
