"""What the clock charges for a local update: the model's own FLOPs, or the paper's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sdfeel
from sdfeel.api import ClockWarning, assembled
from sdfeel.clock import load_profile, profile_table
from sdfeel.models import cifar_cnn, mlp, mnist_cnn
from sdfeel.simulation import flops

PAPER = load_profile("paper")
SAMPLES = 12
# 784 x 10 weights: forward 2 x 784 x 10 a sample, backward as much again.
LINEAR = 2 * 2 * 784 * 10


def charged(model: nn.Module, shape: tuple[int, ...] = (1, 28, 28), **options: Any) -> float:
    """FLOPs of a local update in a run."""
    rng = np.random.default_rng(0)
    data = [
        (rng.normal(size=(SAMPLES, *shape)).astype(np.float32), rng.integers(0, 10, SAMPLES))
        for _ in range(2)
    ]
    network = sdfeel.Network.ring(2, 1)
    simulation, _ = assembled(model, data, network=network, steps=1, **options)
    assert simulation.profile.flops_per_step is not None
    return simulation.profile.flops_per_step


class Recurrent(nn.Module):
    """The counter knows no LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(28, 10, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x[:, 0])[0][:, -1]


@pytest.mark.parametrize(
    ("model", "shape"), [(mnist_cnn, (1, 28, 28)), (cifar_cnn, (3, 32, 32))], ids=["mnist", "cifar"]
)
def test_the_paper_s_networks_cost_what_the_paper_says(model: Any, shape: Any) -> None:
    assert charged(model(), shape) == PAPER.flops_per_step


def test_the_paper_s_network_with_other_batches_is_counted() -> None:
    half = charged(mnist_cnn(), batch_size=5)
    assert 0 < half == charged(mnist_cnn(), profile="counted", batch_size=10) / 2


def test_another_model_costs_what_it_needs() -> None:
    assert charged(mlp(784, ())) == LINEAR * 10


def test_a_batch_beyond_a_client_s_data_is_its_data() -> None:
    assert charged(mlp(784, ()), batch_size=10**9) == LINEAR * SAMPLES


@pytest.mark.parametrize("name", ["paper", "paper-downlink"])
def test_a_profile_that_is_asked_for_charges_its_number(name: str) -> None:
    assert charged(mlp(784, ()), profile=name) == PAPER.flops_per_step
    own = profile_table(load_profile(name)) | {"flops_per_step": 5e6}
    assert charged(mlp(784, ()), profile=own) == 5e6


def test_what_cannot_be_counted_is_said_by_default_and_refused_when_asked_for() -> None:
    with pytest.warns(ClockWarning, match="Recurrent cannot be counted"):
        assert charged(Recurrent()) == PAPER.flops_per_step
    with pytest.raises(sdfeel.InputError, match="Recurrent cannot be counted"):
        charged(Recurrent(), profile="counted")


def test_looking_the_networks_up_leaves_torch_s_generator_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    flops._networks.__wrapped__()
    assert torch.equal(torch.rand(1), expected)
