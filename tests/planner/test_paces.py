"""Paces beside rounds: what a stream promises, what is tried, and what was measured decides."""

import json

import numpy as np
import pytest
from laboratories import world
from softmax_lab import plain_choices
from typer.testing import CliRunner

import sdfeel
from sdfeel.algorithm.costs import round_cost
from sdfeel.algorithm.paces import Deadline, Synchronous
from sdfeel.algorithm.paces.asynchronous import Asynchronous, times_of
from sdfeel.algorithm.schedule import Schedule
from sdfeel.cli import app
from sdfeel.clock import load_profile
from sdfeel.errors import DivergedError, InputError
from sdfeel.network import Network
from sdfeel.planner.candidate import Place
from sdfeel.planner.grid import paces_beside
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.planner.pilot import NotReachableError
from sdfeel.planner.race import Effort, Objective
from sdfeel.planner.search import recommend
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation

NETWORK = Network.ring(4, 3)
SETTINGS = {"lr": 0.02, "batch_size": 10, "engine": "vectorised", "profile": "paper-h10", "seed": 2}
CHOICES = plain_choices(tau1=(1, 5), tau2=(1, 3), alpha=1, averager="all-reduce")


def laboratory_of(**settings):
    model, data = world(NETWORK)
    given = Settings.of({**SETTINGS, **settings})
    return TrainingLaboratory(Simulation.assemble(model, data, given, network=NETWORK))


@pytest.fixture(scope="module")
def laboratory():
    return laboratory_of()


def plan_for(laboratory, objective, **choose):
    return recommend(
        laboratory.place,
        laboratory,
        objective,
        choices={**CHOICES, **choose},
        effort=Effort(pilot=60, racers=2, races=1),
    )


@pytest.fixture(scope="module")
def timed(laboratory):
    return plan_for(laboratory, Objective(target=1.1))


def priced(profile, pace, tau1=5):
    settings = {"schedule": Schedule(tau1, 1, 1), "averager": "all-reduce", "pace": pace, "seed": 3}
    place = Place(Settings.of(settings), NETWORK, load_profile(profile), 1000)
    return place.candidate(), place.algorithm()


def counted_rate(row):
    """Iterations a second that count."""
    return row.price.gain / row.price.per_iteration


@pytest.mark.parametrize("compensation", [0.0, 0.5, 1.0])
def test_equal_devices_make_the_iterations_of_rounds(compensation):
    _, in_rounds = priced("paper", Synchronous())
    row, _ = priced("paper", Asynchronous(compensation=compensation))
    assert counted_rate(row) == pytest.approx(5 / round_cost(in_rounds).total)


def test_compensation_counts_as_many_iterations_as_the_slowest_makes():
    full, algorithm = priced("paper-h10", Asynchronous(compensation=1.0))
    none, _ = priced("paper-h10", Asynchronous(compensation=0.0))
    made = np.zeros(NETWORK.servers)
    for event in algorithm.events():
        made[[group.server for group in event.groups]] = [group.k for group in event.groups]
        if event.ends >= 200:
            break
    # Exchanges come on top of a deadline, so rates are not quite what clusters make in a second.
    slowest, mean = made.min(), NETWORK.shares.cluster @ made
    assert counted_rate(full) == pytest.approx(slowest / event.ends, rel=0.1)
    assert counted_rate(none) == pytest.approx(mean / event.ends, rel=0.1)
    assert mean > 1.2 * slowest


def test_one_of_each_kind_is_tried_and_the_quickest_to_the_target_is_chosen(timed, laboratory):
    report = json.loads(json.dumps(timed.to_dict(), allow_nan=False))
    pace = report["pace"]
    in_rounds = Objective(target=1.1).measured(timed.best)
    assert pace["rounds"] == pace["until"] == in_rounds
    tried = [row for row in timed.raced if row.pace != Synchronous()]
    kinds = [row.pace.kind for row in tried]
    asynchronous = ["asynchronous, compensation 1", "asynchronous, compensation 0"]
    assert sorted(kinds) == sorted([*asynchronous, "deadline"])
    reached = [row.curve.seconds_to(1.1) for row in tried]
    assert min(reached) < in_rounds, "devices differ ten times, and nobody gained by not waiting"
    assert timed.choice in tried
    assert timed.choice.pace == timed.settings["pace"]
    assert min(reached) <= timed.seconds <= 1.03 * min(reached)  # or a simpler one as good
    for row in tried:  # as long as the choice at least, if it was not at the target
        assert np.isfinite(row.curve.seconds_to(1.1)) or row.curve.seconds[-1] > timed.seconds
        assert row.dropped_at is None
    # The same run by itself, from what the table says.
    assert pace["name"] in ("asynchronous", "deadline")
    choice = pace["choice"]
    assert choice["measured"] == timed.seconds
    history = sdfeel.train(
        *world(NETWORK),
        network=NETWORK,
        **SETTINGS,
        **{name: choice[name] for name in ("schedule", "averager", "pace")},
        steps=10**6,
        until=pace["until"],
        evaluate_every=1,
        train_samples=None,
    ).history.set_index("iteration")
    curve = timed.choice.curve
    assert len(curve.iterations) > 2
    assert history["seconds"][curve.iterations].to_numpy() == pytest.approx(curve.seconds)
    assert history["train_loss"][curve.iterations].to_numpy() == pytest.approx(curve.losses)
    tables = {table["label"]: table for table in pace["tried"]}
    for row in tried:
        table = tables[str(row)]
        if isinstance(row.pace, Asynchronous):
            _, algorithm = priced("paper-h10", row.pace, row.tau1)
            assert len(table["deadlines"]) == len(times_of(row.pace, algorithm).deadline)
        else:
            assert isinstance(row.pace, Deadline)
            assert table["deadlines"] == [row.pace.seconds]
            times = laboratory.place.algorithm().uplink.latencies
            needed = row.tau1 * times.t_cmp + times.t_ct_sr
            late = int((needed > row.pace.seconds * (1 + 1e-9)).sum())
            assert table["clients_left_out"] == late > 0


def test_a_plan_doubts_a_pace_that_leaves_clients_out(laboratory):
    plan = plan_for(laboratory, Objective(target=1.1), pace=("deadline",))
    assert isinstance(plan.choice.pace, Deadline)
    late = plan.report["pace"]["choice"]["clients_left_out"]
    assert f"{late} clients are never in time" in plan.reasons[-1]


def test_a_budget_is_compared_where_the_race_of_rounds_ended(laboratory):
    plan = plan_for(laboratory, Objective(budget=0.8))
    pace = plan.report["pace"]
    assert 0 < pace["until"] <= 0.8
    assert pace["rounds"] == plan.best.curve.loss_at(pace["until"])
    assert all(0 < row["measured"] < 2 for row in pace["tried"])


def test_a_pace_that_diverges_has_lost(monkeypatch):
    trained = Simulation.run

    def run(simulation, *arguments, **settings):
        if isinstance(simulation.algorithm.pace, Asynchronous):
            raise DivergedError("the loss of client 0 became nan")
        return trained(simulation, *arguments, **settings)

    monkeypatch.setattr(Simulation, "run", run)
    plan = plan_for(laboratory_of(), Objective(target=1.1))
    lost = [row for row in plan.report["pace"]["tried"] if row["pace"]["name"] == "asynchronous"]
    assert [row["measured"] for row in lost] == [None, None]
    assert not isinstance(plan.choice.pace, Asynchronous)
    plan = plan_for(laboratory_of(), Objective(target=1.1), pace=("synchronous", "asynchronous"))
    assert plan.choice is plan.best
    assert plan.report["pace"]["choice"] is None
    assert plan.report["pace"]["name"] == "synchronous"


def test_a_pace_that_refuses_the_run_is_not_offered(timed):
    class ByRounds(sdfeel.Method):
        needs = frozenset({"rounds"})

    place = laboratory_of(methods=[ByRounds()]).place
    rows = paces_beside(place, CHOICES, timed.best)
    assert {row.pace.kind for row in rows} == {"deadline"}


def test_equal_devices_have_no_question_of_pace():
    for profile, differ in (("paper", False), ("paper-h10", True)):
        row, _ = priced(profile, Synchronous())
        place = Place(Settings.of({}), NETWORK, load_profile(profile), 1000)
        assert bool(paces_beside(place, CHOICES, row)) == differ


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


def test_a_pace_that_is_fixed_must_get_there_itself(laboratory, monkeypatch):
    with pytest.raises(InputError, match=r"pace = .*no client is later than others"):
        plan_for(laboratory_of(profile="paper"), Objective(target=1.1), pace=("deadline",))

    def run(simulation, *arguments, **settings):
        if isinstance(simulation.algorithm.pace, Asynchronous):
            raise DivergedError("the loss of client 0 became nan")
        return trained(simulation, *arguments, **settings)

    trained = Simulation.run
    monkeypatch.setattr(Simulation, "run", run)
    with pytest.raises(NotReachableError, match=r"loss 1\.1 is not reachable within the races"):
        plan_for(laboratory_of(), Objective(target=1.1), pace=("asynchronous",))
