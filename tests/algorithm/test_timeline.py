"""Who does what when, from the clock alone."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from algorithms import algorithm_of
from typer.testing import CliRunner

from sdfeel import Asynchronous, Network, Schedule, load_profile
from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.timeline import Span, as_text, timeline, waiting_share
from sdfeel.cli import app

H10 = load_profile("paper-h10")


def algorithm(pace="synchronous", scheme: str = "sd-feel", seed: int = 0) -> Algorithm:
    own = {"scheme": scheme, "schedule": Schedule(5, 1, 2), "pace": pace, "seed": seed}
    return algorithm_of(Network.ring(4, 3), H10, **own)


@pytest.mark.parametrize(
    ("pace", "scheme"),
    [("synchronous", "sd-feel"), ("asynchronous", "sd-feel"), ("synchronous", "fedbuff")],
)
def test_nobody_is_in_two_places_or_in_none(pace, scheme) -> None:
    """Spans of one follow one another without a gap."""
    spans = timeline(algorithm(pace, scheme), 3.0)
    for who in {span.who for span in spans}:
        own = [span for span in spans if span.who == who]
        assert own[0].begin == 0
        assert own[-1].end >= 3.0
        for one, two in pairwise(own):
            assert two.begin == pytest.approx(one.end)


def test_servers_wait_for_other_clusters_only_where_there_are_rounds() -> None:
    """And as long as the clock of a run says: `idle_share` comes from there."""
    assert waiting_share(timeline(algorithm(Asynchronous()), 5.0), "server") == 0
    found = algorithm()
    (*_, last) = found.events(25)
    spans = timeline(found, last.ends - 1e-9)
    assert waiting_share(spans, "server") == pytest.approx(last.idle_share, rel=1e-6)
    assert last.idle_share > 0.1


def test_a_server_that_waits_says_so_in_text() -> None:
    spans = timeline(algorithm(), 1.0)
    lines = as_text(spans, 1.0, columns=40)
    assert 4 < len(lines) <= 4 + 12
    assert any("." in line for line in lines[:4])
    assert lines[4].startswith("client 0")
    assert "#" in lines[4]


def test_a_short_exchange_is_not_lost_in_text() -> None:
    """It used to be: a sign went to what filled most of its part of the time, and nothing else."""
    spans = [
        Span("server 0", "collect", 0.0, 9.9),
        Span("server 0", "exchange", 9.9, 10.0),
        Span("server 0", "collect", 10.0, 20.0),
    ]
    assert as_text(spans, 20.0, columns=10) == ["server 0 ----x-----"]


def test_lanes_that_are_equal_are_one_line() -> None:
    """50 clients that do the same are not 50 lines."""
    spans = [Span(f"client {c}", "compute", 0, 1.0 + (c == 2)) for c in (0, 1, 2, 3, 4, 6)]
    assert as_text(spans, 2.0, columns=4) == ["client 0-1,3-4,6 ##", "client 2         ####"]


def test_the_command_prints_it_and_draws_it(tmp_path: Path) -> None:
    own = ["clock", "--profile", "paper-h10", "--servers", "3", "--clients", "2"]
    drawn = CliRunner().invoke(app, [*own, "--timeline", str(tmp_path / "t.png")])
    assert drawn.exit_code == 0, drawn.output
    assert "server 0" in drawn.stdout
    assert (tmp_path / "t.png").stat().st_size > 1000
    assert (tmp_path / "t.svg").exists()
    told = CliRunner().invoke(app, [*own, "--pace", "asynchronous", "--json"])
    found = json.loads(told.stdout)
    assert found["servers_wait"] == 0
    assert len(found["turns"]) == 3
    assert np.min([row["steps"] for row in found["turns"]]) >= 1
