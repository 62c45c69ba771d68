"""Why a correction helps on one data set and not on another: what it takes back, and what it adds.

    python benchmarks/drift_and_noise.py mnist-5k 1000
    python benchmarks/drift_and_noise.py cifar10 1000 10000

SD-FEEL with (20, 5) and an all-reduce for so many iterations; then at the weighted mean, of the
clients' gradients on all their data:

drift  the weighted mean over clients of |g_i - g|^2: what a correction takes back
noise  of the mean of tau1 gradients of a batch: what z_i, learned from one period, adds
turn   |mean over a period of g_i - g_i at its start|^2: a shift that is constant over a period
       cannot follow it
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from numpy.typing import NDArray

from sdfeel.algorithm.randomness import draw_batches
from sdfeel.engines.fast import CompiledModel, compile_model
from sdfeel.experiments.config import read_table, run_config, with_settings
from sdfeel.experiments.run import simulation_of
from sdfeel.simulation.simulation import Simulation
from sdfeel.trees import Pixels

TAU1, RATE, BATCH, LOOKED_AT = 20, 0.01, 10, 20  # clients whose period is followed

Gradient = NDArray[np.floating]


class Clients:
    """The clients of a simulation, asked for gradients."""

    def __init__(self, simulation: Simulation) -> None:
        problem = simulation.problem
        self._data, self._seed = problem.data, problem.seed
        inputs = self._data.inputs
        self._inputs = inputs.real() if isinstance(inputs, Pixels) else inputs
        shape = tuple(self._inputs.shape[1:])
        self._model: CompiledModel = compile_model(problem.model, problem.loss, shape)
        self.shares = simulation.algorithm.network.shares.client

    def whole(self, client: int, model: Gradient) -> Gradient:
        """The gradient on all of its data."""
        first, end = self._data.offsets[client : client + 2]
        return self._model.gradient(model, self._inputs[first:end], self._data.targets[first:end])[
            1
        ]

    def batch(self, client: int, k: int, model: Gradient) -> Gradient:
        """The gradient on its batch of iteration k."""
        first, end = self._data.offsets[client : client + 2]
        if end - first <= BATCH:
            return self.whole(client, model)
        who, size, when = (np.array([number]) for number in (client, end - first, k))
        rows = torch.from_numpy(first + draw_batches(self._seed, who, size, when, BATCH)[0, 0])
        return self._model.gradient(model, self._inputs[rows], self._data.targets[rows])[1]


def squared(vector: Gradient) -> float:
    return float((vector.astype(np.float64) ** 2).sum())


def measured(clients: Clients, model: Gradient) -> dict[str, float]:
    gradients = [clients.whole(i, model) for i in range(len(clients.shares))]
    mean = sum(share * own for share, own in zip(clients.shares, gradients, strict=True))
    found = {"gradient": squared(mean), "drift": 0.0, "noise": 0.0, "turn": 0.0}
    for share, own in zip(clients.shares, gradients, strict=True):
        found["drift"] += share * squared(own - mean)
    looked_at = list(range(0, len(gradients), max(1, len(gradients) // LOOKED_AT)))
    for client in looked_at:
        still = np.mean([clients.batch(client, k, model) for k in range(1, TAU1 + 1)], axis=0)
        found["noise"] += squared(still - gradients[client]) / len(looked_at)
        here, passed = model.copy(), []
        for k in range(1, TAU1 + 1):
            passed.append(clients.whole(client, here))
            here -= RATE * clients.batch(client, k, here)
        found["turn"] += squared(np.mean(passed, axis=0) - gradients[client]) / len(looked_at)
    return found


def main() -> None:
    preset, *lengths = sys.argv[1:]
    print(f"| {preset}, after | mean gradient | drift | noise / drift | turn / drift |")
    print("| --- | --- | --- | --- | --- |")
    for steps in lengths:
        schedule = [
            "schedule.tau1=20",
            "schedule.tau2=5",
            "schedule.alpha=1",
            "averager=all-reduce",
        ]
        wanted = with_settings(read_table(preset), [*schedule, f"steps={steps}", f"lr={RATE}"])
        simulation = simulation_of(run_config(wanted))
        run = simulation.run(simulation.engine("fast").engine)
        found = measured(Clients(simulation), run.state.mean().numpy())
        parts = " | ".join(f"{found[name] / found['drift']:.2f}" for name in ("noise", "turn"))
        print(f"| {steps} iterations | {found['gradient']:.3g} | {found['drift']:.3g} | {parts} |")


if __name__ == "__main__":
    main()
