"""The planner in the setting of figure 4: the paper's network, clock and model, real training."""

import pytest
from laboratories import laboratory
from softmax_lab import plain_choices

import sdfeel
from sdfeel import InputError
from sdfeel.algorithm.methods.averaging import Rule
from sdfeel.experiments.config import run_config
from sdfeel.experiments.run import simulation_of
from sdfeel.planner.laboratory import Training, TrainingLaboratory
from sdfeel.planner.race import Effort, Objective
from sdfeel.planner.search import recommend

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
    plan = recommend(
        laboratory.place,
        laboratory,
        Objective(budget=60.0),
        choices=plain_choices(tau1=(1, 3, 20), tau2=1, alpha=1, averager="paper"),
        effort=Effort(pilot=800, racers=2, races=1, race_iterations=1200),
    )
    assert plan.choice.tau1 == plan.ranking[0].tau1 == 20
    assert any("races lasted for" in reason for reason in plan.reasons)
    middle = plan.ranking[0].predicted.losses[len(plan.ranking[0].predicted.losses) // 2]
    order = sorted(plan.ranking, key=lambda row: row.predicted.iterations_to(middle))
    assert [row.tau1 for row in order] == [1, 3, 20]


def test_a_pace_without_rounds_is_refused():
    config = run_config({**FIGURE_4, "pace": {"name": "asynchronous"}})
    with pytest.raises(InputError, match=r"pace = 'Asynchronous'.*rounds"):
        TrainingLaboratory(simulation_of(config))


def test_what_the_planner_cannot_plan_for_is_refused():
    config = run_config({**FIGURE_4, "scheme": "fedavg"})
    with pytest.raises(InputError, match="scheme = 'fedavg'"):
        TrainingLaboratory(simulation_of(config))


def test_a_correction_of_ones_own_is_not_left_out_silently():
    class Own(sdfeel.Method):
        def learn(self, moved, move, rows, period):
            pass

    with pytest.raises(InputError, match=r"^correction = .*pass a method of your own in methods="):
        laboratory(correction=Own())
    place = laboratory(methods=[Own()])
    algorithm = Training(place, place.place.candidate()).simulation.algorithm
    assert [type(method) for method in algorithm.having("learn")] == [Own]


def test_a_laboratory_trains_by_the_rules_of_its_simulation():
    """The averaging rule and the optimizer once went by unseen."""
    settings = {**FIGURE_4, "averaging_rule": {"name": "median"}, "optimizer": {"name": "momentum"}}
    place = TrainingLaboratory(simulation_of(run_config(settings)))
    training = Training(place, place.place.candidate())
    assert training.simulation.algorithm.parts["averaging_rule"] == Rule("median")
    assert training.simulation.problem.chain.optimizer == sdfeel.Momentum()
