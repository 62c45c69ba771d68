"""Codecs and corrections in a plan: what they cost, who may have them, and what they bring."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laboratories import NETWORK, laboratory
from sdfeel.planner.brought import brought
from sdfeel.planner.candidates import Candidate, candidates, cost
from sdfeel.planner.methods import PLAIN, Methods, methods_of
from sdfeel.planner.owed import owed
from sdfeel.planner.planner import Effort, recommend
from sdfeel.planner.training import Training

from sdfeel.algorithm.costs import round_cost
from sdfeel.algorithm.methods.codecs import CODECS
from sdfeel.algorithm.methods.corrections import Correction
from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import load_profile
from sdfeel.errors import InputError
from sdfeel.planner.prediction import unlearned
from sdfeel.planner.race import Objective
from sdfeel.planner.report import other_topologies, plan_dict


def grid(own, methods=None, **more):
    options = {"tau1": (1, 5), "tau2": (1, 3), "alpha": (1,), "averagers": ("paper", "all-reduce")}
    return candidates(
        own.network,
        own.latencies,
        methods=own.methods() if methods is None else methods,
        assemble=own.assembling(),
        **(options | more),
    )


@pytest.mark.parametrize("profile", ["paper", "paper-downlink"])
def test_every_candidate_costs_what_a_run_s_own_clock_says(profile):
    """With codecs, and with the vector that a correction sends down where that is counted."""
    own = laboratory(profile)
    found = grid(own, prune=False)
    assert len({one.key for one in found}) == len(found)
    for one in found:
        schedule = Schedule(one.tau1, one.tau2, one.alpha)
        algorithm = own.assembling()(schedule, one.averager, one.methods)
        assert sum(one.cost.parts.values()) == pytest.approx(round_cost(algorithm).total)


def test_the_vector_of_a_correction_is_paid_for_where_there_is_a_downlink():
    def dearer(profile, tau2):
        own = laboratory(profile)
        plain, corrected = (
            next(one for one in grid(own, [own_methods], tau2=(tau2,)) if one.tau1 == 5)
            for own_methods in methods_of({}, ("none", "two-level"))
        )
        return corrected.cost.exchange - plain.cost.exchange

    vector = laboratory("paper-downlink").latencies.from_server.whole.max()
    assert dearer("paper", 3) == 0
    assert dearer("paper-downlink", 3) == pytest.approx(vector)
    assert dearer("paper-downlink", 1) == pytest.approx(0)  # all-reduce, gamma = 1


def test_what_an_algorithm_refuses_is_not_offered():
    found = grid(laboratory(), prune=False)
    assert any(one.methods.between.exact for one in found if one.averager.name == "all-reduce")
    assert all(one.methods.between.exact for one in found if one.averager.name == "all-reduce")
    assert any(not one.methods.between.exact for one in found)
    with pytest.raises(InputError, match=r"codecs\.up"):
        grid(laboratory(), methods_of({"up": ("top-k",)}, ("two-level",)))


def test_down_is_chosen_only_where_it_is_counted():
    assert {str(one.down) for one in laboratory().methods()} == {str(PLAIN.down)}
    assert len({str(one.down) for one in laboratory("paper-downlink").methods()}) == 3


def test_what_the_settings_fix_stays_and_what_is_named_is_chosen_from():
    own = laboratory(codecs={"up": "int8"}, correction="clients")
    assert {one.names["codecs.up"] for one in own.methods()} == {"int8"}
    assert {one.names["correction"] for one in own.methods()} == {"clients"}
    named = laboratory().methods({"up": ("float16",)}, ("none",))
    assert {one.names["codecs.up"] for one in named} == {"float16"}
    assert {one.correction for one in named} == {None}


def test_a_laboratory_knows_what_its_simulation_has_set():
    """`sdfeel constants` and planned curves of a reproduction train with it."""
    own = laboratory(codecs={"up": "int8"}, correction="clients").own
    assert own.names == {
        "codecs.up": "int8", "codecs.down": "float32", "codecs.between": "float32",
        "correction": "clients",
    }  # fmt: skip
    assert laboratory().own == PLAIN


def test_codecs_owe_the_less_the_more_bits_they_have():
    gradients = np.random.default_rng(0).normal(size=(NETWORK.clients, 600))
    shares = NETWORK.shares
    for way in ("up", "down", "between"):
        names = ("float32", "float16", "int8", "int4", "top-k")
        found = [owed(way, CODECS[name](), gradients, shares) for name in names]
        assert found[0] == 0
        assert found == sorted(found)
        assert found[2] < 0.05 * np.linalg.norm(gradients[0]) < found[4]


@given(st.integers(1, 5000), st.sampled_from(["two-level", "clients", "servers", "mtgc"]))
def test_a_correction_knows_more_the_longer_it_runs(horizon, name):
    averager = NETWORK.averager("metropolis")
    times = load_profile("paper").latencies(84, NETWORK.clients, NETWORK.servers)
    methods = Methods(correction=Correction(name))
    price = cost(NETWORK, times, 5, 2, averager)
    one = Candidate(5, 2, 1, averager, price, methods, gamma=0.5)
    now, later = unlearned(one, horizon), unlearned(one, 2 * horizon)
    for part in (0, 1):
        assert 0 <= later[part] <= now[part] <= 1
    assert (now[0] == 1) or methods.correction.clients
    assert (now[1] == 1) or methods.correction.servers
    exact = Candidate(
        5, 2, 1, NETWORK.averager("all-reduce"), price, Methods(correction=Correction())
    )
    assert unlearned(exact, 100) == pytest.approx((1 / 20, 1 / 10))


def test_a_plan_says_what_each_method_brought():
    """Sending is dear: a codec must be chosen, and the same schedule without it takes longer."""
    own = laboratory("paper-downlink")
    found = grid(own, averagers=("all-reduce",))
    effort = Effort(pilot=200, first=3, later=1, heats=1)
    plan = recommend(
        own.network, own.latencies, own, Objective(target=0.6), grid=found, effort=effort
    )
    assert plan.choice.methods.lossy
    gains = {gain.what: gain for gain in brought(plan)}
    assert set(gains) == {
        key for key, value in plan.choice.methods.names.items() if value not in ("none", "float32")
    }
    for what, gain in gains.items():
        if what != "correction":
            assert gain.with_it < gain.without
        assert gain.best_without <= gain.without
    said = plan_dict(plan, other_topologies(plan, own.latencies, assembling=own.assembling))
    assert said["codecs.up"] == plan.choice.methods.names["codecs.up"]
    assert [row["what"] for row in said["brought"]] == list(gains)
    json.dumps(said, allow_nan=False)
    raced = {one.candidate.methods.kind for one in plan.raced}
    assert len(raced) > 1  # no one kind of method fills a heat
    assert len({one.candidate.tau1 for one in plan.raced}) > 1  # and no one period


def test_what_was_trained_before_is_looked_at_and_not_trained_again(monkeypatch):
    """Plans of one laboratory share runs; what each sees is what it would see alone."""
    own, alone = laboratory(), laboratory()
    (one,) = grid(own, [PLAIN], tau1=(5,), tau2=(1,), averagers=("all-reduce",))
    first = own.start(one)
    for stop in (20, 35, 60):
        first.advance(stop)
    trained = []
    monkeypatch.setattr(Training, "_train", lambda _, stop: trained.append(stop))
    look = own.start(one)
    for stop in (20, 35):
        look.advance(stop)
    assert trained == []
    monkeypatch.undo()
    fresh = alone.start(one)
    for stop in (20, 35):
        fresh.advance(stop)
    assert vars(look.curve).keys() == vars(fresh.curve).keys()
    for name, values in vars(fresh.curve).items():
        np.testing.assert_array_equal(getattr(look.curve, name), values)
    assert look.measure({}) == fresh.measure({})
    look.advance(50)  # the first went by here without a stop
    fresh.advance(50)
    np.testing.assert_array_equal(look.curve.losses, fresh.curve.losses)
    assert look.measure({}) == fresh.measure({})
    assert first.curve.iterations[-1] == 60


def test_softmax_problems_have_schedules_only():
    with pytest.raises(InputError, match="methods"):
        candidates(NETWORK, laboratory().latencies, methods=methods_of({"up": ("int8",)}))
