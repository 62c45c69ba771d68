"""Which averaging rule holds against a lying client: a CNN on 5,000 MNIST images, non-IID.

    python benchmarks/history_clip.py                 # one server with 3, 5 and 20 clients
    python benchmarks/history_clip.py --periods 20 --seeds 1

The clients of one server share the images by a Dirichlet distribution over the digits. Client 0 is
honest, or sends so many times its honest update, from the first period on. The table has test
accuracies after the last period: the mean over seeds, and the lowest.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import TensorDataset

import sdfeel
from sdfeel.algorithm.methods.averaging import Rule
from sdfeel.algorithm.methods.method import Floats, Period, Row, Rows
from sdfeel.errors import DivergedError
from sdfeel.models import mnist_cnn

RULES = ("mean", "median", "history-clip")
HONEST = 1.0
GUESS = 0.1  # accuracy of a model that has diverged
TAU1 = 10


@dataclass(frozen=True)
class WithLiar(sdfeel.AveragingRule):
    """Average by `rule`, after client 0 has sent `times` its honest update."""

    rule: Rule
    times: float

    @property
    def rows(self) -> Mapping[str, Row]:
        return self.rule.rows

    def combine(
        self, models: Floats, shares: Floats, held: Floats, rows: Rows, period: Period
    ) -> Floats:
        sent = models.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            sent[period.clients == 0] = held + self.times * (models[period.clients == 0] - held)
            return self.rule.combine(sent, shares, held, rows, period)


def accuracy(
    rule: str, clients: int, times: float, seed: int, periods: int, concentration: float
) -> float:
    """Return the test accuracy of one run."""
    digits = sdfeel.data.load("mnist-5k")
    inputs, labels = digits.train_inputs, digits.train_targets
    parts = sdfeel.data.partition("dirichlet", labels, clients, seed, concentration=concentration)
    torch.manual_seed(seed)
    try:
        result = sdfeel.train(
            mnist_cnn(),
            [TensorDataset(inputs[part], labels[part]) for part in map(torch.from_numpy, parts)],
            network=sdfeel.Network.build("path", 1, clients),
            scheme="fedavg",
            schedule=sdfeel.Schedule(TAU1, 1, 1),
            steps=TAU1 * periods,
            lr=0.05,
            batch_size=10,
            seed=seed,
            averaging_rule=WithLiar(Rule(rule), times),  # type: ignore[arg-type]
            test=TensorDataset(digits.test_inputs, digits.test_targets),
            evaluate_every=TAU1 * periods,
        )
    except DivergedError:
        return GUESS
    return float(result.history["test_accuracy"].iloc[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--periods", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[3, 5, 20])
    parser.add_argument("--concentration", type=float, default=0.5)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("| clients | client 0 sends |", " | ".join(RULES), "|")
    print("| --- | --- |" + " --- |" * len(RULES))
    for clients in chosen.clients:
        for times in (HONEST, -10.0, -90.0):
            cells = []
            for rule in RULES:
                found = [
                    accuracy(rule, clients, times, seed, chosen.periods, chosen.concentration)
                    for seed in range(chosen.seeds)
                ]
                cells.append(f"{np.mean(found):.3f} ({min(found):.3f})")
            label = "its update" if times == HONEST else f"{times:g} times its update"
            print(f"| {clients} | {label} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
