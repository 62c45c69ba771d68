"""Optimizers and rates in a plan: what momentum does, which are tried, and which diverge."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laboratories import NETWORK, laboratory, world
from softmax_lab import plain_choices

import sdfeel
from sdfeel.algorithm.methods.optimizers import SGD, AdamW, Momentum
from sdfeel.algorithm.methods.rates import Constant, Cosine
from sdfeel.errors import DivergedError, InputError
from sdfeel.planner.candidate import gain_of
from sdfeel.planner.grid import candidates, choices_of, steppings
from sdfeel.planner.laboratory import Training
from sdfeel.planner.pilot import NotReachableError
from sdfeel.planner.race import Effort, Objective
from sdfeel.planner.search import recommend

EFFORT = Effort(pilot=80, racers=2, races=1, race_iterations=300)
SCHEDULES = {"tau1": (1, 5), "tau2": (1, 3), "alpha": 1, "averager": "all-reduce"}
HUGE = 3e38  # models overflow at once


def plan_for(place, objective, effort=EFFORT, **choose):
    choices = plain_choices(**{**SCHEDULES, **choose})
    return recommend(place.place, place, objective, choices=choices, effort=effort)


@given(st.integers(1, 40), st.floats(0.0, 0.95), st.booleans())
def test_a_gain_is_how_far_a_constant_gradient_carries_an_iteration(tau1, beta, nesterov):
    """Step by step, as the rule itself goes; the pilot's iterations are the first of a period."""
    velocity = moved = first = 0.0
    for step in range(tau1):
        velocity = beta * velocity + 1
        moved += 1 + beta * velocity if nesterov else velocity
        first = moved if step == 0 else first
    assert gain_of(Momentum(beta, nesterov), tau1) == pytest.approx(moved / tau1 / first)
    assert gain_of(SGD(), tau1) == gain_of(AdamW(), tau1) == 1
    assert gain_of(Momentum(beta, memory="keep"), tau1) == 1


def test_a_plan_with_momentum_knows_that_long_periods_go_further():
    """It once took the pilot, whose momentum has no time to grow, for the fastest of all."""
    place = laboratory(optimizer={"name": "momentum"}, lr=0.01)
    plan = plan_for(place, Objective(target=0.4))
    pilot = plan.predictor.path.curve.iterations_to(0.4)
    curves = plan.predictor.curves(plan.probes)
    for row, curve in zip(plan.probes, curves, strict=True):
        needed = row.curve.iterations_to(0.4)
        assert curve.iterations_to(0.4) == pytest.approx(needed, rel=0.25)
        if row.tau1 == 5:
            assert needed < pilot / 1.5


def test_optimizers_and_rates_are_tried_and_the_plan_says_how_each_did():
    place = laboratory()
    choose = {"optimizer": ("sgd", "momentum"), "lr": (0.0005, 0.02, HUGE)}
    plan = plan_for(place, Objective(budget=6.0), **choose)
    assert (plan.choice.optimizer, plan.choice.eta) == (Momentum(), 0.02)
    report = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert (report["optimizer"], report["lr"]) == ("momentum", 0.02)
    trials = {(row["optimizer"], row["lr"]): row for row in report["trials"]}
    assert len(trials) == len(report["trials"]) == 6
    assert trials["sgd", HUGE]["losses"] == [None]  # a result, and no crash
    assert trials["momentum", HUGE]["losses"] == [None]
    assert trials["sgd", 0.02]["losses"][0] > trials["momentum", 0.02]["losses"][0]
    assert len({row["seconds"][0] for row in report["trials"]}) == 1
    assert trials["momentum", 0.02]["planned"]
    without = plan_for(
        laboratory(optimizer={"name": "momentum"}, lr=0.02), Objective(budget=6.0)
    ).report["evidence"]
    assert report["evidence"]["iterations_spent"] > without["iterations_spent"]  # of trials too
    gains = {gain["what"]: gain for gain in report["brought"]}
    optimizer, rate = gains["optimizer"], gains["lr"]
    assert (optimizer["value"], rate["value"]) == ("momentum", "0.02")
    assert optimizer["with_it"] < optimizer["without"] == optimizer["best_without"]
    assert rate["with_it"] < rate["best_without"]
    assert rate["after"] == report["trials"][0]["seconds"][0]


def test_the_first_at_the_target_wins():
    """By their losses at the end of a trial the order could be another."""
    place = laboratory()
    plan = plan_for(place, Objective(target=0.5), lr=(0.01, 0.1))
    assert plan.choice.eta == 0.1
    assert plan.choice.optimizer == place.simulation.settings.optimizer


def test_where_all_diverge_the_plan_says_so():
    place = laboratory(codecs={"up": "int8"})  # which cannot send what is not finite
    choose = {**SCHEDULES, "correction": "none", "lr": HUGE}
    with pytest.raises(NotReachableError, match="all 2 optimizers and rates diverged"):
        recommend(
            place.place, place, Objective(budget=6.0), effort=EFFORT,
            choices=choices_of({**choose, "optimizer": ("sgd", "momentum")}),
        )  # fmt: skip
    with pytest.raises(NotReachableError, match=r"pilot.*diverged before iteration 1: .*smaller"):
        recommend(
            place.place, place, Objective(budget=6.0), choices=choices_of(choose), effort=EFFORT
        )
    with pytest.raises(InputError, match="at least one to choose from"):
        choices_of({"optimizer": ()})


def test_a_racer_that_diverges_is_dropped_and_another_wins(monkeypatch):
    train = Training._train

    def overflow(training, stop):
        if training.simulation.settings.schedule.at(0)[:2] == (5, 3) and stop > 10:
            raise DivergedError("server 0 is no longer finite")
        train(training, stop)

    monkeypatch.setattr(Training, "_train", overflow)
    plan = plan_for(laboratory(), Objective(budget=6.0), replace(EFFORT, racers=4))
    lost = next(row for row in plan.raced if (row.tau1, row.tau2) == (5, 3))
    assert lost.curve.diverged
    assert lost.dropped_at is not None
    assert np.isfinite(plan.loss)
    assert (plan.choice.tau1, plan.choice.tau2) != (5, 3)
    json.dumps(plan.to_dict(), allow_nan=False)


def test_an_optimizer_that_takes_no_correction_is_tried_without():
    choices = choices_of({**SCHEDULES, "optimizer": ("sgd", "adam")})
    corrected = {
        type(place.settings.optimizer).__name__: any(
            row.correction is not None for row in candidates(place, choices)
        )
        for place in steppings(laboratory().place, choices)
    }
    assert corrected == {"SGD": True, "Adam": False}


def test_what_every_optimizer_has_stays_when_another_is_tried():
    def stepping(optimizer, rate, /, **choose):
        place = laboratory().place.with_settings(optimizer=optimizer, lr=rate)
        (other,) = steppings(place, choices_of(choose))
        return other.settings.optimizer, other.settings.lr

    plain = SGD(weight_decay=0.1, prox=0.2, clip=3.0)
    rate = Constant(0.1)
    momentum, same = stepping(plain, rate, optimizer="momentum")
    assert momentum == Momentum(0.9, weight_decay=0.1, prox=0.2, clip=3.0)
    assert same == rate
    assert stepping(Momentum(0.5), rate, optimizer="momentum")[0] == Momentum(0.5)
    assert stepping(SGD(), rate, optimizer="adamw")[0] == AdamW()
    assert stepping(plain, Cosine(0.1, over=50), lr=0.3) == (plain, Cosine(0.3, over=50))
    assert stepping(plain, rate, lr=0.3) == (plain, Constant(0.3))
    with pytest.raises(InputError, match=r"^optimizer(\.name)? = 'sdg'"):
        stepping(plain, rate, optimizer="sdg")


def test_an_optimizer_and_a_rate_that_are_fixed_are_among_the_settings():
    """There was nothing to try, and `train` is to be told all the same."""
    plan = plan_for(laboratory(), Objective(target=0.5), optimizer="momentum", lr=0.02)
    assert plan.settings["optimizer"] == Momentum()
    assert float(plan.settings["lr"](1)) == 0.02
    assert str(plan).startswith("momentum, rate 0.02: tau1")
    (trial,) = plan.report["trials"]
    assert (trial["seconds"], trial["planned"]) == ([], True)
    usual = plan_for(laboratory(), Objective(target=0.5))
    assert not {"optimizer", "lr", "pace"} & set(usual.settings)
    assert usual.report["trials"] == []


def test_what_may_surprise_is_not_said_of_every_candidate(recwarn):
    """Of int4 with absent clients `train` warns; and numbers of numpy are numbers."""
    model, data = world()
    plan = sdfeel.plan(
        model, data, network=NETWORK, target_loss=0.7, pilot=100, racers=2, lr=0.05, seed=1,
        choose={"tau1": np.array([1, 5]), "tau2": np.int64(1), "codecs.up": "int4"},
        participation=0.5, engine="vectorised", tell=lambda line: None,
    )  # fmt: skip
    assert plan.choice.names["codecs.up"] == "int4"
    assert not recwarn.list
