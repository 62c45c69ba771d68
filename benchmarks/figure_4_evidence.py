"""What the planner sees in the setting of figure 4 on CIFAR-10: its pilot and its probe, as JSON.

    python benchmarks/figure_4_evidence.py > tests/theory/figure_4.json

A test holds what the planner makes of it, without the minutes of training (and the data) that it
took. The setting is the paper's: a ring of ten servers with five clients each, tau2 = alpha = 1,
tau1 = 1, 3 or 20.
"""

from __future__ import annotations

import json
import sys

from sdfeel.experiments.config import run_config
from sdfeel.planner.candidates import candidates
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.planner.pilot_path import LossCurve
from sdfeel.planner.planner import Effort, recommend
from sdfeel.planner.race import Objective

SETTING = {
    "engine": "fast",
    "data": {"name": "cifar10"},
    "network": {"graph": "ring", "servers": 10, "clients_per_server": 5},
    "model": {"name": "paper-cnn"},
}


def curve(seen: LossCurve) -> dict[str, list[float]]:
    losses = [round(float(loss), 6) for loss in seen.losses]
    return {"iterations": seen.iterations.tolist(), "losses": losses}


def main() -> None:
    laboratory = TrainingLaboratory(run_config(SETTING))
    network, latencies = laboratory.network, laboratory.latencies
    plan = recommend(
        network,
        latencies,
        laboratory,
        Objective(budget=250 * 60.0),
        grid=candidates(
            network, latencies, tau1=(1, 3, 20), tau2=(1,), alpha=(1,), averagers=("paper",)
        ),
        effort=Effort(first=1, heats=1, iterations=20),  # the race is not wanted here
    )
    probe = plan.probes[0]
    json.dump(
        {
            "samples": [int(n) for n in laboratory.problem.data.samples],
            "parameters": laboratory.problem.layout.parameters,
            "lr": laboratory.lr,
            "pilot": curve(plan.pilot),
            "points": [[p.loss, p.inside, p.between] for p in plan.predictor.path.points],
            "probe": {"tau1": probe.candidate.tau1} | curve(probe.run.curve),
        },
        sys.stdout,
    )
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
