"""The clock says so where it charges the paper's FLOPs for a model that needs others."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sdfeel
from sdfeel.api import ClockWarning
from sdfeel.clock import load_profile, profile_table
from sdfeel.models import mlp, mnist_cnn
from sdfeel.network import Network
from sdfeel.simulation import flops

NETWORK = Network.ring(2, 1)


def images(count: int = 12) -> list[Any]:
    rng = np.random.default_rng(0)
    shape = (count, 1, 28, 28)
    return [
        (rng.normal(size=shape).astype(np.float32), rng.integers(0, 10, count)) for _ in range(2)
    ]


def said(model: nn.Module, **options: Any) -> list[str]:
    given: dict[str, Any] = {
        "network": NETWORK, "steps": 1, "engine": "reference", "averager": "metropolis",
        "schedule": sdfeel.Schedule(1, 1, 1),
    }  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sdfeel.train(model, images(), **{**given, **options})
    return [str(one.message) for one in caught if issubclass(one.category, ClockWarning)]


class Recurrent(nn.Module):
    """The counter knows no LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(28, 10, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x[:, 0])[0][:, -1]


def test_the_paper_s_network_is_charged_as_the_paper_says() -> None:
    assert said(mnist_cnn()) == []


def test_the_paper_s_network_with_other_batches_is_not() -> None:
    (line,) = said(mnist_cnn(), batch_size=5)
    assert "clock.profile=counted" in line


def test_another_model_is_named_with_what_it_needs() -> None:
    """784 x 10 weights: forward 2 x 784 x 10, backward as much again, ten samples."""
    (line,) = said(mlp(784, ()))
    assert "charges 138.4 MFLOPs" in line
    assert 'needs 0.3136: profile="counted" (clock.profile=counted) counts them' in line


def test_a_batch_beyond_a_client_s_data_is_its_data() -> None:
    (line,) = said(mlp(784, ()), batch_size=10**9)
    assert f"needs {2 * 2 * 784 * 10 * 12 / 1e6:.4g}:" in line


@pytest.mark.parametrize("change", [{"flops_per_step": "counted"}, {"flops_per_step": 5e6}])
def test_who_has_a_number_of_their_own_hears_nothing(change: dict[str, Any]) -> None:
    profile = profile_table(load_profile("paper")) | change
    assert said(mlp(784, ()), profile=profile) == []


def test_other_profiles_with_the_paper_s_number_have_another_remedy() -> None:
    (line,) = said(mlp(784, ()), profile="paper-downlink")
    assert 'flops_per_step = "counted"' in line


@pytest.mark.parametrize(("charged", "lines"), [(0.34e6, 0), (0.35e6, 1), (0.29e6, 0), (0.28e6, 1)])
def test_within_a_tenth_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, charged: float, lines: int
) -> None:
    """The model needs 0.3136 MFLOPs."""
    monkeypatch.setattr(flops, "_of_the_paper", lambda: charged)
    profile = profile_table(load_profile("paper")) | {"flops_per_step": charged}
    assert len(said(mlp(784, ()), profile=profile)) == lines


def test_what_cannot_be_counted_is_said() -> None:
    (line,) = said(Recurrent())
    assert "cannot be counted" in line
