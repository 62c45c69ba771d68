"""`sdfeel reproduce`: flags, the list of verdicts as JSON, and words for people."""

import json

import pytest
import typer
from typer.testing import CliRunner

from sdfeel.cli.reproduce import reproduce
from sdfeel.errors import InputError

app = typer.Typer()
app.command()(reproduce)

TINY = [
    "--quick",
    *("--dataset", "mnist-5k", "--seeds", "1"),
    *("--set", "model.name=logistic", "--set", "engine=vectorised"),
    *("--set", "network.servers=2", "--set", "network.clients_per_server=2"),
    *("--set", "steps=40", "--set", "evaluation.every=4"),
    *("--set", "evaluation.train_samples=50", "--set", "evaluation.test_samples=50"),
]


def run(*words):
    return CliRunner().invoke(app, words, catch_exceptions=False)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduce")


def test_json_is_a_list_of_verdicts(out):
    found = json.loads(run("fig4", *TINY, "--out", str(out), "--json").stdout)
    assert len(found) == 3
    for verdict in found:
        assert {"claim", "verdict", "value", "spread", "paper", "figure", "seeds"} <= set(verdict)
        assert verdict["verdict"] in ("confirmed", "not confirmed", "open")
        assert isinstance(verdict["value"], float)
        assert verdict["spread"] is None


def test_people_read_a_table_and_where_it_lies(out):
    text = run("fig4", *TINY, "--out", str(out)).stdout
    assert {"claim", "verdict", "measured"} <= set(text.split())  # cells wrap as wide as it is here
    assert "tau1 = 3" in text
    assert "index.html" in text


def test_progress_says_which_run_and_how_long_it_takes(tmp_path):
    said = run("fig4", *TINY, "--out", str(tmp_path)).stderr
    assert "run 1 of 3" in said
    assert "client steps/s" in said


def test_quick_and_full_exclude_each_other(tmp_path):
    with pytest.raises(InputError, match="--full"):
        run("fig4", "--quick", "--full", "--out", str(tmp_path))
