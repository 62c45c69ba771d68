"""What if with a plan in the folder: its curves and prices are the planner's own, to the bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from laboratories import NETWORK, world

import sdfeel
from sdfeel import InputError, Schedule
from sdfeel.clock import load_profile
from sdfeel.page.planned import what_if_planned
from sdfeel.page.runs import Runs
from sdfeel.page.views import Views
from sdfeel.planner.plan import Plan
from sdfeel.planner.saved import candidate_of, predicted, read_plan

PLAIN = {
    "codecs.up": "float32", "codecs.down": "float32", "codecs.between": "float32",
    "correction": "none",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A plan for eight clients with two classes each, as `sdfeel plan --out` leaves it."""
    model, data = world()
    root = tmp_path_factory.mktemp("plans")
    sdfeel.plan(
        model, data, network=NETWORK, target_loss=0.9, pilot=60, racers=2, lr=0.05,
        choose={**PLAIN, "tau1": (1, 5), "tau2": 1, "alpha": (1, 2), "averager": "paper"},
        engine="vectorised", seed=2, tell=lambda line: None,
    ).save(root / "mine")  # fmt: skip
    return root


@pytest.fixture(scope="module")
def plan(folder: Path) -> Plan:
    return read_plan(folder / "mine")


def test_as_planned_is_the_plan(plan: Plan) -> None:
    answer = what_if_planned({}, plan)
    settings = answer["settings"]
    schedule = Schedule(settings["tau1"], settings["tau2"], settings["alpha"])
    assert schedule == plan.settings["schedule"]
    assert (settings["averager"], settings["graph"], settings["profile"]) == (
        plan.settings["averager"], "as planned", "as planned",
    )  # fmt: skip
    assert (settings["servers"], settings["clients"], settings["parameters"]) == (4, 2, 84)
    assert settings["scheme"] == "sd-feel"
    assert json.loads(json.dumps(answer)) == answer, "a page can be told"
    curves = answer["plan"]["curves"]
    assert curves["this schedule"] == curves["as planned"]
    pilot = plan.predictor.path.curve
    assert curves["the pilot, measured"]["y"] == pilot.losses[pilot.seconds <= far(curves)].tolist()
    assert answer["plan"]["reached"] == pytest.approx(plan.seconds)


def far(curves: dict) -> float:
    return max(curve["x"][-1] for curve in curves.values())


@pytest.mark.parametrize(
    ("query", "graph", "profile"),
    [
        ({"tau1": "3", "tau2": "2", "alpha": "4", "averager": "metropolis"}, None, None),
        ({"up": "int8", "between": "int8"}, None, None),
        ({"graph": "full", "averager": "paper"}, "full", None),
        ({"profile": "paper-downlink"}, None, "paper-downlink"),
    ],
)
def test_curves_and_prices_are_the_planners(plan: Plan, query, graph, profile) -> None:
    answer = what_if_planned(query, plan)
    settings = answer["settings"]
    schedule = Schedule(settings["tau1"], settings["tau2"], settings["alpha"])
    codecs = {way: settings[way] for way in ("up", "down", "between")}
    names = {f"codecs.{way}": name for way, name in codecs.items()}
    correction = names["correction"] = plan.choice.names["correction"]
    clock = None
    if profile is not None:
        flops = plan.place.profile.flops_per_step
        clock = replace(load_profile(profile), flops_per_step=flops)
    averager = settings["averager"]
    seconds, losses = predicted(plan, schedule, averager, names, graph=graph, profile=clock)
    wanted = dict(zip(seconds.tolist(), losses.tolist(), strict=True))
    curve = answer["plan"]["curves"]["this schedule"]
    assert len(curve["x"]) > 2
    assert all(wanted[x] == y for x, y in zip(curve["x"], curve["y"], strict=True))
    changes = {
        "schedule": schedule, "averager": averager, "codecs": codecs, "correction": correction,
    }  # fmt: skip
    row = candidate_of(plan, changes, graph=graph, profile=clock)
    assert answer["seconds_per_iteration"] == pytest.approx(row.price.per_iteration, rel=1e-12)


def test_rates_and_devices_count(plan: Plan) -> None:
    plain = what_if_planned({}, plan)
    for query in ({"client_server": "1000"}, {"spread": "8"}):
        slower = what_if_planned(query, plan)
        assert slower["seconds_per_round"] > plain["seconds_per_round"]
        assert slower["plan"]["reached"] > plain["plan"]["reached"]


def test_mistakes_are_named(folder: Path, plan: Plan, tmp_path: Path) -> None:
    for query in ({"averager": "papers"}, {"graph": "x"}, {"profile": "x"}, {"tau1": "0"}):
        with pytest.raises(InputError, match=next(iter(query))):
            what_if_planned(query, plan)
    views = Views(Runs([folder, tmp_path]))
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "plan.json").write_text("{")
    (tmp_path / "link").symlink_to(folder / "mine")
    assert views.table["runs"]({})["plans"] == ["mine", "torn"], "links are not followed"
    with pytest.raises(InputError, match="is damaged"):
        views.table["what-if"]({"plan": "torn"})
    with pytest.raises(InputError, match="is no plan of the folders"):
        views.table["what-if"]({"plan": "../mine"})


def test_a_plan_is_counted_before_its_candidates_are_priced(
    folder: Path, tmp_path: Path, monkeypatch
) -> None:
    content = json.loads((folder / "mine" / "plan.json").read_text())
    content["raced"][0]["settings"]["schedule"]["tau2"] = 10**6
    (tmp_path / "plan.json").write_text(json.dumps(content))
    monkeypatch.setattr("sdfeel.planner.saved.Place", lambda *_: pytest.fail("priced"))
    views = Views(Runs([tmp_path]))
    views.table["runs"]({})
    with pytest.raises(InputError, match="more than a page works out"):
        views.table["what-if"]({"plan": tmp_path.name})


def test_a_query_about_a_plan_is_counted(plan: Plan, monkeypatch) -> None:
    monkeypatch.setattr("sdfeel.page.work.MOST_WORK", 10)
    monkeypatch.setattr("sdfeel.page.planned.candidate_of", lambda *_, **__: pytest.fail("priced"))
    with pytest.raises(InputError, match="more than a page works out"):
        what_if_planned({"tau1": "2"}, plan)


def test_the_page_shows_the_curve(serve, visit, folder: Path, plan: Plan) -> None:
    page = visit(serve(folder))
    seconds = "[data-testid=what-if-seconds][data-value='{}']"
    page.wait_for_selector(seconds.format(repr(what_if_planned({}, plan)["seconds_per_round"])))
    curves = page.get_by_test_id("chart-plan").locator("path[data-run]")
    assert curves.count() == 3
    assert page.get_by_test_id("set-tau1").input_value() == str(plan.choice.tau1)
    assert page.get_by_test_id("set-servers").is_disabled()
    page.get_by_test_id("set-tau1").fill("4")
    wanted = what_if_planned({"tau1": "4"}, plan)
    page.wait_for_selector(seconds.format(repr(wanted["seconds_per_round"])))
    points = str(len(wanted["plan"]["curves"]["this schedule"]["x"]))
    assert curves.first.get_attribute("data-rows") == points
    page.get_by_test_id("what-if-plan").select_option("")
    page.get_by_test_id("what-if-curves").wait_for(state="hidden")
    assert page.get_by_test_id("set-servers").is_enabled()
    page.wait_for_selector("[data-testid=set-graph]")
    assert page.get_by_test_id("set-graph").input_value() == "ring"
