"""Exchanges spread over ranks: the same bits, whichever servers a rank never hears of."""

from __future__ import annotations

import threading
from queue import Queue
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from worlds import networks

from sdfeel import Network
from sdfeel.simulation.exchange import Exchanges, Routes
from sdfeel.simulation.ranks import Ranks, place


class Threads:
    """Ranks as threads of this process, with a queue for every pair."""

    def __init__(self, size: int) -> None:
        self.queues = {(a, b): Queue[Tensor]() for a in range(size) for b in range(size)}

    def rank(self, number: int) -> Any:
        outer = self

        class One:
            def exchange(self, out: Any, into: Any) -> None:
                for rank, tensor in out:
                    outer.queues[number, rank].put(tensor.clone())
                for rank, tensor in into:
                    tensor.copy_(outer.queues[rank, number].get(timeout=30))

        return One()


def spread(network: Network, models: Tensor, exchanges: int, size: int) -> Tensor:
    placement, threads = place(network.clusters, size), Threads(size)
    P = network.averager("metropolis", 1).exchange(0)
    found: dict[int, Tensor] = {}

    def work(rank: int) -> None:
        routes = Routes.find(network, placement, rank)
        own = Exchanges(routes, threads.rank(rank), models[list(placement.servers[rank])])
        for _ in range(exchanges):
            own.step(P)
        found[rank] = own.models

    workers = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    return torch.cat([found[rank] for rank in range(size)])


def check(network: Network, exchanges: int, size: int) -> None:
    models = torch.randn(network.servers, 301, generator=torch.Generator().manual_seed(0))
    alone = Exchanges(Routes.find(network, place(network.clusters, 1), 0), Ranks(0, 1), models)
    for _ in range(exchanges):
        alone.step(network.averager("metropolis", 1).exchange(0))
    assert torch.equal(alone.models, spread(network, models, exchanges, size))


@given(networks(min_servers=2), st.integers(1, 3), st.data())
def test_any_number_of_ranks_gives_the_same_bits(
    network: Network, exchanges: int, data: st.DataObject
) -> None:
    check(network, exchanges, data.draw(st.integers(2, network.servers)))


@pytest.mark.parametrize("servers", [15, 16, 17])
@pytest.mark.parametrize("graph", ["path", "ring", "star"])
def test_below_and_above_where_products_of_matrices_end(graph: str, servers: int) -> None:
    check(Network.build(graph, servers), 2, 4)
