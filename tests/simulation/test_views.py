"""Clients that are row numbers of one dataset train as those that hold copies: to the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import sdfeel
from sdfeel.data import ClientData, Pixels


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3))


def train(data: Any, engine: str, **more: Any) -> tuple[torch.Tensor, list[float]]:
    result = sdfeel.train(
        model(), data, network=sdfeel.Network.ring(3, 2), steps=6, batch_size=3, engine=engine,
        schedule=sdfeel.Schedule(2, 1, 1), evaluate_every=3, **more,
    )  # fmt: skip
    vector = torch.nn.utils.parameters_to_vector(result.model.parameters()).detach()
    return vector, result.history["train_loss"].tolist()


def own_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(2 * outputs, targets)


@pytest.mark.parametrize("loss", [None, own_loss])
@pytest.mark.parametrize("engine", ["fast", "vectorised", "loop", "reference"])
def test_a_partition_of_row_numbers_copies_nothing(engine: str, loss: Any) -> None:
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (30, 1, 3, 4), dtype=np.uint8))
    labels = torch.from_numpy(rng.integers(0, 3, 30))
    parts = [rng.permutation(30)[:size] for size in (4, 7, 3, 9, 2, 5)]  # some hold the same
    store = Pixels(images)
    copies = ClientData.from_partition(store, labels, parts)
    views = ClientData.views(store, labels, parts)
    assert views.inputs.values.data_ptr() == images.data_ptr()
    wanted = train(copies, engine, loss=loss)
    for given, more in ((views, {}), ((store, labels), {"partition": parts})):
        vector, losses = train(given, engine, loss=loss, **more)
        assert torch.equal(vector, wanted[0])
        assert losses == wanted[1]


def test_a_table_of_row_numbers() -> None:
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(30, 12)).astype(np.float32), rng.integers(0, 3, 30)
    table = rng.integers(0, 30, (6, 5))
    as_table, _ = train((inputs, labels), "fast", partition=table)
    as_lists, _ = train((inputs, labels), "fast", partition=table.tolist())
    assert torch.equal(as_table, as_lists)
