"""Ranks: the processes of a run that is spread over cores or machines, by torch.distributed.

`torchrun` (or `sdfeel run --ranks N`) starts them and tells each its number by environment
variables. Whole clusters live on a rank; the messages between ranks are tensors only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.errors import InputError, RunError
from sdfeel.network import Clusters

# How long a rank waits for a message: longer than any step, as uneven ranks wait for each other. A
# rank that dies is noticed at once, by its closed connections.
PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True)
class Placement:
    """Which servers, and so which clients, each rank holds: neighbouring numbers go together."""

    servers: tuple[tuple[int, ...], ...]
    clients: tuple[tuple[int, ...], ...]


def place(clusters: Clusters, ranks: int) -> Placement:
    """Whole clusters on ranks, in order, so that ranks hold about as many clients each."""
    if clusters.servers < ranks:
        raise InputError(
            "ranks",
            ranks,
            f"whole clusters are placed on ranks, and this scheme has {clusters.servers}: "
            "at most as many ranks",
        )
    ends = np.cumsum([len(members) for members in clusters.members])
    cuts = [0]
    for rank in range(1, ranks):
        nearest = int(np.argmin(np.abs(ends - ends[-1] * rank / ranks))) + 1
        # Each rank gets a server, and one is left for each that follows.
        cuts.append(min(max(nearest, cuts[-1] + 1), clusters.servers - (ranks - rank)))
    cuts.append(clusters.servers)
    servers = tuple(tuple(range(a, b)) for a, b in pairwise(cuts))
    clients = tuple(
        tuple(client for server in numbers for client in clusters.members[server])
        for numbers in servers
    )
    return Placement(servers, clients)


def join() -> tuple[int, int]:
    """The number of this process among the ranks that were started, and their number."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return 0, 1
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=PATIENCE)
    return dist.get_rank(), dist.get_world_size()


@dataclass(frozen=True, eq=False)
class Ranks:
    """The number of this process among all, which servers they hold, and what they exchange."""

    rank: int
    size: int
    placement: Placement

    @classmethod
    def of(cls, clusters: Clusters) -> Ranks:
        """The ranks that this process was started with; one if it was started alone."""
        rank, size = join()
        return cls(rank, size, place(clusters, size))

    @property
    def servers(self) -> list[int]:
        """The servers held here."""
        return list(self.placement.servers[self.rank])

    @property
    def clients(self) -> NDArray[np.int64]:
        """The clients held here, server by server."""
        return np.array(self.placement.clients[self.rank], dtype=np.int64)

    @cached_property
    def home(self) -> dict[int, int]:
        """Server -> the rank that holds it."""
        return {d: rank for rank, servers in enumerate(self.placement.servers) for d in servers}

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:
        """The tensor of rank `source`, at every rank."""
        if self.size > 1:
            with _lost():
                dist.broadcast(tensor, source)
        return tensor

    def total(self, number: float) -> float:
        """The sum over ranks, in their order."""
        if self.size == 1:
            return number
        parts = self.collect(torch.tensor([number], dtype=torch.float64))
        return float(sum(float(part) for part in parts))

    def agree(self, numbers: Sequence[int]) -> list[int]:
        """Return what the leading process says these numbers are."""
        agreed = self.broadcast(torch.tensor(list(numbers), dtype=torch.int64))
        return [int(number) for number in agreed]

    def collect(self, tensor: Tensor) -> list[Tensor]:
        """Return the small tensors (of one shape) of all ranks, at every rank."""
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        with _lost():
            dist.all_gather(parts, tensor)
        return parts

    def in_client_order(self, digests: bytes) -> bytes:
        """Put digests of 32 bytes, one for each client held here, together for all clients."""
        if self.size == 1:
            return digests
        clients = sum(len(clients_of_rank) for clients_of_rank in self.placement.clients)
        whole = torch.zeros(clients, 32, dtype=torch.int32)
        mine = torch.tensor(self.placement.clients[self.rank])
        whole[mine] = torch.tensor(list(digests), dtype=torch.int32).view(-1, 32)
        parts = self.collect(whole)
        return bytes(torch.stack(parts).sum(dim=0).flatten().tolist())

    def exchange(
        self, out: Sequence[tuple[int, Tensor]], into: Sequence[tuple[int, Tensor]]
    ) -> None:
        """Send tensors to ranks and receive others from ranks, all at the same time."""
        operations = [dist.P2POp(dist.isend, tensor, rank) for rank, tensor in out]
        operations += [dist.P2POp(dist.irecv, tensor, rank) for rank, tensor in into]
        if not operations:
            return
        with _lost():
            for request in dist.batch_isend_irecv(operations):
                request.wait()

    def chain(self, matrix: Tensor) -> Tensor:
        """Add up the rows of all ranks, from the first rank to the last: the same bits always.

        The rows of `matrix` are added one by one to what comes from the rank before.
        """
        running = torch.zeros(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
        if self.rank > 0:
            self.exchange([], [(self.rank - 1, running)])
        for row in matrix:
            running += row
        if self.rank < self.size - 1:
            self.exchange([(self.rank + 1, running)], [])
        return self.broadcast(running, self.size - 1)

    def gather(self, rows_here: Tensor, of: Literal["servers", "clients"]) -> Tensor:
        """Return the rows of all ranks at the first one, in their order; elsewhere those given."""
        if self.size == 1:
            return rows_here.clone()
        if not self.leads:
            self.exchange([(0, rows_here.contiguous())], [])
            return rows_here
        rows = [len(numbers) for numbers in getattr(self.placement, of)]
        parts = [
            torch.empty(count, *rows_here.shape[1:], dtype=rows_here.dtype) for count in rows[1:]
        ]
        self.exchange([], list(enumerate(parts, start=1)))
        return torch.cat([rows_here, *parts])

    def part(self, rows: Tensor, of: Literal["servers", "clients"]) -> Tensor:
        """Return those of all rows, in their order, that this rank holds."""
        if self.size == 1:
            return rows.clone()
        counts = [len(numbers) for numbers in getattr(self.placement, of)]
        begin = sum(counts[: self.rank])
        return rows[begin : begin + counts[self.rank]].clone()


@contextmanager
def _lost() -> Iterator[None]:
    """Turn a broken connection into words."""
    try:
        yield
    except RuntimeError as problem:
        raise RunError(
            "another rank was lost, so the job ends here; start it again with --resume to go "
            f"on from the last checkpoint ({str(problem).splitlines()[0][:120]})"
        ) from None
