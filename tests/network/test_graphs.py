from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from sdfeel import InputError, Network
from sdfeel.network import GRAPHS, build_graph, read_graph
from sdfeel.network.graphs import liars_survived


@pytest.mark.parametrize("name", sorted(GRAPHS))
@pytest.mark.parametrize("servers", [1, 2, 4, 6, 10, 30])
def test_every_named_graph_is_connected_and_simple(name: str, servers: int) -> None:
    if name == "torus" and servers == 2:
        pytest.skip("a torus needs rows and columns")
    graph = build_graph(name, servers)
    assert sorted(graph.nodes()) == list(range(servers))
    assert nx.is_connected(graph)
    assert nx.number_of_selfloops(graph) == 0
    Network.build(name, servers)


@pytest.mark.parametrize(
    ("name", "servers", "degrees"),
    [
        ("ring", 10, {2}),
        ("path", 10, {1, 2}),
        ("star", 10, {1, 9}),
        ("full", 10, {9}),
        ("partial", 6, {3}),
        ("partial", 10, {5}),
        ("ring-diagonals", 10, {3}),
        ("torus", 9, {4}),
        ("torus", 10, {3}),
        ("dumbbell", 10, {4, 5}),
    ],
)
def test_degrees_of_named_graphs(name: str, servers: int, degrees: set[int]) -> None:
    assert {degree for _, degree in build_graph(name, servers).degree()} == degrees


def test_partial_with_six_servers_is_the_hexagon_with_its_long_diagonals() -> None:
    hexagon = nx.cycle_graph(6)
    hexagon.add_edges_from([(0, 3), (1, 4), (2, 5)])
    assert set(map(frozenset, build_graph("partial", 6).edges())) == set(
        map(frozenset, hexagon.edges())
    )
    assert set(map(frozenset, build_graph("ring-diagonals", 6).edges())) == set(
        map(frozenset, hexagon.edges())
    )


def test_random_graphs_are_a_function_of_their_seed() -> None:
    def links(name: str, seed: int) -> set[frozenset[int]]:
        return set(map(frozenset, build_graph(name, 20, seed=seed).edges()))

    for name in ("random", "small-world"):
        assert links(name, 3) == links(name, 3)
        assert links(name, 3) != links(name, 4)


@pytest.mark.parametrize(
    ("make", "field", "says"),
    [
        (lambda: build_graph("rnig", 4), "graph", "did you mean 'ring'?"),
        (lambda: build_graph("ring", 0), "servers", "at least one"),
        (lambda: build_graph("torus", 7), "servers", "not a prime"),
        (lambda: build_graph("ring-diagonals", 7), "servers", "even"),
        (lambda: build_graph("ring", 4, degree=3), "graph options", "ring does not take"),
        (lambda: build_graph("random", 50, degree=0.01), "degree", "raise it"),
        (lambda: Network([[0], [1]], [(0, 0), (0, 1)]), "graph", "its own neighbour"),
        (
            lambda: Network([[0], [1]], [(0, 2), (0, 1)]),
            "graph",
            "a link goes from one of the numbers 0 to 1",
        ),
        (lambda: Network([[0], [1]], nx.path_graph(3)), "graph", "be 0 to 1; there is no [2]"),
        (lambda: Network([[0], [1]], nx.path_graph(1)), "graph", "be 0 to 1; missing are [1]"),
        (lambda: Network([[0], [1]], nx.DiGraph([(0, 1)])), "graph", "undirected"),
        (lambda: Network([[0], [1]], nx.MultiGraph([(0, 1)])), "graph", "undirected"),
        (lambda: Network([[0], [1]], nx.Graph([("a", "b")])), "graph", "0 to 1"),
        (lambda: Network([[0], [1]], [(0, 1, 2)]), "graph", "pairs"),
        (lambda: Network([[0], [1]], 5), "graph", "pairs"),
    ],
)
def test_bad_graphs_are_named(make: object, field: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        make()  # type: ignore[operator]
    assert error.value.field == field
    assert says in str(error.value)


def test_a_disconnected_graph_names_its_parts() -> None:
    with pytest.raises(InputError) as error:
        Network([[0], [1], [2], [3]], [(0, 2), (1, 3)])
    assert "[0, 2], [1, 3]" in str(error.value)
    assert "2 parts" in str(error.value)


def test_a_graph_may_be_a_networkx_graph_a_list_of_links_or_a_name() -> None:
    clusters = [[0], [1], [2]]
    numbers = np.array([[0, 1], [1, 2]])
    for graph in (nx.path_graph(3), [(2, 1), (0, 1)], "path", nx.Graph(numbers.tolist())):
        assert Network(clusters, graph).neighbours(1) == [0, 2]


def test_nodes_that_are_numpy_integers_become_plain_ones() -> None:
    """They are equal to plain integers, but cannot be written into a run's record."""
    graph = nx.Graph([(np.int64(0), np.int64(1))])
    assert {type(node) for node in Network([[0], [1]], graph).graph.nodes()} == {int}


def test_weights_of_a_given_graph_are_not_taken_for_mixing_weights() -> None:
    graph = nx.path_graph(3)
    nx.set_edge_attributes(graph, 7.0, "weight")
    assert Network([[0], [1], [2]], graph).zeta == Network([[0], [1], [2]], "path").zeta


def test_graph_file(tmp_path: Path) -> None:
    file = tmp_path / "graph.txt"
    file.write_text("# two triangles\n0 1\n1 2  # a side\n\n2 0\n")
    graph = read_graph(file)
    assert sorted(graph.nodes()) == [0, 1, 2]
    assert graph.number_of_edges() == 3


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("0 1\n1 2 3\n", "graph.txt, line 2", "`0 1`"),
        ("0 1\n1 x\n", "graph.txt, line 2", "`0 1`"),
        ("0 -1\n", "graph.txt, line 1", "`0 1`"),
        ("# nothing\n", "graph file", "no links"),
        ("0 1\n2 3\n", "graph.txt: graph", "[0, 1], [2, 3]"),
        ("0 1\n1 1\n", "graph.txt: graph", "its own neighbour"),
        ("0 99999999999\n", "graph file", "numbered from 0"),
    ],
)
def test_a_bad_graph_file_names_its_line(tmp_path: Path, text: str, field: str, says: str) -> None:
    file = tmp_path / "graph.txt"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        read_graph(file)
    assert error.value.field == field
    assert says in str(error.value)


def test_a_graph_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "absent", tmp_path, tmp_path / "binary"):
        with pytest.raises(InputError, match="cannot be read"):
            read_graph(path)


@pytest.mark.parametrize(
    ("graph", "servers", "connected", "trimmed"),
    [
        ("path", 5, 0, 0),
        ("star", 5, 0, 0),
        ("ring", 10, 1, 0),
        ("partial", 10, 4, 1),
        ("full", 3, 1, 0),
        ("full", 10, 8, 2),
        ("dumbbell", 10, 0, 0),
    ],
)
def test_liars_that_graphs_bear(graph, servers, connected, trimmed) -> None:
    expected = {"connected": connected, "trimmed": trimmed}
    assert liars_survived(build_graph(graph, servers)) == expected


def test_trimming_bears_what_it_is_said_to() -> None:
    """On K_{5,5} with a liar anywhere the honest end together, inside what they began with."""
    import sdfeel

    network, rule = Network([[d] for d in range(10)], "partial"), sdfeel.Trimmed(lies=1)
    averager = network.averager(rule, 1)
    rng = np.random.default_rng(0)
    models = rng.normal(size=(10, 3))
    first = np.delete(models, 4, axis=0)
    for turn in range(300):
        lie = rng.normal(size=3) * 100 * (-1) ** turn

        def told(sender, receiver, now=models, lie=lie):
            return (lie, True) if sender == 4 else (now[sender], False)

        models = rule.exchange(models, told, {}, averager, 0)
    honest = np.delete(models, 4, axis=0)
    assert np.ptp(honest, axis=0).max() < 1e-6
    assert (honest >= first.min(0) - 1e-9).all()
    assert (honest <= first.max(0) + 1e-9).all()
