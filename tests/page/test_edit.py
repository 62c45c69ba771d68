"""What the editor of networks answers: the numbers that the commands print, in bounded work."""

from __future__ import annotations

import json
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner
from worlds import classification

import sdfeel
from sdfeel.algorithm.costs import round_cost
from sdfeel.cli import app
from sdfeel.errors import InputError
from sdfeel.experiments.config import NetworkConfig
from sdfeel.network.graphs import liars_survived
from sdfeel.page import edit
from sdfeel.page.runs import Runs
from sdfeel.page.timeline import algorithm_of
from sdfeel.page.views import Views

EDITS = "+0-5 s3 m12-4 -0-1 +10-8"


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Views:
    """A run with three servers of unequal data."""
    world = classification(samples=(9, 8, 7, 6), clusters=[[0, 1], [2], [3]])
    folder = tmp_path_factory.mktemp("runs")
    sdfeel.train(
        world.model, world.datasets, network=world.network, engine="vectorised", lr=0.1, steps=2,
        averager="metropolis", schedule=sdfeel.Schedule(2, 1, 3), out=folder / "small",
    )  # fmt: skip
    views = Views(Runs([folder]))
    views.table["runs"]({})
    return views


def test_a_run_is_edited_from_what_it_was(views: Views) -> None:
    """Without edits: its own graph, clusters and clock."""
    answer = views.table["edited"]({"run": "small"})
    run = views.runs.get("small")
    algorithm = algorithm_of(run.network, run.config)
    network = algorithm.network
    assert answer["zeta"] == pytest.approx(network.zeta, rel=1e-12)
    assert answer["contraction"] == pytest.approx(algorithm.averager.contraction, rel=1e-12)
    assert answer["seconds_per_round"] == round_cost(algorithm).total
    assert answer["bytes_per_round"] == round_cost(algorithm).bytes
    assert answer["liars_survived"] == liars_survived(network.graph)
    assert answer["network"]["members"] == [list(m) for m in network.clusters.members]
    assert answer["settings"] == {"tau1": 2, "tau2": 1, "alpha": 3, "averager": "metropolis"}


def test_the_copied_command_prints_the_numbers_that_were_shown(tmp_path: Path) -> None:
    """The graph, the shares of data and the averager come through a shell unchanged."""
    answer = edit.edited(edit.draft_of_the_paper(), {"edits": EDITS, "averager": "metropolis"})
    write, topology, run = answer["command"].splitlines()
    subprocess.run(["sh", "-c", write], cwd=tmp_path, check=True)  # noqa: S607
    words = shlex.split(topology)[1:]
    words[1] = str(tmp_path / words[1])
    printed = CliRunner().invoke(app, [*words, "--json"])
    assert printed.exit_code == 0, printed.output
    printed_json = json.loads(printed.output)
    for name in ("zeta", "contraction", "exchanges", "liars_survived"):
        assert answer[name] == pytest.approx(printed_json[name], rel=1e-9), name
    assert printed_json["servers"] == 11
    settings = shlex.split(run)[3::2]
    assert f"network.links={json.dumps(answer['network']['links'])}" in settings


def test_the_copied_toml_is_the_network_of_an_experiment() -> None:
    answer = edit.edited(edit.draft_of_the_paper(), {"edits": EDITS, "alpha": "7"})
    table = tomllib.loads(answer["toml"])
    network = NetworkConfig.model_validate(table["network"])
    assert [list(link) for link in network.links or []] == answer["network"]["links"]
    assert network.clusters == answer["network"]["members"]
    assert 12 in (network.clusters or [])[4]
    assert (table["schedule"]["alpha"], table["averager"]) == (7, "paper")


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ("-0-1 -5-6", "must be connected"),
        ("m0-1 m1-1 m2-1 m3-1 m4-1", "at least one client"),
    ],
)
def test_what_is_no_network_is_drawn_and_says_so(edits: str, words: str) -> None:
    """The board shows it as it is; numbers are not there, the sentence is."""
    answer = edit.edited(edit.draft_of_the_paper(), {"edits": edits})
    assert words in answer["problem"]
    assert "zeta" not in answer
    assert len(answer["network"]["members"]) == 10


@pytest.mark.parametrize(
    "edits", ["+0-10", "+1-1", "m50-0", "s10", "nonsense", "+0-1 " * 500, "m0-99", "+0-99999"]
)
def test_what_is_no_edit_is_refused(edits: str) -> None:
    with pytest.raises(InputError):
        edit.edited(edit.draft_of_the_paper(), {"edits": edits})


def test_a_question_costs_a_bounded_amount() -> None:
    """Servers, clients and the search for disjoint paths are counted before they are made."""
    draft = edit.draft_of_the_paper()
    for _ in range(edit.MOST_SERVERS - 10):
        draft.apply("s0")
    with pytest.raises(InputError, match="at most"):
        draft.apply("s0")
    for server in range(1, edit.MOST_SERVERS):
        for other in range(server):
            draft.links.add((other, server))
    assert edit._liars(draft.network) is None, "a full graph of 200 is too much for a page"
    assert edit._liars(edit.draft_of_the_paper().network) is not None
