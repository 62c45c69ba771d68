"""A profile as a dict and an averager as a matrix: taken where they fit, named where not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import short_runs
import torch
from hypothesis import given
from hypothesis import strategies as st
from worlds import Problem, networks, vector

import sdfeel
from sdfeel import InputError, Network
from sdfeel.clock import load_profile, profile_table
from sdfeel.network import MatrixAverager, metropolis_matrix, weighted_norm
from sdfeel.simulation.settings import Settings

TABLE = profile_table(load_profile("paper"))


def test_a_dict_is_a_profile(small: Problem) -> None:
    """Twice the rates: half the seconds."""
    faster = TABLE | {"rates": {name: 2 * rate for name, rate in TABLE["rates"].items()}}
    seconds = [short_runs.train(small, profile=p).seconds for p in ("paper", TABLE, faster)]
    assert seconds[0] == seconds[1] == pytest.approx(2 * seconds[2], rel=1e-12)


def test_arrays_and_tuples_are_rates(small: Problem) -> None:
    clients = small.network.clients
    rates = TABLE["rates"] | {"cpu": np.full(clients, 10e9), "client_server": (5e6,) * clients}
    own = short_runs.train(small, profile=TABLE | {"rates": rates})
    assert own.seconds == short_runs.train(small).seconds


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"rates": {"cpu": 1.0}}, "missing; see profile `paper`"),
        ({"rate": {}}, "unknown key.*did you mean 'rates'"),
        ({"flops_per_step": "many"}, "flops_per_step = 'many': a finite number above 0"),
        ({"rates": TABLE["rates"] | {"cpu": -1.0}}, "rates.cpu = -1.0"),
        ({"links": {"0:1": 1.0}}, "links"),
    ],
)
def test_a_wrong_dict_is_named(small: Problem, change: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        short_runs.train(small, profile=TABLE | change)


def test_what_is_no_profile_is_named(small: Problem) -> None:
    with pytest.raises(InputError, match="profile = 3"):
        short_runs.train(small, profile=3)


def test_a_record_reads_back_as_the_same_settings() -> None:
    """run.json is what the live page puts the clock together from."""
    mine = sdfeel.LatencyProfile(**{**vars(load_profile("paper-h10")), "name": "mine"})
    matrix = [[0.5, 0.5], [0.5, 0.5]]
    for own in ({"profile": TABLE}, {"profile": mine}, {"averager": matrix}):
        table = json.loads(json.dumps(Settings.of(own).table()))
        again = Settings.of({k: v for k, v in Settings.take_from(table).items() if v is not None})
        (name,) = own
        if name == "profile":
            assert profile_table(again.latency) == profile_table(Settings.of(own).latency)
        else:
            assert again.averager == Settings.of(own).averager
    assert Settings.of({"profile": load_profile("paper")}).table()["clock"]["profile"] == "paper"


@given(networks(min_servers=2), st.integers(1, 3))
def test_a_matrix_is_the_averager_that_it_writes_out(network: Network, alpha: int) -> None:
    P = metropolis_matrix(network.graph, network.shares.cluster)
    ours, own = network.averager("metropolis", alpha), network.averager(MatrixAverager.of(P), alpha)
    np.testing.assert_allclose(own.operator, ours.operator, atol=1e-12)
    assert own.contraction == pytest.approx(ours.contraction, abs=1e-9)
    assert own.model_times == ours.model_times
    assert own.amplification == pytest.approx(ours.amplification)


@pytest.mark.parametrize(
    "kind", [np.array, torch.tensor, list, lambda rows: tuple(map(tuple, rows))]
)
def test_any_kind_of_matrix_is_taken(small: Problem, kind: Any) -> None:
    shares = small.network.with_samples([len(d) for d in small.datasets]).shares.cluster
    P = metropolis_matrix(small.network.graph, shares)
    own = short_runs.train(small, averager=kind(P.tolist()))
    ours = short_runs.train(small, averager="metropolis")
    np.testing.assert_allclose(vector(own.model), vector(ours.model), atol=1e-6)
    assert own.seconds == ours.seconds


def test_a_matrix_that_takes_in_one_direction_only() -> None:
    """Columns sum to 1 and the mean stays, without symmetry: each takes from one side."""
    network = Network.ring(3, 1)
    P = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])
    own = network.averager(MatrixAverager.of(P), 4)
    product = np.linalg.matrix_power(P, 4)
    np.testing.assert_allclose(own.operator, product, atol=1e-12)
    shares = network.shares.cluster
    assert own.contraction == pytest.approx(weighted_norm(product - shares[:, None], shares))
    assert own.amplification == pytest.approx(1.0)


RING = Network(clusters=[[0], [1], [2], [3]], graph="ring")
FAR = [[0.5, 0, 0.5, 0], [0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize(
    ("matrix", "match"),
    [
        (np.eye(3), "a 3 x 3 matrix.*there are 4 servers"),
        (np.eye(4) * 0.5, "column 0 sums to 0.5, not to 1"),
        (np.roll(np.eye(4), 1, axis=0) * [1, 1, 1, 1] @ np.diag([1, 1, 1, 1]) * 1.0, None),
        ([[1, 0.5, 0, 0], [0, 0.5, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], "moves the weighted mean"),
        (FAR, r"p\[0, 2\] uses a link that the graph lacks"),
        (2 * np.eye(4) - RING.averager("paper").operator, "enlarges disagreement"),
        ([[float("nan")]], "finite numbers"),
        ([1, 2], "a square matrix"),
        ([["a"]], "a square matrix"),
        (torch.eye(2, requires_grad=True), "a 2 x 2 matrix"),
        (3.0, "a square matrix"),
    ],
)
def test_a_matrix_that_does_not_fit_is_named(matrix: Any, match: str | None) -> None:
    if match is None:  # a permutation along links keeps the mean: it is taken
        assert RING.averager(MatrixAverager.of(matrix)).contraction == 1.0
        return
    with pytest.raises(InputError, match=match):
        RING.averager(MatrixAverager.of(matrix))
