"""The planner on a convex problem: small, and small enough to know the right answer."""

import numpy as np
import pytest

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.codecs import codecs_of
from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import Latencies, load_profile
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.planner.candidates import candidates, cost
from sdfeel.planner.figure import frontier_figure
from sdfeel.planner.pilot import NotReachableError
from sdfeel.planner.pilot_path import LossCurve
from sdfeel.planner.planner import Effort, predicted_scores, recommend
from sdfeel.planner.race import Objective
from sdfeel.planner.report import other_topologies, plan_dict
from sdfeel.planner.softmax_lab import SoftmaxLaboratory
from sdfeel.theory.softmax import random_softmax

NETWORK = Network.ring(5, 3)
QUICK = Effort(pilot=300, first=3, later=2, heats=2)


def latencies(uplink=1.0, exchange=1.0, network=NETWORK, **more):
    clients, servers = network.clients, network.servers
    each = {"t_cmp": np.ones(clients), "t_ct_sr": np.full(clients, uplink)} | more
    return Latencies(t_ct_cd=np.ones(clients), t_sr_cd=np.ones(servers), t_sr_sr=exchange, **each)


def problem(inside=0.3, between=0.3):
    return random_softmax(
        NETWORK, 5, inside=inside, between=between, lr=1.0, spread=0.5, classes=3, features=6
    )


def plan_for(times, objective, made=None, **grid):
    options = {"tau1": (1, 3, 10), "tau2": (1, 5), "alpha": (1, 3)} | grid
    found = candidates(NETWORK, times, **options)
    laboratory = SoftmaxLaboratory(made or problem())
    return recommend(NETWORK, times, laboratory, objective, grid=found, effort=QUICK)


def test_the_grid_has_nothing_twice_and_nothing_that_cannot_win():
    times = latencies()
    every = candidates(NETWORK, times, prune=False)
    kept = candidates(NETWORK, times)
    keys = [one.key for one in every]
    assert len(keys) == len(set(keys))
    assert not any(one.averager.name == "chebyshev" and one.alpha == 1 for one in every)
    # On a ring an all-reduce is cheaper than one exchange, and exact: nothing else is left.
    assert {one.averager.name for one in kept} == {"all-reduce"}
    assert len(kept) == 36


def test_one_server_has_no_second_period():
    alone = Network([[0, 1, 2]], [])
    found = candidates(alone, latencies(network=alone))
    assert {one.tau2 for one in found} == {1}


@pytest.mark.parametrize(("tau1", "tau2", "alpha"), [(2, 1, 5), (1, 1, 1), (5, 5, 1)])
def test_a_round_costs_what_the_paper_s_formula_says(tau1, tau2, alpha):
    found = cost(NETWORK, latencies(3.0, 0.5), tau1, tau2, NETWORK.averager("paper", alpha))
    assert sum(found.parts.values()) == pytest.approx(tau2 * (tau1 + 3.0) + alpha * 0.5)
    assert float(found.seconds(tau1 * tau2)) == pytest.approx(sum(found.parts.values()))
    assert sum(found.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("profile", ["paper", "paper-downlink"])
@pytest.mark.parametrize("codecs", [{}, {"up": "int8", "down": "int8"}])
@pytest.mark.parametrize(("tau1", "tau2", "alpha"), [(2, 1, 5), (5, 5, 1)])
def test_a_round_costs_what_a_run_s_own_clock_says(tau1, tau2, alpha, codecs, profile):
    """With whatever travels, and down again where a profile has rates for it."""
    schedule = Schedule(tau1, tau2, alpha)
    algorithm = Algorithm.of(
        "sd-feel",
        NETWORK,
        profile=load_profile(profile),
        parameters=21840,
        schedule=schedule,
        codecs=codecs_of(codecs),
    )
    averager = NETWORK.averager("paper", alpha)
    found = cost(NETWORK, algorithm.uplink.latencies, tau1, tau2, averager)
    assert sum(found.parts.values()) == pytest.approx(algorithm.round_cost().total)


def test_the_slowest_device_sets_the_pace_of_all_servers():
    slow = np.ones(NETWORK.clients)
    slow[0] = 5.0
    found = cost(NETWORK, latencies(t_cmp=slow), 2, 1, NETWORK.averager("paper"))
    assert found.per_iteration == pytest.approx((2 * 5 + 1 + 1) / 2)


def test_iterations_within_a_time_is_the_inverse_of_the_clock():
    found = cost(NETWORK, latencies(3.0, 7.0), 3, 2, NETWORK.averager("paper", 2))
    for seconds in (0.5, 1.0, 5.9, 6.0, 40.0, 200.0):
        k = found.iterations_within(seconds)
        assert float(found.seconds(k)) <= seconds < float(found.seconds(k + 1))


def test_what_is_dear_is_done_rarely():
    """The same problem under three clocks: the choice moves with the bottleneck."""
    target = Objective(target=0.75)
    cheap = plan_for(latencies(0.01, 0.01), target).choice
    uplink = plan_for(latencies(20.0, 0.01), target).choice
    exchange = plan_for(latencies(0.01, 50.0), target).choice
    assert cheap.tau1 * cheap.tau2 <= 3
    assert uplink.tau1 > cheap.tau1
    assert exchange.tau1 * exchange.tau2 > cheap.tau1 * cheap.tau2


def test_the_split_of_kappa_tells_tau1_from_tau2():
    """Skew inside clusters punishes tau1, skew between them tau1 tau2: the bound cannot see it."""
    times = latencies()
    ratios = []
    for inside, between in ((0.05, 50.0), (50.0, 0.05)):
        found = plan_for(times, Objective(target=0.85), problem(inside, between))
        grid = candidates(NETWORK, times, tau1=(1, 10), tau2=(1, 10))
        needed = dict(
            zip([one.key[:2] for one in grid], found.predictor.iterations(grid, 0.9), strict=True)
        )
        ratios.append((needed[10, 1] - needed[1, 1]) / (needed[1, 10] - needed[1, 1]))
    assert ratios[0] > 1.5 * ratios[1]


def test_fewer_aggregations_never_need_fewer_iterations():
    """The ordering of Remark 1 in the prediction: tau1 = tau2 = 1 is first by iterations."""
    found = plan_for(latencies(), Objective(target=0.75))
    chosen = list(found.ranking)
    iterations = found.predictor.iterations(chosen, 0.75)
    assert chosen[int(np.argmin(iterations))].key[:2] == (1, 1)


def test_a_budget_gives_the_least_loss_and_the_report_says_all():
    found = plan_for(latencies(5.0, 1.0), Objective(budget=400.0))
    report = plan_dict(found, other_topologies(found, latencies(5.0, 1.0)))
    assert report["seconds_to_target"] == 400.0
    assert {"tau1", "tau2", "alpha", "averager", "bottleneck"} <= set(report)
    assert report["evidence"]["iterations_spent"] > 0
    assert "full" in report["other_topologies"]
    assert "ring" not in report["other_topologies"]  # it is this one
    assert found.loss <= min(one.run.curve.loss_at(400.0) for one in found.raced) + 1e-12
    figure = frontier_figure(found)
    figure.canvas.draw()
    for axes in figure.axes:  # no line can run into a legend: it lies below its panel, in the page
        legend = axes.get_legend().get_window_extent()
        assert 0 <= legend.y0 < legend.y1 <= axes.get_window_extent().y0


def test_losers_are_dropped_early_and_races_cost_little():
    target = Objective(target=0.75)
    found = plan_for(latencies(20.0, 20.0), target)
    best = found.choice.cost
    for one in found.raced:
        limit = one.candidate.cost.iterations_within(found.seconds * 1.7) + one.candidate.tau1
        assert one.iterations <= limit
    assert found.seconds == pytest.approx(
        min(one.score(target) for one in found.raced if np.isfinite(one.score(target)))
    )
    assert best.bottleneck in ("uplink", "exchange")


def test_a_target_out_of_reach_says_what_was_reached():
    with pytest.raises(NotReachableError, match=r"loss 0\.001 is not reachable .* best reached is"):
        plan_for(latencies(), Objective(target=0.001))
    with pytest.raises(NotReachableError, match=r"within the budget.* best reached is loss"):
        plan_for(latencies(), Objective(target=0.7, budget=12.0))
    with pytest.raises(NotReachableError, match="do not suffice for one iteration"):
        plan_for(latencies(), Objective(budget=0.5))


@pytest.mark.parametrize(
    "wrong", [{}, {"budget": 0.0}, {"target": -1.0}, {"target": float("nan")}, {"budget": -3.0}]
)
def test_meaningless_objectives_are_refused(wrong):
    with pytest.raises(InputError):
        Objective(**wrong)


def test_a_crossing_lies_between_two_evaluations():
    curve = LossCurve(np.array([0, 10, 20]), np.array([0.0, 1.0, 3.0]), np.array([3.0, 2.0, 1.0]))
    assert curve.iterations_to(1.5) == pytest.approx(15)
    assert curve.seconds_to(1.5) == pytest.approx(2)
    assert curve.iterations_to(0.5) == np.inf
    assert curve.loss_at(1.5) == 2.0


def test_on_figure_4_s_network_and_clock_the_choice_follows_the_target():
    """Ring of ten, 50 clients, the paper's clock, tau2 = alpha = 1: tau1 in 1, 3, 20.

    This problem was picked because it has both answers: among twelve that were tried 20 was the
    fastest in seven, 3 in four and 1 in one. An easy target favours rare uploads, a strict one on
    strongly skewed data the paper's 3; by iterations 1 is always first. It does not show that 3 is
    the fastest in the paper's own experiment: see docs/planner.md.
    """
    network = Network.ring(10, 5)
    times = load_profile("paper").latencies(21_840, 50, 10)
    skewed = random_softmax(
        network, 1, inside=0.1, between=0.1, lr=2.0, spread=0.5, classes=3, features=8
    )
    choices = {"tau1": (1, 3, 20), "tau2": (1,), "alpha": (1,), "averagers": ("paper",)}
    grid = candidates(network, times, **choices)

    def planned(loss):
        laboratory = SoftmaxLaboratory(skewed)
        return recommend(network, times, laboratory, Objective(target=loss), grid=grid)

    strict = planned(0.6772)
    assert strict.choice.tau1 == 3
    assert strict.ranking[0].tau1 == 3
    iterations = strict.predictor.iterations(sorted(grid, key=lambda one: one.tau1), 0.6772)
    assert list(iterations) == sorted(iterations)
    assert planned(0.8).choice.tau1 == 20


def test_a_budget_far_beyond_the_pilot_still_tells_schedules_apart():
    """A pilot of ten iterations ends long before any schedule's time is up."""
    times, objective = latencies(uplink=50.0), Objective(budget=3000.0)
    grid = candidates(NETWORK, times, tau1=(1, 3, 10), tau2=(1, 5), alpha=(1, 3))
    effort = Effort(pilot=10, first=2, later=1, heats=1)
    plan = recommend(
        NETWORK, times, SoftmaxLaboratory(problem()), objective, grid=grid, effort=effort
    )
    scores = predicted_scores(plan.predictor, grid, objective)
    assert len(set(scores.tolist())) == len(grid)
    assert plan.choice.tau1 == 10
    assert any("beyond the pilot" in doubt for doubt in plan.doubts)


def test_a_long_budget_is_raced_for_a_part_of_its_time_and_the_plan_says_so():
    times, objective = latencies(), Objective(budget=5000.0)
    grid = candidates(NETWORK, times, tau1=(1, 3, 10), tau2=(1, 5), alpha=(1, 3))
    effort = Effort(pilot=100, first=3, later=2, heats=2, iterations=600)
    plan = recommend(
        NETWORK, times, SoftmaxLaboratory(problem()), objective, grid=grid, effort=effort
    )
    assert sum(one.iterations for one in plan.raced) <= 600 + 10 * len(plan.raced)
    assert any("races lasted for" in doubt for doubt in plan.doubts)
    # What is promised for the end of the budget is below what the race has seen.
    winner = next(one for one in plan.raced if one.candidate.key == plan.choice.key)
    assert plan.loss < winner.run.curve.best
