"""Paces beside rounds: what a timeline promises, what is tried, and what was measured decides."""

import json

import numpy as np
import pytest
from laboratories import world
from sdfeel.planner.candidates import candidates
from sdfeel.planner.paces import PacePlan, beside_rounds, counted_rate, devices_differ
from sdfeel.planner.planner import Effort, recommend
from typer.testing import CliRunner

import sdfeel
from sdfeel.algorithm.costs import round_cost
from sdfeel.algorithm.paces import Deadline
from sdfeel.algorithm.paces.asynchronous import Asynchronous, times_of
from sdfeel.algorithm.schedule import Schedule
from sdfeel.cli import app
from sdfeel.clock import load_profile
from sdfeel.errors import DivergedError
from sdfeel.network import Network
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.planner.race import Objective
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation

NETWORK = Network.ring(4, 3)
OWN = {"lr": 0.02, "batch_size": 10, "engine": "vectorised", "profile": "paper-h10", "seed": 2}


@pytest.fixture(scope="module")
def laboratory():
    model, data = world(NETWORK)
    return TrainingLaboratory(Simulation.assemble(model, data, Settings.of(OWN), network=NETWORK))


def plan_for(laboratory, objective):
    grid = candidates(
        laboratory.network,
        laboratory.latencies,
        tau1=(1, 5),
        tau2=(1, 3),
        alpha=(1,),
        averagers=("all-reduce",),
    )
    effort = Effort(pilot=60, first=2, later=1, heats=1)
    return recommend(
        laboratory.network, laboratory.latencies, laboratory, objective, grid=grid, effort=effort
    )


def algorithm(profile, pace, tau1=5):
    own = {"schedule": Schedule(tau1, 1, 1), "averager": "all-reduce", "pace": pace, "seed": 3}
    return Settings.of(own).algorithm(NETWORK, load_profile(profile), 1000)


@pytest.mark.parametrize("compensation", [0.0, 0.5, 1.0])
def test_equal_devices_make_the_iterations_of_rounds(compensation):
    pace = Asynchronous(compensation=compensation)
    rounds = round_cost(algorithm("paper", "synchronous")).total
    assert counted_rate(pace, algorithm("paper", pace)) == pytest.approx(5 / rounds)


def test_compensation_counts_as_many_iterations_as_the_slowest_makes():
    full, none = (Asynchronous(compensation=a) for a in (1.0, 0.0))
    own = algorithm("paper-h10", full)
    made = np.zeros(NETWORK.servers)
    for event in own.events():
        made[[group.server for group in event.groups]] = [group.k for group in event.groups]
        if event.ends >= 200:
            break
    # Exchanges come on top of a deadline, so rates are not quite what clusters make in a second.
    slowest, mean = made.min(), NETWORK.shares.cluster @ made
    assert counted_rate(full, own) == pytest.approx(slowest / event.ends, rel=0.1)
    assert counted_rate(none, own) == pytest.approx(mean / event.ends, rel=0.1)
    assert mean > 1.2 * slowest


def test_one_of_each_kind_is_tried_and_the_quickest_to_the_target_is_chosen(laboratory):
    found = plan_for(laboratory, Objective(target=1.1))
    paces = beside_rounds(found, laboratory)
    assert paces.rounds == paces.until == found.seconds
    kinds = [one.kind for one in paces.tried]
    asynchronous = ["asynchronous, compensation 1", "asynchronous, compensation 0"]
    assert sorted(kinds) == sorted([*asynchronous, "deadline"])
    reached = [one.measured for one in paces.tried]
    assert min(reached) < paces.rounds, "devices differ ten times, and nobody gained by not waiting"
    assert paces.choice is not None
    assert paces.choice.measured == min(reached)
    # The same run by itself, from what the table says.
    told = json.loads(json.dumps(paces.table()))
    assert told["name"] in ("asynchronous", "deadline")
    one = told["choice"]
    again = sdfeel.train(
        *world(NETWORK),
        network=NETWORK,
        **(OWN | {"schedule": one["schedule"], "averager": one["averager"], "pace": one["pace"]}),
        steps=10**6,
        until=paces.until,
        evaluate_every=10,
        train_samples=None,
    ).history
    crossing = np.interp(-1.1, -again["train_loss"], again["seconds"])
    assert crossing == pytest.approx(one["measured"], rel=1e-6)
    for own in paces.tried:
        if isinstance(own.pace, Asynchronous):
            exact = algorithm("paper-h10", own.pace, own.candidate.tau1)
            assert len(own.deadlines) == len(times_of(own.pace, exact).deadline)
        else:
            assert isinstance(own.pace, Deadline)
            assert own.deadlines == (own.pace.seconds,)
            times = laboratory.latencies
            needed = own.candidate.tau1 * times.t_cmp + times.t_ct_sr
            assert own.without == (needed > own.pace.seconds * (1 + 1e-9)).sum() > 0
            lines = PacePlan(9.0, 9.0, (own,)).lines(Objective(target=1.1))
            assert f"{own.without} clients are never in time" in lines[-1]


def test_a_budget_is_compared_where_the_race_of_rounds_ended(laboratory):
    found = plan_for(laboratory, Objective(budget=0.8))
    paces = beside_rounds(found, laboratory)
    assert 0 < paces.until <= 0.8
    curve = next(one for one in found.raced if one.candidate.key == found.choice.key).run.curve
    assert paces.rounds == curve.loss_at(paces.until)
    assert all(0 < one.measured < 2 for one in paces.tried)
    assert PacePlan(0.0, 1.0, paces.tried).choice is None  # where rounds are better


def test_a_pace_that_diverges_has_lost_and_one_that_refuses_the_run_is_not_offered(
    laboratory, monkeypatch
):
    found = plan_for(laboratory, Objective(target=1.1))
    trained = Simulation.run

    def run(simulation, *given, **more):
        if isinstance(simulation.algorithm.pace, Asynchronous):
            raise DivergedError("the loss of client 0 became nan")
        return trained(simulation, *given, **more)

    monkeypatch.setattr(Simulation, "run", run)
    paces = beside_rounds(found, laboratory)
    lost = [one for one in paces.tried if isinstance(one.pace, Asynchronous)]
    assert [one.measured for one in lost] == [np.inf, np.inf]
    assert lost[0].table()["measured"] is None
    assert not any(one is paces.choice for one in lost)

    class ByRounds(sdfeel.Method):
        needs = frozenset({"rounds"})

    ruled = Settings.of(OWN | {"methods": [ByRounds()]})
    place = TrainingLaboratory(Simulation.assemble(*world(NETWORK), ruled, network=NETWORK))
    assert [one.kind for one in beside_rounds(found, place).tried] == ["deadline"]


def test_equal_devices_have_no_question_of_pace():
    for profile, differ in (("paper", False), ("paper-h10", True)):
        times = algorithm(profile, "synchronous").uplink.latencies
        assert devices_differ(times) == differ


def test_the_command_says_which_pace(tmp_path):
    options = [
        "model.name=logistic", "engine=vectorised", "clock.profile=paper-h10",
        "network.servers=3", "network.clients_per_server=2",
    ]  # fmt: skip
    words = [word for option in options for word in ("--set", option)]
    words += ["--tau1", "2,5", "--tau2", "1", "--alpha", "1", "--averagers", "all-reduce"]
    words += ["--up", "float32", "--correction", "none", "--between", "float32"]
    words += ["--pilot", "30", "--racers", "1", "--target-loss", "1.5"]
    shown = CliRunner().invoke(app, ["plan", "mnist-5k", *words])
    assert shown.exit_code == 0, shown.output
    assert "pace: " in shown.output
    assert "compensation 1" in shown.output
