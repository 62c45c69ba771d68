"""Codecs and corrections in a plan: what they cost, who may have them, and what they bring."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laboratories import NETWORK, laboratory
from softmax_lab import SoftmaxLaboratory
from softmax_problem import random_softmax

from sdfeel.algorithm.costs import round_cost
from sdfeel.algorithm.methods.codecs import CODECS, WAYS
from sdfeel.algorithm.methods.corrections import Correction
from sdfeel.algorithm.schedule import Schedule
from sdfeel.errors import InputError
from sdfeel.planner.grid import candidates, choices_of
from sdfeel.planner.laboratory import Training, owed
from sdfeel.planner.prediction import unlearned
from sdfeel.planner.race import Effort, Objective
from sdfeel.planner.search import recommend

SCHEDULES = {"tau1": (1, 5), "tau2": (1, 3), "alpha": 1, "averager": ("paper", "all-reduce")}
PLAIN = {**{f"codecs.{way}": "float32" for way in WAYS}, "correction": "none"}


def grid(place, *, prune=True, **choose):
    return candidates(place.place, choices_of({**SCHEDULES, **choose}), prune=prune)


@pytest.mark.parametrize("profile", ["paper", "paper-downlink"])
def test_every_candidate_costs_what_a_run_s_own_clock_says(profile):
    """With codecs, and with the vector that a correction sends down where that is counted."""
    place = laboratory(profile).place
    rows = candidates(place, choices_of(SCHEDULES), prune=False)
    assert len({row.key for row in rows}) == len(rows)
    for row in rows:
        algorithm = place.algorithm(**row.settings)
        assert sum(row.price.parts.values()) == pytest.approx(round_cost(algorithm).total)


def test_the_vector_of_a_correction_is_paid_for_where_there_is_a_downlink():
    def dearer(profile, tau2):
        place = laboratory(profile).place
        settings = {"schedule": Schedule(5, tau2, 1), "averager": "all-reduce"}
        plain = place.candidate(**settings, correction=None)
        corrected = place.candidate(**settings, correction=Correction())
        return sum(corrected.price.parts.values()) - sum(plain.price.parts.values())

    latencies = laboratory("paper-downlink").place.algorithm().uplink.latencies
    vector = latencies.from_server.whole.max()
    assert dearer("paper", 3) == 0
    assert dearer("paper-downlink", 3) == pytest.approx(vector)
    assert dearer("paper-downlink", 1) == pytest.approx(0)  # all-reduce, gamma = 1


def test_what_an_algorithm_refuses_is_not_offered():
    rows = grid(laboratory(), prune=False)
    reduced = [row.codecs["between"].exact for row in rows if row.averager.name == "all-reduce"]
    assert reduced
    assert all(reduced)
    assert any(not row.codecs["between"].exact for row in rows)
    with pytest.raises(InputError, match=r"codecs\.up"):
        grid(laboratory(), **{"codecs.up": "top-k", "correction": "two-level"})


def names_of(rows, key):
    return {row.names[key] for row in rows}


def test_down_is_chosen_only_where_it_is_counted():
    assert names_of(grid(laboratory()), "codecs.down") == {"float32"}
    down = names_of(grid(laboratory("paper-downlink")), "codecs.down")
    assert down == {"float32", "int8", "int4"}


def test_what_the_settings_fix_stays_and_what_is_named_is_chosen_from():
    rows = grid(laboratory(codecs={"up": "int8"}, correction="clients"))
    assert names_of(rows, "codecs.up") == {"int8"}
    assert names_of(rows, "correction") == {"clients"}
    rows = grid(laboratory(), **{"codecs.up": "float16", "correction": "none"})
    assert names_of(rows, "codecs.up") == {"float16"}
    assert {row.correction for row in rows} == {None}


def test_a_place_knows_what_its_simulation_has_set():
    """`sdfeel constants` and planned curves of a reproduction train with it."""
    row = laboratory(codecs={"up": "int8"}, correction="clients").place.candidate()
    methods = {
        "codecs.up": "int8", "codecs.down": "float32", "codecs.between": "float32",
        "correction": "clients",
    }  # fmt: skip
    assert row.names.items() >= methods.items()
    assert not row.is_plain
    plain = laboratory().place.candidate()
    assert plain.names.items() >= PLAIN.items()
    assert plain.is_plain


def test_codecs_owe_the_less_the_more_bits_they_have():
    gradients = np.random.default_rng(0).normal(size=(NETWORK.clients, 600))
    shares = NETWORK.shares
    for way in WAYS:
        names = ("float32", "float16", "int8", "int4", "top-k")
        norms = [owed(way, CODECS[name](), gradients, shares) for name in names]
        assert norms[0] == 0
        assert norms == sorted(norms)
        assert norms[2] < 0.05 * np.linalg.norm(gradients[0]) < norms[4]


@given(st.integers(1, 5000), st.sampled_from(["two-level", "clients", "servers", "mtgc"]))
def test_a_correction_knows_more_the_longer_it_runs(horizon, name):
    place = laboratory().place
    settings = {"schedule": Schedule(5, 2, 1), "correction": Correction(name)}
    row = replace(place.candidate(**settings, averager="metropolis"), gamma=0.5)
    now, later = unlearned(row, horizon), unlearned(row, 2 * horizon)
    for part in (0, 1):
        assert 0 <= later[part] <= now[part] <= 1
    assert (now[0] == 1) or row.correction.clients
    assert (now[1] == 1) or row.correction.servers
    settings["correction"] = Correction()
    exact = place.candidate(**settings, averager="all-reduce")
    assert unlearned(exact, 100) == pytest.approx((1 / 20, 1 / 10))


def test_a_plan_says_what_each_method_brought():
    """Sending is dear: a codec must be chosen, and the same schedule without it takes longer."""
    place = laboratory("paper-downlink")
    plan = recommend(
        place.place,
        place,
        Objective(target=0.6),
        choices=choices_of({**SCHEDULES, "averager": "all-reduce"}),
        effort=Effort(pilot=200, racers=3, races=1),
    )
    assert plan.choice.sent
    report = plan.to_dict()
    gains = {gain["what"]: gain for gain in report["brought"]}
    assert set(gains) == {
        key for key, value in plan.choice.names.items() if key in PLAIN and value != PLAIN[key]
    }
    for what, gain in gains.items():
        assert gain["value"] == plan.choice.names[what]
        if what != "correction":
            assert gain["with_it"] < gain["without"]
        assert gain["best_without"] <= gain["without"]
    assert report["codecs.up"] == plan.choice.names["codecs.up"]
    json.dumps(report, allow_nan=False)
    for what in gains:
        assert any(line.startswith(f"{what} = ") for line in plan.reasons)
    kinds = {(*(row.names[f"codecs.{way}"] for way in WAYS), row.correction) for row in plan.raced}
    assert len(kinds) > 1  # methods of one kind do not fill a race
    assert len({row.tau1 for row in plan.raced}) > 1  # and no one period


def test_what_was_trained_before_is_looked_at_and_not_trained_again(monkeypatch):
    """Plans of one laboratory share runs; what each sees is what it would see alone."""
    shared, alone = laboratory(), laboratory()
    choose = {**PLAIN, "tau1": 5, "tau2": 1, "averager": "all-reduce"}
    (first,), (look,), (fresh,) = (grid(place, **choose) for place in (shared, shared, alone))
    for stop in (20, 35, 60):
        shared.advance(first, stop)
    trained = []
    monkeypatch.setattr(Training, "_train", lambda _, stop: trained.append(stop))
    for stop in (20, 35):
        shared.advance(look, stop)
    assert trained == []
    monkeypatch.undo()
    for stop in (20, 35):
        alone.advance(fresh, stop)
    for name, values in vars(fresh.curve).items():
        np.testing.assert_array_equal(getattr(look.curve, name), values)
    assert shared.measure(look, {}) == alone.measure(fresh, {})
    shared.advance(look, 50)  # the first went by here without a stop
    alone.advance(fresh, 50)
    np.testing.assert_array_equal(look.curve.losses, fresh.curve.losses)
    assert shared.measure(look, {}) == alone.measure(fresh, {})
    assert first.curve.iterations[-1] == 60


def test_softmax_problems_have_schedules_only():
    problem = random_softmax(NETWORK, 1, inside=1.0, between=1.0)
    row = laboratory(codecs={"up": "int8"}).place.candidate()
    with pytest.raises(InputError, match="methods"):
        SoftmaxLaboratory(problem).advance(row, 1)
