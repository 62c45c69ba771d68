"""The planner in the setting of figure 4: the paper's network, clock and model, real training."""

import numpy as np
import pytest

import sdfeel
from sdfeel import InputError
from sdfeel.algorithm.averaging import Rule
from sdfeel.experiments.config import run_config
from sdfeel.experiments.run import simulation_of
from sdfeel.planner.candidates import candidates
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.planner.planner import Effort, recommend
from sdfeel.planner.race import Objective

FIGURE_4 = {
    "engine": "fast",
    "data": {"name": "mnist-5k", "partition": "dirichlet-fedma", "concentration": 0.5},
    "network": {"graph": "ring", "servers": 10, "clients_per_server": 5},
    "model": {"name": "paper-cnn"},
}


@pytest.mark.slow
def test_in_the_setting_of_figure_4_a_minute_is_for_20_and_iterations_are_for_1():
    """Rare uploads lead at first. What comes of the paper's 250 minutes: tests/theory."""
    laboratory = TrainingLaboratory(simulation_of(run_config(FIGURE_4)))
    grid = candidates(
        laboratory.network,
        laboratory.latencies,
        tau1=(1, 3, 20),
        tau2=(1,),
        alpha=(1,),
        averagers=("paper",),
    )
    plan = recommend(
        laboratory.network,
        laboratory.latencies,
        laboratory,
        Objective(budget=60.0),
        grid=grid,
        effort=Effort(pilot=800, first=2, later=1, heats=1, iterations=1200),
    )
    assert plan.choice.tau1 == plan.ranking[0].tau1 == 20
    assert any("races lasted for" in doubt for doubt in plan.doubts)
    losses, needed = plan.predictor.needed(grid, beyond=True)
    order = [grid[row].tau1 for row in np.argsort(needed[:, len(losses) // 2])]
    assert order == [1, 3, 20]


def test_a_pace_without_rounds_is_refused():
    config = run_config({**FIGURE_4, "pace": {"name": "asynchronous"}})
    with pytest.raises(InputError, match=r"pace = 'Asynchronous'.*rounds"):
        TrainingLaboratory(simulation_of(config))


def test_what_the_planner_cannot_plan_for_is_refused():
    config = run_config({**FIGURE_4, "scheme": "fedavg"})
    with pytest.raises(InputError, match="scheme = 'fedavg'"):
        TrainingLaboratory(simulation_of(config))


def test_a_laboratory_trains_by_the_rules_of_its_simulation():
    """The averaging rule and the local rule once went by unseen."""
    own = {**FIGURE_4, "averaging_rule": {"name": "median"}, "local": {"name": "momentum"}}
    laboratory = TrainingLaboratory(simulation_of(run_config(own)))
    grid = candidates(
        laboratory.network, laboratory.latencies, tau1=(1,), tau2=(1,), alpha=(1,),
        averagers=("paper",),
    )  # fmt: skip
    run = laboratory.start(grid[0])
    assert run.simulation.algorithm.rule == Rule("median")
    assert run.simulation.problem.local == sdfeel.Momentum()
