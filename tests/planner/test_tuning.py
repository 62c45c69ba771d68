"""Optimizers and rates in a plan: what momentum does, who is tried, and who diverges."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laboratories import laboratory
from sdfeel.planner.brought import brought
from sdfeel.planner.candidates import _gain, candidates
from sdfeel.planner.methods import methods_of
from sdfeel.planner.options import optimizer_named, rated
from sdfeel.planner.planner import Effort, recommend
from sdfeel.planner.training import Training
from sdfeel.planner.tuning import recommend_among

from sdfeel.algorithm.methods.optimizers import SGD, AdamW, Momentum
from sdfeel.algorithm.methods.rates import Constant, Cosine
from sdfeel.errors import DivergedError, InputError
from sdfeel.planner.pilot import NotReachableError
from sdfeel.planner.race import Objective
from sdfeel.planner.report import plan_dict

EFFORT = Effort(pilot=80, first=2, later=1, heats=1, iterations=300)
HUGE = 3e38  # models overflow at once


def grid(place, corrections=("none",)):
    return candidates(
        place.network,
        place.latencies,
        tau1=(1, 5),
        tau2=(1, 3),
        alpha=(1,),
        averagers=("all-reduce",),
        methods=methods_of({}, corrections),
        assemble=place.assembling(),
    )


@given(st.integers(1, 40), st.floats(0.0, 0.95), st.booleans())
def test_a_gain_is_how_far_a_constant_gradient_carries_an_iteration(tau1, beta, nesterov):
    """Step by step, as the rule itself goes; the pilot's iterations are the first of a period."""
    velocity = moved = first = 0.0
    for step in range(tau1):
        velocity = beta * velocity + 1
        moved += 1 + beta * velocity if nesterov else velocity
        first = moved if step == 0 else first
    assert _gain(Momentum(beta, nesterov), tau1) == pytest.approx(moved / tau1 / first)
    assert _gain(SGD(), tau1) == _gain(AdamW(), tau1) == 1
    assert _gain(Momentum(beta, memory="keep"), tau1) == 1


def test_a_plan_with_momentum_knows_that_long_periods_go_further():
    """It once took the pilot, whose momentum has no time to grow, for the fastest of all."""
    own = laboratory(optimizer={"name": "momentum"}, lr=0.01)
    plan = recommend(
        own.network, own.latencies, own, Objective(target=0.4), grid=grid(own), effort=EFFORT
    )
    pilot = plan.pilot.iterations_to(0.4)
    for one in plan.probes:
        needed = one.run.curve.iterations_to(0.4)
        predicted = float(plan.predictor.iterations([one.candidate], 0.4)[0])
        assert predicted == pytest.approx(needed, rel=0.25)
        if one.candidate.tau1 == 5:
            assert needed < pilot / 1.5


def test_rules_and_rates_are_tried_and_the_plan_says_how_each_did():
    own = laboratory()
    rates = (0.0005, 0.02, HUGE)
    options = own.options(("sgd", "momentum"), rates, grid=grid)
    assert len(options) == 6
    plan = recommend_among(
        own.network, own.latencies, options, Objective(budget=6.0), effort=EFFORT
    )
    assert (plan.option.name, plan.option.eta) == ("momentum", 0.02)
    by_name = {str(trial.option): trial for trial in plan.trials}
    assert by_name[f"sgd, rate {HUGE:g}"].losses == (math.inf,)  # a result, and no crash
    assert by_name["sgd, rate 0.02"].losses[0] > by_name["momentum, rate 0.02"].losses[0]
    assert len({trial.seconds[0] for trial in plan.trials}) == 1
    assert [trial.option for trial in plan.trials if trial.planned].count(plan.option) == 1
    without = recommend(
        own.network, own.latencies, plan.option.laboratory, Objective(budget=6.0),
        grid=plan.option.grid, effort=EFFORT,
    )  # fmt: skip
    assert plan.iterations_spent > without.iterations_spent  # the trials are counted
    gains = {gain.what: gain for gain in brought(plan)}
    assert (gains["optimizer"].value, gains["lr"].value) == ("momentum", "0.02")
    assert (
        gains["optimizer"].with_it < gains["optimizer"].without == gains["optimizer"].best_without
    )
    assert gains["lr"].with_it < gains["lr"].best_without
    assert gains["lr"].after == plan.trials[0].seconds[0]
    said = json.loads(json.dumps(plan_dict(plan), allow_nan=False))
    assert (said["optimizer"], said["lr"]) == ("momentum", 0.02)
    assert [row["losses"] for row in said["trials"] if row["lr"] == HUGE] == [[None], [None]]


def test_who_is_at_the_target_first_wins():
    """By their losses at the end of a trial the order could be another."""
    own = laboratory()
    options = own.options(None, (0.01, 0.1), grid=grid)
    plan = recommend_among(
        own.network, own.latencies, options, Objective(target=0.5), effort=EFFORT
    )
    assert plan.option.eta == 0.1
    assert plan.option.optimizer == own.simulation.settings.optimizer


def test_where_all_diverge_the_plan_says_so():
    own = laboratory(codecs={"up": "int8"})  # which cannot send what is not finite
    words = own.network, own.latencies
    options = own.options(("sgd", "momentum"), (HUGE,), grid=grid)
    with pytest.raises(NotReachableError, match="all 2 optimizers and rates diverged"):
        recommend_among(*words, options, Objective(budget=6.0), effort=EFFORT)
    (alone,) = own.options(None, (HUGE,), grid=grid)
    with pytest.raises(NotReachableError, match=r"pilot.*diverged before iteration 1: .*smaller"):
        recommend_among(*words, [alone], Objective(budget=6.0), effort=EFFORT)
    with pytest.raises(InputError, match="options"):
        recommend_among(*words, [], Objective(budget=6.0))


def test_a_racer_that_diverges_is_dropped_and_another_wins(monkeypatch):
    own = laboratory()
    found = grid(own)
    train = Training._train

    def overflow(training, stop):
        schedule = training.simulation.settings.schedule
        if (schedule.tau1, schedule.tau2) == (5, 3) and stop > 10:
            raise DivergedError("server 0 is no longer finite")
        train(training, stop)

    monkeypatch.setattr(Training, "_train", overflow)
    plan = recommend(
        own.network, own.latencies, own, Objective(budget=6.0), grid=found,
        effort=replace(EFFORT, first=4),
    )  # fmt: skip
    lost = next(one for one in plan.raced if (one.candidate.tau1, one.candidate.tau2) == (5, 3))
    assert lost.run.curve.diverged
    assert lost.dropped_at is not None
    assert np.isfinite(plan.loss)
    assert (plan.choice.tau1, plan.choice.tau2) != (5, 3)
    json.dumps(plan_dict(plan), allow_nan=False)


def test_a_rule_that_takes_no_correction_is_tried_without():
    own = laboratory()
    every = own.options(
        ("sgd", "adam"), None, grid=lambda place: grid(place, ("none", "two-level"))
    )
    corrected = {
        option.name: any(one.methods.correction for one in option.grid) for option in every
    }
    assert corrected == {"sgd": True, "adam": False}


def test_what_every_rule_has_stays_when_another_is_tried():
    own = SGD(weight_decay=0.1, prox=0.2, clip=3.0)
    assert optimizer_named("momentum", own) == Momentum(0.9, weight_decay=0.1, prox=0.2, clip=3.0)
    assert optimizer_named("momentum", Momentum(0.5)) == Momentum(0.5)
    assert optimizer_named("adamw", SGD()) == AdamW()
    assert rated(0.3, Cosine(0.1, over=50)) == Cosine(0.3, over=50)
    assert rated(0.3, Constant(0.1)) == Constant(0.3)
    with pytest.raises(InputError, match=r"^optimizer(\.name)? = 'sdg'"):
        optimizer_named("sdg", own)
