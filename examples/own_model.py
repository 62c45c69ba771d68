"""Your own model, your own data, your own loss: sensors that learn to forecast together.

Twelve weather stations in three towns hold a few days of temperatures each, and never share them.
The model is any `nn.Module`, a client's data any map-style dataset, the loss any function.

    python examples/own_model.py [folder for the figure]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import sdfeel
from sdfeel import Network, Schedule

PAST = 24  # hours that a forecast looks back


class Forecast(nn.Module):
    """The next hour from the past day."""

    def __init__(self) -> None:
        super().__init__()
        self.hours = nn.Linear(PAST, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, past: Tensor) -> Tensor:
        return past[:, -1] + self.out(torch.tanh(self.hours(past))).squeeze(-1)


class Station(Dataset):
    """Windows over one station's temperatures: (the past day, the next hour)."""

    def __init__(self, town: int, days: int, seed: int) -> None:
        chance = np.random.default_rng(seed)
        hours = np.arange(24 * days)
        daily = (1 + 0.3 * town) * np.sin(2 * np.pi * (hours - 9) / 24)
        weather = np.cumsum(0.1 * chance.normal(size=len(hours)))
        self.degrees = torch.from_numpy(daily + weather).float()

    def __len__(self) -> int:
        return len(self.degrees) - PAST

    def __getitem__(self, hour: int) -> tuple[Tensor, Tensor]:
        return self.degrees[hour : hour + PAST], self.degrees[hour + PAST]


def mean_absolute_error(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs - targets).abs().mean())


def main(folder: Path | None = None) -> None:
    torch.manual_seed(0)
    towns = [[0, 1, 2, 3, 4], [5, 6, 7], [8, 9, 10, 11]]
    stations = [
        Station(town, days=4 + client % 3, seed=client)
        for town, members in enumerate(towns)
        for client in members
    ]
    result = sdfeel.train(
        Forecast(),
        stations,
        network=Network(clusters=towns, graph=[(0, 1), (1, 2)]),
        schedule=Schedule(tau1=5, tau2=2, alpha=1),
        averager="metropolis",
        steps=400,
        lr=0.02,
        loss=nn.functional.mse_loss,
        metrics={"error": mean_absolute_error},
        test=Station(town=1, days=10, seed=99),
    )
    columns = ["iteration", "seconds", "train_loss", "test_error"]
    print(result.history[columns].iloc[::4].to_string(index=False))
    print(f"\n{len(result.server_models)} towns, one model; engine: {result.engine}")
    if folder is not None:
        result.plot(folder / "forecast.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
