from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from worlds import networks, paper_matrix

from sdfeel import Network
from sdfeel.data import partition
from sdfeel.network import build_graph, metropolis_matrix, paper_mixing, spectrum, weighted_norm

TEN = [
    ("path", 10, 0.9511),
    ("ring", 10, 0.8257),
    ("star", 10, 0.8182),
    ("torus", 10, 0.6052),
    ("ring-diagonals", 10, 0.6256),
    ("partial", 10, 0.3333),
    ("full", 10, 0.0),
]
SIX = [("ring", 6, 0.6), ("partial", 6, 1 / 3), ("full", 6, 0.0)]
FEW = [("ring", 1, 0.0), ("ring", 2, 0.0), ("path", 2, 0.0), ("full", 2, 0.0)]


@pytest.mark.parametrize(("name", "servers", "zeta"), [*TEN, *SIX, *FEW])
def test_zeta_of_named_graphs_with_equal_clusters(name: str, servers: int, zeta: float) -> None:
    assert Network.build(name, servers, 5).zeta == pytest.approx(zeta, abs=5e-5)


def test_zeta_of_the_petersen_graph() -> None:
    mixing = paper_mixing(nx.petersen_graph(), np.full(10, 0.1))
    assert mixing.zeta == pytest.approx(0.4286, abs=5e-5)


@given(networks())
def test_mixing_matrix_is_the_papers(network: Network) -> None:
    P, mt = network.mixing.matrix, network.shares.cluster
    np.testing.assert_allclose(P, paper_matrix(network.graph, mt), atol=1e-9)


@given(networks())
def test_invariants_of_the_mixing_matrix(network: Network) -> None:
    """Columns sum to 1, m-tilde is kept, P diag(m-tilde) is symmetric, support is the graph.

    Not here: rows that sum to 1 and entries that are not negative. The paper says "doubly
    stochastic", which holds for clusters of equal size only.
    """
    P, mt = network.mixing.matrix, network.shares.cluster
    np.testing.assert_allclose(P.sum(axis=0), 1.0, atol=1e-12)
    np.testing.assert_allclose(P @ mt, mt, atol=1e-12)
    np.testing.assert_allclose(P * mt, (P * mt).T, atol=1e-12)
    linked = nx.to_numpy_array(network.graph, nodelist=range(network.servers)) > 0
    off = ~linked & ~np.eye(network.servers, dtype=bool)
    assert (P[off] == 0).all()
    assert (P[linked] > 0).all()


@given(networks())
def test_zeta_is_the_second_largest_eigenvalue_by_size(network: Network) -> None:
    eigenvalues = np.sort(np.abs(np.linalg.eigvals(network.mixing.matrix)))
    second = eigenvalues[-2] if network.servers > 1 else 0.0
    assert network.zeta == pytest.approx(second, abs=1e-7)


@given(networks())
def test_one_exchange_contracts_by_exactly_zeta_in_the_weighted_norm(network: Network) -> None:
    P, mt = network.mixing.matrix, network.shares.cluster
    rest = P - mt[:, None]
    assert weighted_norm(rest, mt) == pytest.approx(network.zeta, abs=1e-9)
    assert np.linalg.norm(rest, ord=2) >= network.zeta - 1e-9


def test_in_the_plain_norm_the_papers_lemma_is_false_for_unequal_clusters() -> None:
    network = Network.ring(6, [1, 1, 1, 1, 1, 15])
    rest = network.mixing.matrix - network.shares.cluster[:, None]
    assert np.linalg.norm(rest, ord=2) > 1.05 * network.zeta
    equal = Network.ring(6, 4)
    rest = equal.mixing.matrix - equal.shares.cluster[:, None]
    assert np.linalg.norm(rest, ord=2) == pytest.approx(equal.zeta)


def test_dirichlet_data_gives_negative_entries_and_a_full_graph_a_zeta_above_0() -> None:
    """Against the paper, which calls P doubly stochastic and a full graph free of disagreement."""
    labels = np.repeat(np.arange(10), 500)
    negative, zetas = [], []
    for seed in range(20):
        samples = [len(part) for part in partition("dirichlet", labels, 50, seed)]
        averager = Network.ring(10, 5).with_samples(samples).averager("paper")
        negative.append(averager.has_negative_weights)
        zetas.append(Network.build("full", 10, 5).with_samples(samples).zeta)
    assert np.mean(negative) >= 0.9
    assert np.mean(zetas) == pytest.approx(0.27, abs=0.05)


@given(networks())
def test_metropolis_is_a_mixing_matrix_without_negative_entries(network: Network) -> None:
    P, mt = metropolis_matrix(network.graph, network.shares.cluster), network.shares.cluster
    assert (P >= -1e-15).all()
    np.testing.assert_allclose(P.sum(axis=0), 1.0, atol=1e-12)
    np.testing.assert_allclose(P @ mt, mt, atol=1e-12)
    np.testing.assert_allclose(P * mt, (P * mt).T, atol=1e-12)
    linked = nx.to_numpy_array(network.graph, nodelist=range(network.servers)) > 0
    assert ((P > 0) == (linked | np.eye(network.servers, dtype=bool))).all()


@given(networks())
def test_spectrum_is_that_of_the_product_itself(network: Network) -> None:
    """The symmetric twin has the same eigenvalues as L Omega, which is not symmetric."""
    found = spectrum(network.graph, network.shares.cluster)
    direct = np.sort(np.linalg.eigvals(found.laplacian).real)[::-1]
    np.testing.assert_allclose(found.eigenvalues, direct, atol=1e-6 * max(1.0, direct[0]))


@pytest.mark.parametrize(
    ("name", "servers", "count"),
    [("ring", 6, 3), ("ring", 10, 5), ("ring", 20, 10), ("full", 7, 1)],
)
def test_distinct_eigenvalues(name: str, servers: int, count: int) -> None:
    assert (
        len(spectrum(build_graph(name, servers), np.full(servers, 1 / servers)).distinct()) == count
    )
