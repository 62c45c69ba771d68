from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import Weights, networks, schedules

from sdfeel import InputError, Network
from sdfeel.network import Clusters, Shares


@given(networks())
def test_the_three_kinds_of_shares_are_those_of_the_paper(network: Network) -> None:
    shares, own = network.shares, Weights(network, network.shares.samples)
    np.testing.assert_allclose(shares.client, own.m, rtol=1e-14)
    np.testing.assert_allclose(shares.cluster, own.mt, rtol=1e-14)
    np.testing.assert_allclose(shares.V, own.V, rtol=1e-14)
    np.testing.assert_array_equal(shares.B, own.B)
    server_of = network.clusters.server_of
    np.testing.assert_allclose(shares.within * shares.cluster[server_of], shares.client, rtol=1e-14)


@given(networks())
def test_averaging_after_a_broadcast_changes_nothing(network: Network) -> None:
    """B V = I: a server that averages what it has just sent gets it back."""
    shares = network.shares
    np.testing.assert_allclose(shares.B @ shares.V, np.eye(network.servers), atol=1e-14)


@given(networks(), schedules)
def test_transition_matrices_keep_columns_and_the_weighted_mean(network, schedule) -> None:
    """1'T = 1' (each client gets an affine combination) and T m = m (u_k does not move)."""
    shares = network.shares
    P = np.linalg.matrix_power(network.mixing.matrix, schedule.alpha)
    for T in (shares.V @ shares.B, shares.V @ P @ shares.B):
        np.testing.assert_allclose(T.sum(axis=0), 1.0, atol=1e-11)
        np.testing.assert_allclose(T @ shares.client, shares.client, atol=1e-12)


@given(networks(), st.integers(1, 4))
def test_spectrum_of_a_transition_is_that_of_the_mixing(network: Network, alpha: int) -> None:
    """The non-zero eigenvalues of V P^alpha B are those of P^alpha: Lemma 2 rests on it."""
    shares = network.shares
    P = np.linalg.matrix_power(network.mixing.matrix, alpha)
    T = shares.V @ P @ shares.B
    root = np.sqrt(shares.client)
    alike = T / root[:, None] * root[None, :]
    np.testing.assert_allclose(alike, alike.T, atol=1e-11)  # T diag(m) is symmetric
    nothing = np.zeros(network.clients - network.servers)
    expected = np.sort(np.concatenate([nothing, np.linalg.eigvals(P).real]))
    np.testing.assert_allclose(np.linalg.eigvalsh(alike), expected, atol=1e-7)


@given(networks(), st.data())
def test_weights_renormalise_over_those_present(network: Network, data: st.DataObject) -> None:
    size = network.clients
    present = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    weights = network.shares.within_present(present)
    assert (weights[~present] == 0).all()
    for members in map(list, network.clusters.members):
        here = [i for i in members if present[i]]
        assert weights[members].sum() == pytest.approx(1.0 if here else 0.0)
        if here:
            samples = np.array(network.shares.samples)
            np.testing.assert_allclose(weights[here], samples[here] / samples[here].sum())


def test_without_samples_every_client_counts_the_same() -> None:
    shares = Network([[0, 1, 2], [3]], [(0, 1)]).shares
    assert shares.cluster == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize(
    ("clusters", "field", "value", "says"),
    [
        ([], "clusters", "[]", "at least one"),
        ([[0], []], "clusters[1]", "[]", "at least one client"),
        ([[0, 1], [1]], "clusters[1]", "[1]", "client 1 is attached to server 0 already"),
        ([[0, 0]], "clusters[0]", "[0, 0]", "exactly one server"),
        ([[0, 2]], "clusters", "[[0, 2]]", "[1] have no server"),
        ([[1, -1]], "clusters", "[[1, -1]]", "[0] have no server"),
        ([0, 1], "clusters", "[0, 1]", "a list of client numbers for each server"),
        ([["a"]], "clusters", "[['a']]", "a list of client numbers for each server"),
    ],
)
def test_bad_clusters_are_named(clusters: object, field: str, value: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        Clusters.of(clusters)  # type: ignore[arg-type]
    assert error.value.field == field
    assert value in str(error.value)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("samples", "field"),
    [([1.0, 2.0], "samples"), ([1, 0, 1], "samples[1]"), ([1, 1, np.nan], "samples[2]")],
)
def test_bad_sample_counts_are_named(samples: list[float], field: str) -> None:
    with pytest.raises(InputError) as error:
        Shares.of(Clusters.of([[0, 1], [2]]), samples)
    assert error.value.field == field


@pytest.mark.parametrize("sizes", [0, [1, 2], [1, 0, 2], -1])
def test_bad_cluster_sizes_are_named(sizes: object) -> None:
    with pytest.raises(InputError) as error:
        Network.ring(servers=3, clients_per_server=sizes)  # type: ignore[arg-type]
    assert error.value.field == "clients_per_server"
    assert "list of 3" in error.value.remedy


def test_merged_is_one_server_with_everybody() -> None:
    network = Network([[2, 0], [1]], [(0, 1)], samples=[3, 4, 5])
    merged = network.merged()
    assert merged.clusters.members == ((0, 1, 2),)
    assert merged.shares.samples == (3, 4, 5)
    np.testing.assert_allclose(merged.shares.within, network.shares.client)


def test_a_network_says_what_it_is() -> None:
    network = Network.ring(servers=10, clients_per_server=5)
    assert repr(network) == "Network(50 clients, 10 servers, 10 links)"
    assert network.neighbours(0) == [1, 9]
