"""`sdfeel plan` and `sdfeel constants`: flags, JSON keys and errors, on a tiny run."""

import json

import pytest
import typer
from typer.testing import CliRunner

from sdfeel.cli.plan import constants, plan
from sdfeel.errors import InputError
from sdfeel.planner.pilot import NotReachableError

app = typer.Typer()
app.command()(plan)
app.command()(constants)

SETTINGS = {
    "network.servers": 3,
    "network.clients_per_server": 2,
    "model.name": "logistic",
    "engine": "vectorised",
    "batch_size": 20,
    "lr": 0.1,
}
TINY = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
GRID = ["--tau1", "1,5", "--tau2", "1,2", "--alpha", "1", "--averagers", "paper"]
GRID += ["--racers", "2", "--pilot", "60"]


def run(*words):
    return CliRunner().invoke(app, list(words), catch_exceptions=False, env={"COLUMNS": "200"})


def test_json_names_the_schedule_its_time_and_the_bottleneck(tmp_path):
    picture = tmp_path / "frontier.png"
    done = run(
        "plan", "mnist-5k", *TINY, *GRID, "--target-loss", "1.2", "--json", "--figure", str(picture)
    )
    found = json.loads(done.stdout)
    assert found["tau1"] in (1, 5)
    assert found["averager"] == "paper"
    assert found["seconds_to_target"] > 0
    assert found["bottleneck"] in ("compute", "uplink", "exchange")
    assert {"tau2", "alpha"} <= set(found)
    assert {"codecs.up", "codecs.down", "codecs.between", "correction"} <= set(found)
    for row in found["brought"]:
        assert {"what", "value", "with_it", "without", "best_without", "best", "after"} == set(row)
    assert (found["optimizer"], found["lr"], found["trials"]) == ("sgd", 0.1, [])
    assert picture.stat().st_size > 0


def test_people_read_the_evidence():
    text = run("plan", "mnist-5k", *TINY, *GRID, "--target-accuracy", "0.6").stdout
    assert "bottleneck" in text
    assert "evidence: a pilot of" in text


def test_the_ranking_fits_a_terminal_without_a_cut_word():
    """At 80 columns it once began "ta… al… ave… pap…"."""
    words = ["plan", "mnist-5k", *TINY, *GRID, "--target-loss", "1.2"]
    text = CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "80"}).stdout
    ranking = text[text.index("tau1   tau2") :].splitlines()
    assert max(map(len, ranking)) <= 80
    assert "…" not in text


def test_methods_can_be_fixed_and_left_out():
    plain = ["--up", "float32", "--between", "float32", "--correction", "none"]
    text = run("plan", "mnist-5k", *TINY, *GRID, "--target-loss", "1.2", *plain).stdout
    assert "codecs." not in text
    assert "correction" not in text
    fixed = ["--up", "int8", "--between", "float32", "--correction", "two-level"]
    text = run("plan", "mnist-5k", *TINY, *GRID, "--target-loss", "1.2", *fixed).stdout
    assert "int8 up, two-level correction: loss 1.2 after" in text
    assert "codecs.up = int8: " in text


def test_rules_and_rates_can_be_chosen_too():
    also = ["--optimizer", "sgd,momentum", "--rates", "0.001,0.1", "--correction", "none"]
    words = ["plan", "mnist-5k", *TINY, *GRID, "--budget", "6", "--race-iterations", "100", *also]
    text = run(*words, "--up", "float32", "--between", "float32").stdout
    assert "rate 0.1: tau1" in text
    assert "lr = 0.1: loss" in text
    assert "(tried for" in text


def test_a_target_that_is_never_reached():
    with pytest.raises(NotReachableError, match="best reached is loss"):
        run("plan", "mnist-5k", *TINY, *GRID, "--target-loss", "0.0001")


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ([], "target"),
        (["--budget", "0"], "budget"),
        (["--target-loss", "-1"], "target"),
        (["--target-accuracy", "90"], "target-accuracy"),
        (["--target-loss", "1", "--target-accuracy", "0.5"], "one target"),
        (["--target-loss", "1", "--tau1", "0"], "tau1"),
        (["--target-loss", "1", "--averagers", "papers"], "averager"),
        (["--target-loss", "1", "--up", "int9"], "codecs.up"),
        (["--target-loss", "1", "--optimizer", "sdg"], "optimizer"),
        (["--target-loss", "1", "--rates", "0.1,fast"], "rates"),
        (["--target-loss", "1", "--rates", "0.1,0"], "rates"),
        (["--target-loss", "1", "--rates", "nan"], "rates"),
        (["--target-loss", "1", "--correction", "two-levels"], "correction"),
        (["--target-loss", "1", "--up", "top-k", "--correction", "two-level"], "codecs.up"),
    ],
)
def test_a_mistake_names_the_field(words, field):
    with pytest.raises(InputError, match=field):
        run("plan", "mnist-5k", *TINY, *words)


def test_constants_come_with_their_spread_and_their_words():
    found = json.loads(run("constants", "mnist-5k", *TINY, "--set", "steps=10", "--json").stdout)
    for name in ("smoothness", "variance", "inside", "between", "gap"):
        assert found[name]["low"] <= found[name]["value"] <= found[name]["high"]
        assert found[name]["words"]


def test_out_leaves_a_plan_that_can_be_asked_again(tmp_path):
    from sdfeel.planner.saved import predicted, read_plan

    done = run("plan", "mnist-5k", *TINY, *GRID, "--target-loss", "1.2", "--out", str(tmp_path))
    assert "plan.json" in done.stdout
    seconds, losses = predicted(read_plan(tmp_path))
    assert losses[-1] < 1.2 < losses[0]
    assert len(seconds) == len(losses)
