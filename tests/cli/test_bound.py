"""`sdfeel bound`: flags, JSON keys, and words for people."""

import json

import pytest
import typer
from typer.testing import CliRunner

from sdfeel.cli.bound import bound
from sdfeel.errors import InputError

app = typer.Typer()
app.command()(bound)

CONSTANTS = ["--smoothness", "1", "--variance", "2", "--non-iid", "3", "--gap", "4"]
SETTING = "--graph ring --servers 10 --clients 50 --tau1 2 --tau2 1 --alpha 5 --lr 0.01"


def run(*words):
    arguments = [*SETTING.split(), *CONSTANTS, "--iterations", "1000", *words]
    return CliRunner().invoke(app, arguments, catch_exceptions=False, env={"COLUMNS": "160"})


def test_json_has_every_quantity():
    found = json.loads(run("--json").stdout)
    assert found["Lambda"] == pytest.approx(1.806, rel=5e-4)
    assert found["V3"] == pytest.approx(9.845, rel=5e-4)
    assert found["zeta"] == pytest.approx(0.8257, abs=5e-5)
    assert found["max_lr"] == pytest.approx(0.06432, abs=6e-6)
    assert found["bound"] == pytest.approx(sum(found["terms"].values()))
    assert found["conditions_hold"] is True
    assert len(found["terms"]) == 4
    assert {"V1", "V2"} <= set(found)


def test_people_read_which_term_dominates_and_whether_the_theorem_applies():
    text = run().stdout
    assert "The largest term is start" in text
    assert "Theorem 1 applies" in text
    assert "qualitative only" in run("--lr", "0.5").stdout


def test_unequal_clusters_averagers_and_participation_are_flags():
    text = run("--sizes", "1,2,3,4,5,6,7,8,9,10", "--clients", "55").stdout
    assert "m-weighted" in text
    found = json.loads(run("--averager", "all-reduce", "--beta", "0.5", "--json").stdout)
    assert found["contraction"] == 0
    assert any("heuristic" in note for note in found["notes"])
    corrected = json.loads(run("--version", "corrected", "--json").stdout)
    assert corrected["version"] == "corrected"


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--smoothness", "-1"], "smoothness"),
        (["--variance", "-1"], "variance"),
        (["--gap", "-1"], "gap"),
        (["--iterations", "0"], "iterations"),
        (["--graph", "rings"], "did you mean 'ring'"),
        (["--sizes", "1,2"], "sizes"),
        (["--sizes", "1,x"], "sizes"),
        (["--version", "wrong"], "version"),
        (["--clients", "3"], "clients"),
    ],
)
def test_a_mistake_names_the_field(words, field):
    with pytest.raises(InputError, match=field):
        run(*words)
