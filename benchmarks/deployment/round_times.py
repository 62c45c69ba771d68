"""Predicted against measured: the clock's formula beside what a deployment's logs say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sdfeel.deploy.topology import Topology

__all__ = ["RoundTimes", "draw_times", "round_times"]

Lines = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class RoundTimes:
    """Seconds of every round (tau1 tau2 iterations), measured at one edge and predicted."""

    measured: tuple[float, ...]
    predicted: float
    computing: float  # of it: local updates of the slowest client


def round_times(
    topology: Topology, edge: Lines, clients: Mapping[str, Lines], model_seconds: float
) -> RoundTimes:
    """From the logs of an edge and of all clients.

    t_cmp is what the slowest client took per local update; t_ct-sr and t_sr-sr are both
    `model_seconds`, the time of one model over one stream here.
    """
    ends = [(line["period"], line["time"]) for line in edge if line["event"] == "period"]
    rounds = [time for period, time in ends if period % topology.tau2 == 0]
    trained = [
        float(np.median([line["trained"] for line in lines if line["event"] == "uploaded"]))
        for lines in clients.values()
    ]
    t_cmp = max(trained) / topology.tau1
    alpha = topology.at(0).averager.exchanges
    period = topology.tau1 * t_cmp + model_seconds
    predicted = topology.tau2 * period + alpha * model_seconds
    measured = tuple(float(gap) for gap in np.diff(rounds))
    return RoundTimes(measured, predicted, topology.tau2 * max(trained))


def draw_times(times: RoundTimes, path: Path) -> None:
    """A figure with both."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    rounds = np.arange(2, len(times.measured) + 2)
    axes.plot(rounds, times.measured, "o-", ms=3, label="measured")
    axes.axhline(times.predicted, color="C1", label="predicted by the clock")
    axes.axhline(times.computing, color="C2", ls=":", label="of it: computing")
    axes.set(xlabel="round", ylabel="seconds per round", ylim=(0, None))
    axes.legend()
    figure.savefig(path)
