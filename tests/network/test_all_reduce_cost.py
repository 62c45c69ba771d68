"""The cost of an all-reduce against simulations, message by message, of the two ways to do it."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import graphs

from sdfeel import Network
from sdfeel.network.averagers import CHUNKS


def ring_in_both_directions(servers: int) -> tuple[float, np.ndarray]:
    """Every model is cut in 2 x D chunks; one half travels clockwise, the other against it.

    In a slot every server sends one chunk each way. First D-1 slots in which partial sums travel,
    then D-1 in which the sums do. Returns model times, and who knows the sum of which chunk.
    """
    own = np.random.default_rng(0).normal(size=(servers, 2, servers))
    held = own.copy()
    for slot in range(2 * (servers - 1)):
        before = held.copy()
        for d in range(servers):
            for half, to in ((0, 1), (1, -1)):
                chunk = (d - to * slot) % servers
                receiver = (d + to) % servers
                if slot < servers - 1:
                    held[receiver, half, chunk] = (
                        before[d, half, chunk] + own[receiver, half, chunk]
                    )
                else:
                    chunk = (d + to - to * (slot - servers + 1)) % servers
                    held[receiver, half, chunk] = before[d, half, chunk]
    seconds = 2 * (servers - 1) / (2 * servers)
    return seconds, held - own.sum(axis=0)


@pytest.mark.parametrize("servers", [3, 4, 7, 10])
def test_all_reduce_on_a_ring(servers: int) -> None:
    seconds, error = ring_in_both_directions(servers)
    np.testing.assert_allclose(error, 0.0, atol=1e-12)  # everyone holds the sum of everything
    assert Network.ring(servers).averager("all-reduce").model_times == pytest.approx(seconds)


def test_all_reduce_on_a_ring_of_ten_costs_nine_tenths() -> None:
    assert Network.ring(10).averager("all-reduce").model_times == pytest.approx(0.9)


def pipelined_tree(tree: nx.Graph, root: int, chunks: int) -> int:
    """Slots until everyone has every sum. A slot moves one chunk over each link, each way.

    Up: a server passes a chunk on once it has it from all of its children. Down: once it has it.
    """
    parent = dict(nx.bfs_predecessors(tree, root))
    children: dict[int, list[int]] = {d: [] for d in tree}
    for child, above in parent.items():
        children[above].append(child)
    summed = dict.fromkeys(tree, 0)  # chunks 0..n-1 of the sum over this server's branch are here
    final = dict.fromkeys(tree, 0)  # chunks of the sum over everyone
    sent_up = dict.fromkeys(tree, 0)
    slots = 0

    def add_up() -> None:
        for d in tree:
            summed[d] = min([sent_up[c] for c in children[d]], default=chunks)
        final[root] = summed[root]

    add_up()
    while min(final.values()) < chunks:
        up = {d: sent_up[d] + 1 for d in parent if sent_up[d] < min(chunks, summed[d])}
        down = {d: final[d] + 1 for d in parent if final[d] < final[parent[d]]}
        sent_up |= up
        final |= down
        add_up()
        slots += 1
    return slots


@given(st.integers(2, 9).flatmap(graphs))
def test_all_reduce_over_a_tree_of_least_depth(graph: nx.Graph) -> None:
    servers = graph.number_of_nodes()
    if servers > 2 and all(degree == 2 for _, degree in graph.degree()):
        return  # a ring has its own way
    best = min(
        pipelined_tree(nx.bfs_tree(graph, root).to_undirected(), root, CHUNKS) for root in graph
    )
    averager = Network([[d] for d in range(servers)], graph).averager("all-reduce")
    assert averager.model_times == pytest.approx(best / CHUNKS)


@pytest.mark.parametrize(("name", "depth"), [("star", 1), ("full", 1), ("path", 5), ("partial", 2)])
def test_all_reduce_on_named_graphs(name: str, depth: int) -> None:
    times = Network.build(name, 10).averager("all-reduce").model_times
    assert times == pytest.approx((CHUNKS + 2 * depth - 1) / CHUNKS)


def test_exchanges_between_neighbours_cost_one_model_time_each() -> None:
    network = Network.ring(10)
    assert network.averager("paper", 5).model_times == 5
    assert network.averager("chebyshev", 3).model_times == 3
    assert network.averager("finite-time").model_times == 5
