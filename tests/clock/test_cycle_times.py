"""Max-plus timing: what an exchange takes in the long run, by theory and by the simulated clock."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from algorithms import algorithm_of
from hypothesis import given
from hypothesis import strategies as st

from sdfeel import InputError, Network, Schedule
from sdfeel.clock import profile_of
from sdfeel.clock.cycle_time import (
    both_ways,
    cycle_time,
    short_ring,
    star_links,
    timed_arcs,
    tree_links,
)
from sdfeel.clock.underlays import Underlay, load_underlay, underlay_names
from sdfeel.network import MatrixAverager

RATES = {
    "cpu": 1e9, "client_server": 1e9, "server_server": 1e9, "server_cloud": 1e9,
    "client_cloud": 1e9,
}  # fmt: skip


@st.composite
def graphs(draw):
    """Weights of a graph in which every server reaches every other: a ring, and more arcs."""
    D = draw(st.integers(2, 6))
    weights = np.full((D, D), -np.inf)
    numbers = st.integers(0, 20).map(float)
    for a in range(D):
        weights[a, (a + 1) % D] = draw(numbers)
        for b in range(D):
            if draw(st.booleans()):
                weights[a, b] = draw(numbers)
    return weights


@given(graphs())
def test_it_is_the_largest_mean_of_a_cycle(weights) -> None:
    graph = nx.from_numpy_array(np.isfinite(weights), create_using=nx.DiGraph)
    means = [
        np.mean([weights[a, b] for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True)])
        for cycle in nx.simple_cycles(graph)
    ]
    assert cycle_time(weights) == pytest.approx(max(means), abs=1e-9)


@given(graphs())
def test_times_of_a_max_plus_system_grow_by_it(weights) -> None:
    """t(k+1) = W t(k) in max-plus: over many periods every server takes lambda a period."""
    D, lam = len(weights), cycle_time(weights)
    t = np.zeros(D)
    for _ in range(400):
        t = (t[:, None] + weights).max(axis=0)
    assert np.abs(t / 400 - lam).max() <= 20 * D / 400 + 1e-9


def test_without_a_cycle_there_is_none() -> None:
    assert cycle_time(np.full((2, 2), -np.inf)) == -np.inf


def one_way(order: list[int]) -> np.ndarray:
    """Each server takes half of the model before it in the ring."""
    P = np.eye(len(order)) / 2
    for a, b in zip(order, order[1:] + order[:1], strict=True):
        P[a, b] = 0.5
    return P


@pytest.mark.parametrize("name", ["gaia", "geant"])
def test_the_simulated_clock_takes_the_cycle_time_on_a_one_way_ring(name: str) -> None:
    """Servers wait only for whom they hear: simulated periods against Karp's number."""
    underlay = load_underlay(name)
    parameters, compute = 1_000_000, 0.01
    transfer = underlay.transfer(32 * parameters, 1e9)
    order = short_ring(underlay.latency + transfer)
    arcs = list(zip(order, order[1:] + order[:1], strict=True))
    profile = profile_of(
        {"flops_per_step": compute * 1e9, "rates": RATES | {"client_server": 1e30},
         "underlay": name}
    )  # fmt: skip
    network = Network([[d] for d in range(len(order))], arcs)
    algorithm = algorithm_of(
        network, profile, parameters, schedule=Schedule(1, 1, 1), averager=one_way(order)
    )
    (*_, last) = algorithm.events(500)
    expected = cycle_time(timed_arcs(arcs, underlay.latency, transfer, compute))
    assert last.ends / 500 == pytest.approx(expected, rel=0.01)
    # Were both ends of a link to wait for one another, it would be the slowest link's time.
    slowest = max((underlay.latency + transfer)[a, b] for a, b in arcs) + compute
    assert expected < slowest


def test_hearing_nobody_late_means_waiting_for_nobody() -> None:
    """0 -> 1 -> 2 -> 0, the link 0-1 slow: at first only server 1 waits for it."""
    profile = profile_of(
        {"flops_per_step": 1.0, "rates": RATES | {"server_server": 1e12}, "latency": {"0-1": 3.0}}
    )
    network = Network([[0], [1], [2]], "ring")
    P = one_way([0, 1, 2])
    algorithm = algorithm_of(network, profile, 10, schedule=Schedule(1, 1, 1), averager=P)
    first = next(algorithm.events(1))
    np.testing.assert_allclose(first.spans["exchange"], [0, 3, 0], atol=1e-5)


def test_arcs_are_of_one_way_matrices_only() -> None:
    network = Network([[0], [1], [2]], "ring")
    assert network.averager("paper", 2).arcs is None
    assert network.averager("all-reduce", 1).arcs is None
    assert MatrixAverager.of(one_way([0, 1, 2]))(network.graph, np.full(3, 1 / 3), 1).arcs == (
        (0, 1),
        (1, 2),
        (2, 0),
    )


def test_latency_of_links_comes_on_top_of_their_rates() -> None:
    table = {"flops_per_step": 1.0, "rates": RATES, "links": {"0-1": 1e6}, "latency": {"0-1": 0.5,
             "1-2": 0.25}}  # fmt: skip
    times = profile_of(table).latencies(1000, 3, 3)
    assert times.link(1, 0) == pytest.approx(32_000 / 1e6 + 0.5)
    assert times.link(1, 2) == pytest.approx(32_000 / 1e9 + 0.25)
    assert times.link(0, 2) == pytest.approx(32_000 / 1e9)


def test_an_underlay_says_how_far_links_are() -> None:
    table = {"flops_per_step": 1.0, "rates": RATES, "underlay": "gaia"}
    times = profile_of(table).latencies(1000, 3, 3)
    assert times.link(0, 1) == pytest.approx(0.004 + 8.5e-6 * 3560.9 + 32_000 / 1e9)
    with pytest.raises(InputError, match="11 places for 12 servers"):
        profile_of(table).latencies(1000, 12, 12)


def test_lines_on_the_way_share_their_rate() -> None:
    table = {"places": ["a", "b", "c"], "links": [["a", "b", 100], ["b", "c", 200]]}
    underlay = Underlay.of(table, "own")
    assert underlay.km[0, 2] == 300
    assert underlay.lines[0, 2] == 2
    assert underlay.transfer(1e6, 1e6)[0, 2] == 2.0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"links": [["a", "b"]]}, "two places and their kilometres"),
        ({"links": [["a", "d", 3]]}, "is no place"),
        ({"links": [["a", "a", 3]]}, "two different places"),
        ({"links": [["a", "b", -3]]}, "kilometres"),
        ({"links": [["a", "b", True]]}, "kilometres"),
        ({"links": [["a", ["b"], 3]]}, "is no place"),
        ({"links": None}, "two places"),
        ({"links": [["a", "b", 3]]}, "parts"),
        ({"places": ["a", "a", "c"]}, "each of them once"),
        ({"places": []}, "one to"),
        ({"places": [1]}, "a list of names"),
        ({"colour": 1}, "unknown key"),
    ],
)
def test_mistakes_in_an_underlay_are_named(change, match) -> None:
    table = {"places": ["a", "b", "c"], "links": [["a", "b", 100], ["b", "c", 200]]}
    with pytest.raises(InputError, match=match):
        Underlay.of(table | change, "own")


def test_underlays_of_the_package_are_whole() -> None:
    sizes = {name: len(load_underlay(name).places) for name in underlay_names()}
    assert sizes == {"aws-na": 22, "gaia": 11, "geant": 40}


def test_a_profile_finds_its_underlay_beside_it(tmp_path) -> None:
    """A path in a profile is relative to the profile; and the table reads back."""
    from sdfeel.clock import load_profile, profile_table

    (tmp_path / "lines.toml").write_text('places = ["a", "b"]\nlinks = [["a", "b", 1000]]\n')
    rates = "\n".join(f"{name} = {rate}" for name, rate in RATES.items())
    text = (
        f'flops_per_step = 1.0\nunderlay = "lines.toml"\n[latency]\n"0-1" = 0.1\n[rates]\n{rates}\n'
    )
    (tmp_path / "profile.toml").write_text(text)
    profile = load_profile(str(tmp_path / "profile.toml"))
    assert profile.latencies(1, 2, 2).link(0, 1) == pytest.approx(0.1, rel=1e-6)
    assert profile_of(profile_table(profile), profile.name) == profile


def test_overlays_on_gaia_are_as_published() -> None:
    """Marfoq et al. (2020), iNaturalist on Gaia, in milliseconds: 390.854, 138.119, 118.105."""
    underlay, bits, compute = load_underlay("gaia"), 44_961_717, 0.0254
    transfer, access = underlay.transfer(bits, 1e9), bits / 1e10
    message = underlay.latency + transfer
    ring = short_ring(message + compute)
    star, tree, around = (
        cycle_time(timed_arcs(arcs, underlay.latency, transfer, compute, access))
        for arcs in (
            both_ways(star_links(underlay.latency)),
            both_ways(tree_links(message)),
            list(zip(ring, ring[1:] + ring[:1], strict=True)),
        )
    )
    assert 2 * (star - compute) + compute == pytest.approx(0.390854, abs=2e-6)
    assert tree == pytest.approx(0.138119, abs=2e-6)
    assert around == pytest.approx(0.118105, abs=2e-6)


@pytest.mark.parametrize("key", ["underlay", "trace"])
def test_a_pipe_in_a_profile_is_not_opened(tmp_path, key) -> None:
    """To open one would wait for ever for somebody who writes."""
    import os

    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    named = {"underlay": str(pipe)} if key == "underlay" else {"availability": {"trace": str(pipe)}}
    with pytest.raises(InputError, match="no regular file"):
        profile_of({"flops_per_step": 1.0, "rates": RATES, **named})


@pytest.mark.parametrize(("places", "is_right"), [(2, True), (3, True), (4, False)])
def test_an_underlay_has_so_many_places(monkeypatch, places, is_right) -> None:
    from sdfeel.clock import underlays

    monkeypatch.setattr(underlays, "MAX_PLACES", 3)
    names = [f"p{number}" for number in range(places)]
    table = {"places": names, "links": [[a, b, 1] for a, b in pairwise(names)]}
    if is_right:
        assert len(Underlay.of(table, "own").places) == places
    else:
        with pytest.raises(InputError, match="one to 3 names"):
            Underlay.of(table, "own")


def test_shortest_ways_are_those_of_dijkstra() -> None:
    underlay = load_underlay("geant")
    with_loops = np.where(underlay.lines == 1, underlay.km, np.inf)
    direct = nx.Graph()
    for a, b in zip(*np.nonzero(np.isfinite(with_loops)), strict=True):
        direct.add_edge(int(a), int(b), km=with_loops[a, b])
    for a, lengths in nx.all_pairs_dijkstra_path_length(direct, weight="km"):
        np.testing.assert_allclose([lengths[b] for b in range(40)], underlay.km[a], rtol=1e-12)
