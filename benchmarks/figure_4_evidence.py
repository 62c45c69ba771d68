"""What the planner sees in the setting of figure 4 on CIFAR-10: its pilot and its probe, as JSON.

    python benchmarks/figure_4_evidence.py > tests/planner/figure_4.json

A test holds what the planner makes of it, without the minutes of training (and the data) that it
took. The setting is the paper's: a ring of ten servers with five clients each, tau2 = alpha = 1,
tau1 = 1, 3 or 20.
"""

from __future__ import annotations

import json
import sys

from sdfeel.algorithm.methods.codecs import WAYS
from sdfeel.experiments.config import run_config
from sdfeel.experiments.run import simulation_of
from sdfeel.planner.grid import choices_of
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.planner.price import LossCurve
from sdfeel.planner.race import Effort, Objective
from sdfeel.planner.search import recommend

SETTING = {
    "engine": "fast",
    "data": {"name": "cifar10"},
    "network": {"graph": "ring", "servers": 10, "clients_per_server": 5},
    "model": {"name": "paper-cnn"},
}
CHOICES = choices_of(
    {"tau1": (1, 3, 20), "tau2": 1, "alpha": 1, "averager": "paper", "correction": "none"}
    | {f"codecs.{way}": "float32" for way in WAYS}
)


def curve(seen: LossCurve) -> dict[str, list[float]]:
    losses = [round(float(loss), 6) for loss in seen.losses]
    return {"iterations": seen.iterations.tolist(), "losses": losses}


def main() -> None:
    laboratory = TrainingLaboratory(simulation_of(run_config(SETTING)))
    problem = laboratory.simulation.problem
    plan = recommend(
        laboratory.place,
        laboratory,
        Objective(budget=250 * 60.0),
        choices=CHOICES,
        effort=Effort(racers=1, races=1, race_iterations=20),  # the race is not wanted here
        tell=lambda line: print(line, file=sys.stderr),
    )
    probe, path = plan.probes[0], plan.predictor.path
    json.dump(
        {
            "samples": [int(n) for n in problem.data.samples],
            "parameters": problem.layout.parameters,
            "lr": path.lr,
            "pilot": curve(path.curve),
            "points": [[p.loss, p.inside, p.between] for p in path.points],
            "probe": {"tau1": probe.tau1} | curve(probe.curve),
        },
        sys.stdout,
    )
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
