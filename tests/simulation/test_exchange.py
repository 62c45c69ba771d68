"""Exchanges spread over ranks: the same bits, whichever servers a rank never hears of."""

from __future__ import annotations

import threading
from dataclasses import replace
from queue import Queue
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from worlds import networks

from sdfeel import Averager, Network
from sdfeel.simulation.exchange import exchanged
from sdfeel.simulation.ranks import Ranks, place


class Queues:
    """What ranks send each other where they are threads of this process: a queue for every pair."""

    def __init__(self, size: int) -> None:
        self.queues = {(a, b): Queue[Tensor]() for a in range(size) for b in range(size)}


class Thread(Ranks):
    """A rank that is a thread."""

    queues: Queues

    def exchange(self, out: Any, into: Any) -> None:
        for rank, tensor in out:
            self.queues.queues[self.rank, rank].put(tensor.clone())
        for rank, tensor in into:
            tensor.copy_(self.queues.queues[rank, self.rank].get(timeout=30))


def spread(averager: Averager, network: Network, models: Tensor, size: int) -> Tensor:
    """The models of all servers, each as its rank has it after the exchanges."""
    placement, queues = place(network.clusters, size), Queues(size)
    among = list(averager.among or range(network.servers))
    found: dict[int, Tensor] = {}

    def work(rank: int) -> None:
        own = Thread(rank, size, placement)
        object.__setattr__(own, "queues", queues)
        mine = [server for server in among if server in own.servers]
        found[rank] = exchanged(averager, models[mine], own)

    workers = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    return torch.cat([found[rank] for rank in range(size)])


def check(network: Network, exchanges: int, size: int, averager: Averager | None = None) -> None:
    models = torch.randn(network.servers, 301, generator=torch.Generator().manual_seed(0))
    # With two servers the mean would be taken at once.
    averager = averager or replace(network.averager("metropolis", exchanges), contraction=1.0)
    among = list(averager.among or range(network.servers))
    one = Ranks(0, 1, place(network.clusters, 1))
    alone = exchanged(averager, models[among], one)
    assert torch.equal(alone, spread(averager, network, models, size))


def swap(network: Network, server: int) -> Averager:
    """One server mixes with its neighbours alone."""
    among = sorted([server, *network.neighbours(server)])
    own, others = among.index(server), [n for n, d in enumerate(among) if d != server]
    weights = np.zeros((len(among), len(among)))
    weights[others, own], weights[own, others] = 0.2, 0.1
    A = np.diag(weights.sum(axis=0)) - weights
    shares = network.shares.cluster[among]
    return Averager("swap", "neighbours", shares, A, (1.0,), 1.0, 1.0, among=tuple(among))


@given(networks(min_servers=2), st.integers(1, 3), st.data())
def test_any_number_of_ranks_gives_the_same_bits(
    network: Network, exchanges: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(2, network.servers))
    check(network, exchanges, size)
    check(network, 1, size, swap(network, data.draw(st.integers(0, network.servers - 1))))


@pytest.mark.parametrize("servers", [15, 16, 17])
@pytest.mark.parametrize("graph", ["path", "ring", "star"])
def test_below_and_above_where_products_of_matrices_end(graph: str, servers: int) -> None:
    check(Network.build(graph, servers), 2, 4)
