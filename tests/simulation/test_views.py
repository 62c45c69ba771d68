"""Clients that are row numbers of one dataset train as those that hold copies: to the same bits."""

from __future__ import annotations

import json
from pathlib import Path
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


def test_a_memory_map_trains_as_an_array_does(tmp_path: Path) -> None:
    """Images that are larger than the memory: only the rows of a batch are read."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 1, 3, 4), dtype=np.uint8)
    labels = torch.from_numpy(rng.integers(0, 3, 30))
    np.save(tmp_path / "images.npy", images)
    mapped = torch.from_numpy(np.load(tmp_path / "images.npy", mmap_mode="c"))
    parts = np.arange(30).reshape(6, 5)
    vector, losses = train((Pixels(mapped), labels), "fast", partition=parts)
    wanted = train((Pixels(torch.from_numpy(images)), labels), "fast", partition=parts)
    assert torch.equal(vector, wanted[0])
    assert losses == wanted[1]


@pytest.mark.parametrize(("most", "names_them"), [(5, False), (6, True), (7, True)])
def test_what_a_run_leaves_does_not_grow_with_its_clients(
    most: int, names_them: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sdfeel.simulation.simulation.MOST_LISTED", most)
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(30, 12)).astype(np.float32), rng.integers(0, 3, 30)
    train((inputs, labels), "fast", partition="iid", out=tmp_path)
    about = json.loads((tmp_path / "run.json").read_text())
    listed = about.get("python", about)
    assert ("clusters" in listed and "samples" in listed) == names_them
    assert ("clients" in listed) != names_them
