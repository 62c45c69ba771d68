from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from worlds import Matrix, networks

from sdfeel import AVERAGERS, InputError, Network
from sdfeel.network import Averager, build_averager, build_graph, weighted_norm
from sdfeel.network.averagers import leja_order

EQUAL = np.full(10, 0.1)
names = st.sampled_from(sorted(AVERAGERS))


def carried_out(averager: Averager) -> Matrix:
    """The product of the exchanges one after the other, as servers would do them."""
    product = np.eye(len(averager.shares))
    for number in range(averager.exchanges):
        product = product @ averager.exchange(number)
    return product


@given(networks(), names, st.integers(1, 6))
def test_every_averager_keeps_the_weighted_mean(network: Network, name: str, alpha: int) -> None:
    averager, mt = network.averager(name, alpha), network.shares.cluster
    for matrix in [averager.operator, *map(averager.exchange, range(averager.exchanges))]:
        scale = max(1.0, np.abs(matrix).max())
        np.testing.assert_allclose(matrix.sum(axis=0), 1.0, atol=1e-11 * scale)
        np.testing.assert_allclose(matrix @ mt, mt, atol=1e-11 * scale)
        np.testing.assert_allclose(matrix * mt, (matrix * mt).T, atol=1e-11 * scale)


@given(networks(), names, st.integers(1, 6))
def test_contraction_is_exact_in_the_weighted_norm(network: Network, name: str, alpha: int) -> None:
    """What the averager says of itself is what its exchanges do, no more and no less."""
    averager, mt = network.averager(name, alpha), network.shares.cluster
    assume(averager.amplification < 1e6)
    rounding = 1e-9 * averager.amplification
    rest = carried_out(averager) - mt[:, None]
    assert weighted_norm(rest, mt) == pytest.approx(averager.contraction, abs=rounding)
    np.testing.assert_allclose(averager.operator, carried_out(averager), atol=10 * rounding)
    assert np.linalg.norm(rest, ord=2) >= averager.contraction - rounding


@given(networks(), names)
def test_exchanges_use_the_links_of_the_graph_only(network: Network, name: str) -> None:
    averager = network.averager(name, 3)
    if averager.route != "neighbours":
        return
    linked = nx.to_numpy_array(network.graph, nodelist=range(network.servers)) > 0
    off = ~linked & ~np.eye(network.servers, dtype=bool)
    for number in range(averager.exchanges):
        assert (averager.exchange(number)[off] == 0).all()


@given(networks(), st.sampled_from(["all-reduce", "exact", "finite-time"]))
def test_exact_averagers_give_every_server_the_weighted_mean(network: Network, name: str) -> None:
    averager, mt = network.averager(name), network.shares.cluster
    assert averager.contraction == 0
    models = np.random.default_rng(0).normal(size=(7, network.servers))
    mean = np.repeat((models @ mt)[:, None], network.servers, axis=1)
    np.testing.assert_allclose(models @ averager.operator, mean, atol=1e-12)
    if averager.exchanges:
        one_by_one = models @ carried_out(averager)
        np.testing.assert_allclose(one_by_one, mean, atol=1e-10 * averager.amplification)


@given(networks(min_servers=2), st.integers(2, 6))
def test_chebyshev_is_the_best_of_its_degree(network: Network, alpha: int) -> None:
    """It is never behind the paper's repeated exchange, which is a polynomial of that degree."""
    chebyshev, paper = (network.averager(name, alpha) for name in ("chebyshev", "paper"))
    assert chebyshev.contraction <= paper.contraction + 1e-12
    if network.zeta > 0:
        first = np.polynomial.chebyshev.chebval(1 / network.zeta, [0] * alpha + [1])
        assert chebyshev.contraction == pytest.approx(1 / first, rel=1e-6)


@given(networks(), st.integers(1, 5))
def test_metropolis_never_weighs_a_model_negatively(network: Network, alpha: int) -> None:
    averager = network.averager("metropolis", alpha)
    assert not averager.has_negative_weights
    assert (averager.operator >= -1e-12).all()


@given(networks(), names, st.integers(1, 4))
def test_negative_weights_are_known(network: Network, name: str, alpha: int) -> None:
    averager = network.averager(name, alpha)
    smallest = min((averager.exchange(n).min() for n in range(averager.exchanges)), default=0.0)
    assert averager.has_negative_weights == (averager.route == "neighbours" and smallest < -1e-12)


@given(networks(min_servers=2), names, st.data())
def test_a_link_left_out_on_both_sides_keeps_the_weighted_mean(
    network: Network, name: str, data: st.DataObject
) -> None:
    """Servers that lose a link give its weight back to themselves: u_k does not notice."""
    averager, mt = network.averager(name, 2), network.shares.cluster
    assume(averager.route == "neighbours")
    P = averager.exchange(0).copy()
    lost = data.draw(st.lists(st.sampled_from(sorted(network.graph.edges())), unique=True))
    for a, b in lost:
        P[b, b] += P[a, b]
        P[a, a] += P[b, a]
        P[a, b] = P[b, a] = 0.0
    np.testing.assert_allclose(P @ mt, mt, atol=1e-11 * max(1.0, np.abs(P).max()))
    np.testing.assert_allclose(P.sum(axis=0), 1.0, atol=1e-11 * max(1.0, np.abs(P).max()))


@pytest.mark.parametrize(
    ("name", "alpha", "exchanges", "contraction"),
    [
        ("paper", 1, 1, 0.8257),
        ("paper", 5, 5, 0.3837),
        ("paper", 10, 10, 0.1472),
        ("chebyshev", 1, 1, 0.8257),
        ("chebyshev", 2, 2, 0.5171),
        ("chebyshev", 3, 3, 0.2879),
        ("chebyshev", 4, 4, 0.1544),
        ("chebyshev", 5, 5, 0.0818),
        ("chebyshev", 10, 10, 0.0034),
        ("finite-time", 1, 5, 0.0),
        ("all-reduce", 1, 1, 0.0),
        ("exact", 1, 1, 0.0),
    ],
)
def test_figures_on_a_ring_of_ten(
    name: str, alpha: int, exchanges: int, contraction: float
) -> None:
    averager = build_averager(name, build_graph("ring", 10), EQUAL, alpha)
    assert averager.exchanges == exchanges
    assert averager.contraction == pytest.approx(contraction, abs=5e-5)
    assert weighted_norm(carried_out(averager) - 0.1, EQUAL) == pytest.approx(contraction, abs=5e-5)


@pytest.mark.parametrize(("servers", "exchanges"), [(6, 3), (10, 5), (20, 10)])
def test_finite_time_needs_half_the_ring(servers: int, exchanges: int) -> None:
    averager = Network.ring(servers).averager("finite-time")
    assert averager.exchanges == exchanges
    np.testing.assert_allclose(carried_out(averager), 1 / servers, atol=1e-12)


def test_disagreement_falls_along_the_line_that_zeta_predicts() -> None:
    """Theory against simulation: the slope of log disagreement over exchanges is log zeta."""
    network = Network.ring(10, [1, 4, 2, 2, 1, 3, 1, 1, 5, 2])
    mt, P = network.shares.cluster, network.mixing.matrix
    models = np.random.default_rng(1).normal(size=(40, 10))
    mean = models @ mt
    logs = []
    for _ in range(60):
        models = models @ P
        logs.append(np.log(np.sqrt(((models - mean[:, None]) ** 2 * mt).sum())))
    slope = np.polyfit(np.arange(30, 60), logs[30:], 1)[0]
    assert slope == pytest.approx(np.log(network.zeta), rel=0.02)
    assert (np.diff(logs) <= np.log(network.zeta) + 1e-9).all()  # never slower than zeta


def test_many_exchanges_bring_every_server_to_the_weighted_mean() -> None:
    network = Network.ring(6, [1, 2, 3, 1, 1, 2])
    for name in ("paper", "metropolis", "chebyshev"):
        operator = network.averager(name, 4000).operator
        np.testing.assert_allclose(
            operator, np.outer(network.shares.cluster, np.ones(6)), atol=1e-9
        )


@pytest.mark.parametrize("name", sorted(AVERAGERS))
def test_a_single_server_agrees_with_itself_for_nothing(name: str) -> None:
    averager = Network([[0, 1]], "ring").averager(name, 3)
    np.testing.assert_array_equal(averager.operator, [[1.0]])
    assert averager.contraction == 0
    assert averager.model_times == (1.0 if name == "exact" else 0.0)


@pytest.mark.parametrize(
    ("name", "alpha", "field", "says"),
    [
        ("papre", 1, "averager", "did you mean 'paper'?"),
        ("paper", 0, "alpha", "at least 1"),
        ("paper", -3, "alpha", "at least 1"),
        ("chebyshev", 1.5, "alpha", "whole number"),
        ("exact", True, "alpha", "whole number"),
    ],
)
def test_bad_averagers_are_named(name: str, alpha: int, field: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        Network.ring(4).averager(name, alpha)
    assert error.value.field == field
    assert repr(alpha if field == "alpha" else name) in str(error.value)
    assert says in str(error.value)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=40, unique=True))
def test_leja_order_is_the_same_points_the_largest_first(points: list[float]) -> None:
    order = leja_order(points)
    assert sorted(order) == sorted(points)
    assert order[0] == max(points)


def test_leja_order_keeps_partial_products_small() -> None:
    """Why it is there: in the order of size the products between grow until nothing is left."""
    graph, shares = build_graph("path", 24), np.full(24, 1 / 24)
    leja = build_averager("finite-time", graph, shares)
    by_size = Averager(
        **{**vars(leja), "steps": tuple(sorted(leja.steps))}  # type: ignore[arg-type]
    )
    assert leja.amplification < 1e4 < by_size.amplification
    np.testing.assert_allclose(carried_out(leja), 1 / 24, atol=1e-10)


@given(networks(), names, st.integers(1, 5))
def test_amplification_bounds_what_rounding_does(network: Network, name: str, alpha: int) -> None:
    """An error made between two exchanges grows by no more than it says (weighted norm)."""
    averager, mt = network.averager(name, alpha), network.shares.cluster
    worst = 1.0
    for cut in range(averager.exchanges):
        after = np.eye(network.servers)
        for number in range(cut + 1, averager.exchanges):
            after = after @ averager.exchange(number)
        worst = max(worst, weighted_norm(after, mt))
    assert worst <= averager.amplification * (1 + 1e-6) + 1e-9
