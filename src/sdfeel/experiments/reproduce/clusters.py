"""Whom a model serves: its training loss on the data of each cluster, against the cluster's rate.

Servers that wait for nobody let fast clusters count more. A model that was pulled to their data has
less loss there, and more on the data of slow ones, than a model of rounds has:

    log(F_d(model) / F_d(model of rounds)) = a + slope log2(rate_d) + what is left

over all clusters d and seeds, with an `a` for each seed: models that were trained for longer are
better everywhere, which is no bias. slope < 0: fast clusters gain, by that part of their loss for
twice the rate. What is left gives the slope's standard error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from sdfeel.algorithm.paces.asynchronous import Asynchronous, times_of
from sdfeel.algorithm.schemes import SCHEMES
from sdfeel.errors import InputError
from sdfeel.experiments.config import RunConfig
from sdfeel.experiments.reproduce.spec import Bias
from sdfeel.experiments.run import simulation_of
from sdfeel.files import write_report
from sdfeel.reports.tables import Row
from sdfeel.simulation.loading import load
from sdfeel.trees import cut

FILE = "clusters.csv"
COLUMNS = ("server", "samples", "rate", "loss")
PART = 500  # samples at a time
SAME = 1e-12  # spread of rates below which all are one
FEW = 3  # clusters that are called the fastest, and the slowest


def cluster_losses(config: RunConfig, folder: Path) -> pd.DataFrame:
    """The final model of a run on each cluster's training samples, all of them.

    server, samples  the cluster, and how many samples it holds
    rate             steps a second of the cluster, were its server to wait for nobody
    loss             the mean over its samples
    It is computed once, and kept in the run's folder.
    """
    path = folder / FILE
    try:
        losses = pd.read_csv(path)
    except (OSError, ValueError):
        losses = pd.DataFrame()
    if tuple(losses.columns) != COLUMNS:
        losses = pd.DataFrame(_losses(config, folder))
        write_report(path, losses.to_csv(index=False).encode())
    return losses


def _losses(config: RunConfig, folder: Path) -> list[Row]:
    simulation = simulation_of(config)
    problem, network = simulation.problem, simulation.network
    model = load(folder, problem.model).model
    alone = config.settings.model_copy(
        update={"scheme": SCHEMES["sd-feel"], "pace": Asynchronous()}
    )
    algorithm = alone.algorithm(network, simulation.profile, problem.layout.parameters)
    rate = times_of(Asynchronous(), algorithm).rate
    losses = []
    for server, members in enumerate(network.clusters.members):
        total, count = 0.0, 0
        for client in members:
            for inputs, targets in cut(problem.data.client(client), PART):
                with torch.no_grad():
                    total += float(problem.loss(model(inputs), targets)) * len(targets)
                count += len(targets)
        row = {"server": server, "samples": count, "rate": rate[server], "loss": total / count}
        losses.append(row)
    return losses


def bias_rows(bias: Bias, losses: Mapping[str, Sequence[pd.DataFrame]]) -> list[Row]:
    """A row for each curve; `losses` has a table of `cluster_losses` for each seed, in order."""
    rows = []
    for label in [bias.against, *bias.curves]:
        slope, error = _slope(losses[label], losses[bias.against])
        rows.append(
            {
                "label": label,
                f"loss, {FEW} slowest clusters": _mean_of(losses[label], slowest=True),
                f"loss, {FEW} fastest clusters": _mean_of(losses[label], slowest=False),
                "relative change for twice the rate": slope,
                "its standard error": error,
            }
        )
    return rows


def _mean_of(seeds: Sequence[pd.DataFrame], *, slowest: bool) -> float:
    chosen = [frame.sort_values("rate", ascending=slowest).head(FEW)["loss"] for frame in seeds]
    return float(np.mean([frame.mean() for frame in chosen]))


def _slope(
    seeds: Sequence[pd.DataFrame], base: Sequence[pd.DataFrame]
) -> tuple[float | None, float | None]:
    """Fit a slope by least squares, about the means of each seed; None for equal rates."""
    x, y = [], []
    for frame, other in zip(seeds, base, strict=True):
        if len(frame) != len(other) or not np.allclose(frame["rate"], other["rate"]):
            raise InputError("bias", list(frame["rate"]), "curves must have the same devices")
        at = np.log2(frame["rate"].to_numpy(dtype=float))
        more = np.log(frame["loss"].to_numpy(dtype=float) / other["loss"].to_numpy(dtype=float))
        x.append(at - at.mean())
        y.append(more - more.mean())
    across, up = np.concatenate(x), np.concatenate(y)
    spread, free = float(across @ across), len(across) - len(x) - 1
    if spread < SAME or free < 1:
        return None, None
    slope = float(across @ up) / spread
    left = up - slope * across
    return slope, float(np.sqrt(left @ left / free / spread))
