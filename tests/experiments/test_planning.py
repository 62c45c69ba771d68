"""The planner in the setting of figure 4: the paper's network, clock and model, real training."""

import numpy as np
import pytest

from sdfeel.experiments.config import run_config
from sdfeel.experiments.planning import TrainingLaboratory
from sdfeel.theory.candidates import candidates
from sdfeel.theory.planner import Effort, make_plan, predicted_scores
from sdfeel.theory.race import Objective

FIGURE_4 = {
    "engine": "fast",
    "data": {"name": "mnist-5k", "partition": "dirichlet-fedma", "concentration": 0.5},
    "network": {"graph": "ring", "servers": 10, "clients_per_server": 5},
    "model": {"name": "paper-cnn"},
}
PAPERS_TIME = 250 * 60.0


@pytest.mark.slow
def test_figure_4_three_is_ranked_first_for_the_papers_time_and_one_for_iterations():
    """For a minute it is 20: its lead comes first and melts as gradients fall and kappa stays."""
    laboratory = TrainingLaboratory(run_config(FIGURE_4))
    grid = candidates(
        laboratory.network,
        laboratory.latencies,
        tau1=(1, 3, 20),
        tau2=(1,),
        alpha=(1,),
        averagers=("paper",),
    )
    plan = make_plan(
        laboratory.network,
        laboratory.latencies,
        laboratory,
        Objective(budget=PAPERS_TIME),
        grid=grid,
        effort=Effort(pilot=800, first=2, later=1, heats=1, iterations=1200),
    )
    assert plan.ranking[0].tau1 == 3
    assert plan.choice.tau1 == 3
    minute = predicted_scores(plan.predictor, grid, Objective(budget=60.0))
    assert grid[int(np.argmin(minute))].tau1 == 20
    losses, needed = plan.predictor.needed(grid, beyond=True)
    order = [grid[row].tau1 for row in np.argsort(needed[:, len(losses) // 2])]
    assert order == [1, 3, 20]
