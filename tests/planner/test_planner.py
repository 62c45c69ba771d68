"""The planner on a convex problem: small, and small enough to know the right answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from softmax_lab import SoftmaxLaboratory, plain_choices, timed_place
from softmax_problem import random_softmax

from sdfeel.algorithm.costs import round_cost
from sdfeel.algorithm.methods.codecs import CODECS, codecs_by_way
from sdfeel.algorithm.methods.corrections import Correction
from sdfeel.algorithm.paces import Deadline
from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import Latencies, load_profile
from sdfeel.errors import InputError
from sdfeel.network import AVERAGERS, Network
from sdfeel.planner.candidate import Place
from sdfeel.planner.figure import frontier_figure
from sdfeel.planner.grid import candidates
from sdfeel.planner.pilot import NotReachableError
from sdfeel.planner.price import LossCurve
from sdfeel.planner.race import Effort, Objective, simplest
from sdfeel.planner.search import recommend
from sdfeel.simulation.settings import Settings

NETWORK = Network.ring(5, 3)
QUICK = Effort(pilot=300, racers=3, races=2)


def latencies(uplink=1.0, exchange=1.0, network=NETWORK, **more):
    clients, servers = network.clients, network.servers
    each = {"t_cmp": np.ones(clients), "t_ct_sr": np.full(clients, uplink)} | more
    return Latencies(t_ct_cd=np.ones(clients), t_sr_cd=np.ones(servers), t_sr_sr=exchange, **each)


def problem(inside=0.3, between=0.3):
    return random_softmax(
        NETWORK, 5, inside=inside, between=between, lr=1.0, spread=0.5, classes=3, features=6
    )


def plan_for(times, objective, made=None, effort=QUICK, tell=lambda line: None, **grid):
    made = made or problem()
    options = {"tau1": (1, 3, 10), "tau2": (1, 5), "alpha": (1, 3)} | grid
    place, laboratory = timed_place(made.network, times, lr=made.lr), SoftmaxLaboratory(made)
    choices = plain_choices(**options)
    return recommend(place, laboratory, objective, choices=choices, effort=effort, tell=tell)


def priced(times, tau1, tau2, averager="paper", alpha=1, network=NETWORK):
    place = timed_place(network, times)
    return place.candidate(schedule=Schedule(tau1, tau2, alpha), averager=averager).price


def test_the_grid_has_nothing_twice_and_nothing_that_cannot_win():
    place = timed_place(NETWORK, latencies())
    every = candidates(place, plain_choices(), prune=False)
    best = candidates(place, plain_choices())
    keys = [row.key for row in every]
    assert len(keys) == len(set(keys))
    assert not any(row.averager.name == "chebyshev" and row.alpha == 1 for row in every)
    # On a ring an all-reduce is cheaper than one exchange, and exact: nothing else is left.
    assert {row.averager.name for row in best} == {"all-reduce"}
    assert len(best) == 36


def test_one_server_has_no_second_period():
    alone = Network([[0, 1, 2]], [])
    grid = candidates(timed_place(alone, latencies(network=alone)), plain_choices())
    assert {row.tau2 for row in grid} == {1}
    assert {row.averager.name for row in grid} <= set(AVERAGERS)


@pytest.mark.parametrize(("tau1", "tau2", "alpha"), [(2, 1, 5), (1, 1, 1), (5, 5, 1)])
def test_a_round_costs_what_the_paper_s_formula_says(tau1, tau2, alpha):
    price = priced(latencies(3.0, 0.5), tau1, tau2, alpha=alpha)
    assert sum(price.parts.values()) == pytest.approx(tau2 * (tau1 + 3.0) + alpha * 0.5)
    assert price.parts["compute"] == pytest.approx(tau1 * tau2)
    assert price.parts["exchange"] == pytest.approx(alpha * 0.5)
    assert float(price.seconds_of(tau1 * tau2)) == pytest.approx(sum(price.parts.values()))
    assert sum(price.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("profile", ["paper", "paper-downlink"])
@pytest.mark.parametrize("codecs", [{}, {"up": "int8", "down": "int8"}])
@pytest.mark.parametrize(("tau1", "tau2", "alpha"), [(2, 1, 5), (5, 5, 1)])
def test_a_round_costs_what_a_run_s_own_clock_says(tau1, tau2, alpha, codecs, profile):
    """With whatever travels, and down again where a profile has rates for it."""
    schedule = Schedule(tau1, tau2, alpha)
    given_settings = Settings.of({"schedule": schedule, "codecs": codecs})
    place = Place(given_settings, NETWORK, load_profile(profile), 21840)
    price = place.candidate().price
    assert sum(price.parts.values()) == pytest.approx(round_cost(place.algorithm()).total)


def test_the_slowest_device_sets_the_pace_of_all_servers():
    slow = np.ones(NETWORK.clients)
    slow[0] = 5.0
    price = priced(latencies(t_cmp=slow), 2, 1)
    assert price.per_iteration == pytest.approx((2 * 5 + 1 + 1) / 2)


def test_iterations_within_a_time_is_the_inverse_of_the_clock():
    price = priced(latencies(3.0, 7.0), 3, 2, alpha=2)
    for seconds in (0.5, 1.0, 5.9, 6.0, 40.0, 200.0):
        k = price.iterations_within(seconds)
        assert float(price.seconds_of(k)) <= seconds * (1 + 1e-9)
        assert seconds < float(price.seconds_of(k + 1))
        assert float(price.seconds_of(price.iterations_at(seconds))) == pytest.approx(seconds)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["ring", "path", "star", "full"]),
    st.sampled_from(["paper", "all-reduce", "metropolis", "exact"]),
    st.sampled_from(["synchronous", "deadline"]),
)
def test_a_price_is_that_of_the_run_however_devices_and_links_differ(seed, graph, averager, pace):
    """It is read off a few rounds; a run of many must end when it says."""
    rng = np.random.default_rng(seed)
    network = Network.build(graph, int(rng.integers(2, 6)), int(rng.integers(1, 4)))
    links = {(min(a, b), max(a, b)): float(rng.uniform(0.1, 9)) for a, b in network.graph.edges()}
    times = Latencies(
        t_cmp=rng.uniform(0.1, 2, network.clients),
        t_ct_sr=rng.uniform(0.1, 5, network.clients),
        t_ct_cd=np.ones(network.clients),
        t_sr_cd=rng.uniform(0.1, 5, network.servers),
        t_sr_sr=1.0,
        links=links,
    )
    schedule = Schedule(*(int(n) for n in rng.integers(1, 4, 3)))
    chosen = {"schedule": schedule, "averager": averager}
    if pace == "deadline":
        needed = schedule.tau1 * times.t_cmp + times.t_ct_sr
        chosen["pace"] = Deadline(float(np.quantile(needed, 0.5)))
    place = timed_place(network, times)
    price = place.candidate(**chosen).price
    for event in place.algorithm(**chosen).events(40 * schedule.tau):
        assert float(price.seconds_of(event.k)) == pytest.approx(event.ends, rel=1e-6)


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
        plan = plan_for(times, Objective(target=0.85), problem(inside, between))
        place = timed_place(NETWORK, times)
        grid = candidates(place, plain_choices(tau1=(1, 10), tau2=(1, 10)))
        curves = plan.predictor.curves(grid)
        needed = {
            (row.tau1, row.tau2): curve.iterations_to(0.9)
            for row, curve in zip(grid, curves, strict=True)
        }
        ratios.append((needed[10, 1] - needed[1, 1]) / (needed[1, 10] - needed[1, 1]))
    assert ratios[0] > 1.5 * ratios[1]


def test_fewer_aggregations_never_need_fewer_iterations():
    """The ordering of Remark 1 in the prediction: tau1 = tau2 = 1 is first by iterations."""
    plan = plan_for(latencies(), Objective(target=0.75))
    least = min(plan.ranking, key=lambda row: row.predicted.iterations_to(0.75))
    assert (least.tau1, least.tau2) == (1, 1)


def test_a_budget_gives_the_least_loss_and_the_report_says_all():
    plan = plan_for(latencies(5.0, 1.0), Objective(budget=400.0))
    report = plan.to_dict()
    assert report["seconds_to_target"] == 400.0
    assert {"tau1", "tau2", "alpha", "averager", "bottleneck"} <= set(report)
    assert report["evidence"]["iterations_spent"] > 0
    assert "full" in report["other_topologies"]
    assert "ring" not in report["other_topologies"]  # it is this one
    assert plan.loss <= 1.03 * min(row.curve.loss_at(400.0) for row in plan.raced)
    figure = frontier_figure(plan)
    figure.canvas.draw()
    (legend,) = (legend.get_window_extent() for legend in figure.legends)
    for axes in figure.axes:  # no line can run into the legend: it lies below, in the page
        assert 0 <= legend.y0 < legend.y1 <= axes.get_window_extent().y0


def test_losers_are_dropped_early_and_races_cost_little():
    target = Objective(target=0.75)
    plan = plan_for(latencies(20.0, 20.0), target)
    for row in plan.raced:
        limit = row.price.iterations_within(plan.seconds * 1.7) + row.tau1
        assert row.curve.iterations[-1] <= limit
    best = min(target.measured(row) for row in plan.raced)
    assert best <= plan.seconds <= 1.03 * best
    assert plan.choice.price.bottleneck in ("uplink", "exchange")


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
    skewed = random_softmax(
        network, 1, inside=0.1, between=0.1, lr=2.0, spread=0.5, classes=3, features=8
    )
    place = Place(Settings.of({"lr": skewed.lr}), network, load_profile("paper"), 21_840)
    choices = plain_choices(tau1=(1, 3, 20), tau2=1, alpha=1, averager="paper")

    def planned(loss):
        return recommend(place, SoftmaxLaboratory(skewed), Objective(target=loss), choices=choices)

    strict = planned(0.6772)
    assert strict.choice.tau1 == 3
    assert strict.ranking[0].tau1 == 3
    by_tau1 = sorted(strict.ranking, key=lambda row: row.tau1)
    iterations = [row.predicted.iterations_to(0.6772) for row in by_tau1]
    assert iterations == sorted(iterations)
    assert planned(0.8).choice.tau1 == 20


def test_a_budget_far_beyond_the_pilot_still_tells_schedules_apart():
    """A pilot of ten iterations ends long before any schedule's time is up."""
    times, objective = latencies(uplink=50.0), Objective(budget=3000.0)
    plan = plan_for(times, objective, effort=Effort(pilot=10, racers=2, races=1))
    scores = {objective.predicted(row) for row in plan.ranking}
    assert len(scores) == len(plan.ranking)
    assert plan.choice.tau1 == 10
    assert any("beyond the pilot" in reason for reason in plan.reasons)


def test_a_long_budget_is_raced_for_a_part_of_its_time_and_the_plan_says_so():
    times, objective = latencies(), Objective(budget=5000.0)
    effort = Effort(pilot=100, racers=3, races=2, race_iterations=600)
    plan = plan_for(times, objective, effort=effort)
    trained = sum(int(row.curve.iterations[-1]) for row in plan.raced)
    assert trained <= 600 + 10 * len(plan.raced)
    assert any("races lasted for" in reason for reason in plan.reasons)
    # What is promised for the end of the budget is below what the race has seen.
    assert plan.loss < plan.choice.curve.best


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("by", ["target", "budget"])
def test_the_predicted_curve_agrees_with_the_headline(seed, by):
    """Of the chosen row: to the bit with what was measured put in, and as claimed without.

    It was 28 % and 15 % off where the plan claimed 8 and 6.
    """
    rng = np.random.default_rng(seed)
    skews = {name: float(10 ** rng.uniform(-1, 1)) for name in ("inside", "between")}
    slow = rng.uniform(1, 3, NETWORK.clients) if seed % 2 else np.ones(NETWORK.clients)
    uplink, exchange = 10 ** rng.uniform(-1, 1.3, 2)
    times = latencies(uplink, exchange, t_cmp=slow)
    objective = Objective(target=0.8) if by == "target" else Objective(budget=150 * (1 + uplink))
    effort = Effort(pilot=300, racers=3, races=2, race_iterations=1500)
    plan = plan_for(times, objective, problem(**skews), effort)
    curve, expected = plan.predicted(), plan.expected(plan.choice)
    error = plan.predictor.numbers.error
    assert (np.diff(curve["seconds"]) > 0).all()
    assert (np.diff(curve["loss"]) < 0).all()
    if by == "target":
        seconds = np.interp(-0.8, -curve["loss"], curve["seconds"])
        assert seconds == pytest.approx(plan.seconds, rel=1e-12)
        assert abs(np.log(expected.seconds_to(0.8) / plan.seconds)) <= error
    else:
        assert curve["seconds"].iloc[-1] == objective.budget
        assert curve["loss"].iloc[-1] == plan.loss
        loss = np.interp(objective.budget, expected.seconds, expected.losses)
        assert abs(np.log(loss / plan.loss)) <= error
    headline, _, note = plan.reasons[0].partition(" simulated seconds")
    assert headline.endswith(f" {plan.seconds:.5g}")
    lasted = float(plan.choice.curve.seconds[-1])
    assert note == (
        "" if lasted >= 0.9 * plan.seconds else f" (predicted: trained for {lasted:.5g} s)"
    )


def test_of_two_about_as_good_the_simpler_is_chosen():
    """Codecs and a correction for 2.273 s in place of 2.289 s are not worth having."""
    place = timed_place(NETWORK, latencies())
    settings = {"schedule": Schedule(5, 2, 1), "averager": "all-reduce"}
    codecs = {"up": CODECS["int4"](), "between": CODECS["int8"]()}
    plain = place.candidate(**settings)
    coded = place.candidate(**settings | {"averager": "paper"}, codecs=codecs_by_way(codecs))
    corrected = place.candidate(**settings, correction=Correction())
    hasty = place.candidate(**settings, pace=Deadline(6.0))
    for row in (coded, corrected, hasty):
        assert simplest([row, plain], {row: 2.273, plain: 2.289}.get) is plain
        assert simplest([row, plain], {row: 2.273, plain: 2.35}.get) is row
        # Nor one that is as good but comes too late, or does not come.
        assert simplest([row, plain], {row: 2.273, plain: 2.289}.get, limit=2.28) is row
        assert simplest([row, plain], {row: 2.273, plain: np.inf}.get) is row


def test_a_plan_chooses_the_simplest_that_is_as_good():
    """Among all that raced; and a simpler one that by prediction is as good has raced."""
    for uplink, exchange in ((0.01, 0.01), (1.0, 1.0), (0.3, 30.0)):
        objective = Objective(target=0.75)
        plan = plan_for(latencies(uplink, exchange), objective, averager=("paper", "all-reduce"))
        measured = {row: objective.measured(row) for row in plan.raced}
        as_good = [row for row in plan.raced if measured[row] <= 1.03 * min(measured.values())]
        assert plan.choice.complexity == min(row.complexity for row in as_good)


def test_a_plan_says_what_it_is_doing_before_it_does_it():
    """At most so many iterations pass without a line."""
    made, lines = problem(), []
    place, laboratory = timed_place(NETWORK, latencies(), lr=made.lr), SoftmaxLaboratory(made)
    recommend(
        place, laboratory, Objective(target=0.75), effort=QUICK,
        choices=plain_choices(tau1=(1, 3, 10), tau2=(1, 5), alpha=1),
        tell=lambda line: lines.append((laboratory.iterations, line)),
    )  # fmt: skip
    words = " ".join(line for _, line in lines)
    for part in ("pilot: ", "probes: ", "race 1: ", "other topologies"):
        assert part in words
    passed = [at for at, _ in lines]
    assert passed[0] == 0
    assert max(np.diff([*passed, laboratory.iterations])) <= 2 * 300
