"""A plan on disk predicts what the planner predicted, and a damaged one is named."""

import contextlib
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laboratories import NETWORK, world

import sdfeel
from sdfeel import InputError, Schedule
from sdfeel.clock import load_profile, profile_names, profile_of, profile_table
from sdfeel.planner.saved import candidate_of, predicted, read_plan

CHOOSE = {
    "tau1": (1, 5), "tau2": (1, 3), "alpha": (1, 2), "averager": ("paper", "metropolis"),
    "codecs.up": ("float32", "int8"), "codecs.between": "float32",
    "correction": ("none", "two-level"),
}  # fmt: skip


@pytest.fixture(scope="module")
def plan():
    model, data = world()
    return sdfeel.plan(
        model, data, network=NETWORK, target_loss=0.7, choose=CHOOSE, pilot=200, racers=3,
        lr=0.05, engine="vectorised", seed=2, tell=lambda line: None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def saved(plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    assert plan.save(folder) == folder / "plan.json"
    return read_plan(folder)


@pytest.fixture(scope="module")
def text(plan, tmp_path_factory):
    return plan.save(tmp_path_factory.mktemp("text")).read_text()


def test_its_settings_are_arguments_of_train(plan):
    """The run they make takes the seconds that the plan says, give or take an evaluation."""
    model, data = world()
    result = sdfeel.train(
        model, data, network=NETWORK, steps=400, lr=0.05, engine="vectorised", seed=2,
        train_samples=None, evaluate_every=plan.choice.tau1, **plan.settings,
    )  # fmt: skip
    losses, seconds = result.history["train_loss"], result.history["seconds"]
    crossing = np.flatnonzero(losses <= 0.7)[0]
    assert seconds[crossing - 1] < plan.seconds < 1.1 * seconds[crossing]
    assert np.interp(-0.7, -losses, seconds) == pytest.approx(plan.seconds, rel=0.1)


def test_a_chosen_optimizer_and_rate_are_among_its_settings(tmp_path):
    """And in the plan that is saved, whose prediction is that of the plan."""
    model, data = world()
    plan = sdfeel.plan(
        model, data, network=NETWORK, target_loss=0.7, pilot=200, racers=2, engine="vectorised",
        choose={**CHOOSE, "optimizer": ("sgd", "momentum"), "lr": (0.001, 0.05)}, seed=2,
        tell=lambda line: None,
    )  # fmt: skip
    assert float(plan.settings["lr"](1)) == 0.05
    assert str(plan).startswith(f"{plan.choice.stepping}: tau1")
    plan.save(tmp_path)
    again = read_plan(tmp_path)
    assert again.settings["optimizer"] == again.choice.optimizer == plan.settings["optimizer"]
    assert again.settings["lr"] == plan.settings["lr"]
    assert again.settings["schedule"] == plan.settings["schedule"]
    curve = plan.predicted()
    seconds, losses = predicted(again)
    np.testing.assert_allclose(seconds, curve["seconds"], rtol=1e-12)
    np.testing.assert_allclose(losses, curve["loss"], rtol=1e-12)


def test_it_says_why(plan):
    assert "loss 0.7 after" in str(plan)
    assert "evidence: a pilot of" in plan.reasons[-1] or "thin evidence" in plan.reasons[-1]
    assert {"tau1", "averager", "predicted_seconds"} <= set(plan.table)
    assert "<table" in plan._repr_html_()
    curve = plan.predicted()
    assert (np.diff(curve["seconds"]) > 0).all()
    assert (np.diff(curve["loss"]) < 0).all()
    assert curve["loss"].iloc[-1] <= 0.7 * 1.2


def test_every_candidate_is_predicted_as_before_it_was_saved(plan, saved):
    for row in plan.ranking:
        again = candidate_of(saved, row.settings)
        assert again.key == row.key
        for name, values in vars(row.price).items():
            np.testing.assert_array_equal(getattr(again.price, name), values)
        assert (again.gamma, again.gain) == (row.gamma, row.gain)
        (curve,), (same,) = plan.predictor.curves([row]), saved.predictor.curves([again])
        np.testing.assert_array_equal(curve.losses, same.losses)
        np.testing.assert_array_equal(curve.seconds, same.seconds)
        schedule = Schedule(row.tau1, row.tau2, row.alpha)
        seconds, losses = predicted(saved, schedule, row.averager.name, row.names)
        curve = plan.expected(row)
        np.testing.assert_array_equal(losses, curve.losses)
        np.testing.assert_array_equal(seconds, curve.seconds)


def test_what_was_chosen_is_the_default(plan, saved):
    assert saved.settings == plan.settings
    assert saved.choice.key == plan.choice.key
    assert saved.best.key == plan.best.key
    assert saved.reasons == plan.reasons
    assert saved.objective == plan.objective
    assert (saved.seconds, saved.loss) == (plan.seconds, plan.loss)
    assert len(saved.raced) == len(plan.raced)
    for row, again in zip(plan.raced, saved.raced, strict=True):
        np.testing.assert_array_equal(row.curve.losses, again.curve.losses)
        assert row.dropped_at == again.dropped_at
    curve = saved.predicted()
    seconds, losses = predicted(saved)
    np.testing.assert_array_equal(seconds, curve["seconds"])
    np.testing.assert_array_equal(losses, curve["loss"])
    assert np.interp(-0.7, -losses, seconds) == pytest.approx(saved.seconds, rel=1e-12)
    schedule, averager = saved.settings["schedule"], saved.settings["averager"]
    seconds, losses = predicted(saved, schedule, averager, saved.choice.names)
    error = saved.predictor.numbers.error  # as claimed; nothing measured is put into this one
    assert abs(np.log(np.interp(-0.7, -losses, seconds) / saved.seconds)) <= error


def test_names_say_which_methods(plan, saved):
    """What is not named is without; keys of other things are passed over."""
    schedule = Schedule(5, 3, 1)
    names = {"codecs.up": "int8", "correction": "two-level"}
    settings = {"schedule": schedule, "codecs": {"up": "int8"}, "correction": "two-level"}
    curve = plan.expected(candidate_of(saved, settings))
    for named in (names, {**names, "tau1": 3}):
        np.testing.assert_array_equal(predicted(saved, schedule, None, named)[0], curve.seconds)
    plain = candidate_of(saved, {"schedule": schedule, "codecs": {}, "correction": "none"})
    assert plain.is_plain
    curve = plan.expected(plain)
    for named in ({}, None):
        np.testing.assert_array_equal(predicted(saved, schedule, None, named)[0], curve.seconds)


def test_another_graph_and_another_clock(saved):
    """A faster backhaul makes exchanges cheaper and leaves the losses as they are."""
    schedule = Schedule(1, 1, 2)
    slow, losses = predicted(saved, schedule, "paper")
    fast = replace(saved.place.profile, server_server=500e6)
    seconds, same = predicted(saved, schedule, "paper", profile=fast)
    np.testing.assert_array_equal(losses, same)
    assert (seconds[1:] < slow[1:]).all()
    full = predicted(saved, schedule, "paper", graph="full")
    assert full[0][-1] < slow[-1]
    with pytest.raises(InputError, match="averager = 'papers'"):
        predicted(saved, schedule, "papers")


def test_a_folder_without_a_plan(tmp_path):
    with pytest.raises(InputError, match=r"plan.json.*is not there.*sdfeel plan --out"):
        read_plan(tmp_path)


DAMAGE = {
    "version": 1, "objective": {}, "choice": 99, "best": "first", "reasons": [3],
    "raced": [{"label": "a"}], "pilot": {"iterations": [1], "seconds": [], "losses": []},
    "points": [], "lr": 0.0, "numbers": {"magic": 1.0}, "network": {"clusters": [[0]]},
    "profile": {"rates": {}}, "parameters": "many", "settings": {"lr": -1}, "report": "long",
    "extra": 1,
}  # fmt: skip


@pytest.mark.parametrize("key", DAMAGE)
def test_a_damaged_file_is_named(text, tmp_path, key):
    content = json.loads(text) | {key: DAMAGE[key]}
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"plan\.json"):
        read_plan(tmp_path)


def places(value, path=()):
    """Every key of a file, and the first few places of every list."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:3])
    for key, part in inside:
        yield (*path, key)
        if isinstance(part, dict | list):
            yield from places(part, (*path, key))


NUMBERS = st.floats(allow_nan=True) | st.integers(-(10**20), 10**20)
ANYTHING = st.none() | st.booleans() | NUMBERS | st.text(max_size=5) | st.just([]) | st.just({})


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_ends_in_a_traceback(text, tmp_path, data):
    """Any value anywhere in the file: a plan that can be asked, or a named error."""
    content = json.loads(text)
    *way, key = data.draw(st.sampled_from(list(places(content))))
    place = content
    for step in way:
        place = place[step]
    place[key] = data.draw(ANYTHING)
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with contextlib.suppress(InputError):
        predicted(read_plan(tmp_path))


@pytest.mark.parametrize("name", profile_names())
def test_a_profile_is_what_its_table_says(name):
    profile = load_profile(name)
    assert profile_of(json.loads(json.dumps(profile_table(profile))), profile.name) == profile


def test_devices_and_presence_have_tables():
    table = profile_table(load_profile("paper"))
    table["devices"] = {"classes": [{"name": "phone", "share": 1.0, "speed": 0.5, "link": 1.0}]}
    table["availability"] = {"trace": [[0, 0.0, 5.0], [1, 1.0, 2.0]]}
    table["links"] = {"0-1": 1e6}
    assert profile_table(profile_of(table)) == table
    with pytest.raises(InputError, match="three numbers"):
        profile_of(table | {"availability": {"trace": [[0, 1.0]]}})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "target"),
        ({"target_loss": 1.0, "target_accuracy": 0.5}, "one target"),
        ({"target_accuracy": 90}, "a share between 0 and 1"),
        ({"target_accuracy": 0.9}, "needs data to test on"),
        ({"target_loss": "low"}, "target = 'low': a finite number above 0"),
        ({"target_loss": 1.0, "schedule": Schedule()}, "schedule.*is what a plan chooses"),
        ({"target_loss": 1.0, "steps": 10}, "steps = 10: a plan does not use it"),
        ({"target_loss": 1.0, "choose": {"tau3": (1,)}}, "choose = 'tau3'"),
        ({"target_loss": 1.0, "choose": {"tau1": (0,)}}, "whole numbers above 0"),
        ({"target_loss": 1.0, "choose": {"tau1": ()}}, "at least one to choose from"),
        ({"target_loss": 1.0, "choose": "tau1"}, "choose = 'tau1'"),
        ({"target_loss": 1.0, "choose": {"codecs.up": "int9"}}, "codecs.up = 'int9'"),
        ({"target_loss": 1.0, "pilot": 3}, "pilot = 3"),
        ({"target_loss": 1.0, "scheme": "local"}, "scheme = 'local'"),
        ({"target_loss": 1.0, "scheme": "d-psgd"}, "scheme = 'd-psgd'"),
        ({"target_loss": 1.0, "lr": -1}, "lr"),
    ],
)
def test_a_mistake_is_named(options, match):
    model, data = world()
    with pytest.raises(InputError, match=match):
        sdfeel.plan(model, data, network=NETWORK, **options)


def test_progress_goes_to_standard_error(capsys, monkeypatch):
    """Also from the middle of a training that lasts."""
    monkeypatch.setattr("sdfeel.planner.laboratory.LINE_EVERY", 0.0)
    model, data = world()
    sdfeel.plan(
        model, data, network=NETWORK, target_loss=0.9, choose={**CHOOSE, "correction": "none"},
        pilot=60, racers=1, lr=0.05, engine="vectorised", seed=2,
    )  # fmt: skip
    shown = capsys.readouterr()
    assert shown.out == ""
    for part in ("pilot: ", "probes: ", "race 1: ", "    1 of 1 iterations"):
        assert part in shown.err
