"""Eq. (5) for the servers of one rank. Only models between neighbours cross ranks.

A rank sends the models of its servers to just those ranks that hold a neighbour of them. Sums are
taken in server order, so any number of ranks gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.methods.method import Floats, Told
from sdfeel.network import Averager
from sdfeel.simulation.ranks import Ranks

# Up to so many servers an exchange is one product of matrices; beyond, most weights are zero.
FEW = 16


@dataclass(frozen=True)
class Routes:
    """The models that each rank needs in an exchange: the same in all exchanges of an averager.

    known    places, among the servers that take part, that a rank has a row for
    mine     where its own servers are among them
    out      other rank -> rows of what it is sent
    into     other rank -> the rows that it fills
    product  whether an exchange is a product of matrices. Then every rank has a row for every
             server, zero where it is far: a product of other sizes would be added up in another
             order
    """

    known: tuple[int, ...]
    mine: slice
    out: dict[int, slice | list[int]]
    into: dict[int, slice]
    product: bool

    @classmethod
    @lru_cache(64)
    def find(cls, averager: Averager, ranks: Ranks) -> Routes:
        """Find the routes of an averager for this rank."""
        servers = averager.among or range(len(averager.shares))
        support = averager.generator != 0
        near = [
            set(np.flatnonzero(support[:, d] | support[d]).tolist()) for d in range(len(servers))
        ]
        places: list[list[int]] = [[] for _ in range(ranks.size)]
        for place, server in enumerate(servers):
            places[ranks.home[server]].append(place)
        mine, coming, going = places[ranks.rank], dict[int, list[int]](), dict[int, list[int]]()
        for other, theirs in enumerate(places):
            needed = [j for j in theirs if not near[j].isdisjoint(mine)]
            if other != ranks.rank and needed:  # a link has two ends: then something is sent too
                coming[other] = needed
                going[other] = [j for j in mine if not near[j].isdisjoint(theirs)]
        is_product = len(servers) <= FEW
        known = list(range(len(servers)))
        if not is_product:
            places_of = {**coming, ranks.rank: mine}
            known = [j for other in range(ranks.size) for j in places_of.get(other, ())]
        row_of = {place: row for row, place in enumerate(known)}

        def span(listed: Sequence[int]) -> slice:
            return slice(row_of[listed[0]], row_of[listed[-1]] + 1) if listed else slice(0, 0)

        # A span has rows of every server in it: what lies between two that are sent is sent along.
        out: dict[int, slice | list[int]] = {
            other: span(sent) if is_product else [row_of[j] for j in sent]
            for other, sent in going.items()
        }
        into = {other: span(places_of_rank) for other, places_of_rank in coming.items()}
        return cls(tuple(known), span(mine), out, into, is_product)

    @cached_property
    def far(self) -> list[int]:
        """Rows of a product that a rank never hears of."""
        slices = [self.mine, *self.into.values()]
        there = {row for part in slices for row in range(part.start, part.stop)}
        return [row for row in range(len(self.known)) if self.product and row not in there]


def exchanged(
    averager: Averager,
    models: Tensor,
    ranks: Ranks,
    shown: Callable[[Tensor, int], Tensor] | None = None,
) -> Tensor:
    """Eq. (5): the models of the servers held here that take part, after all exchanges.

    Where the averager reaches the weighted mean it is taken at once: no rounding is enlarged.

    Args:
        averager: how they exchange.
        models: of the servers held here that take part, in their order.
        ranks: where the others are.
        shown: what neighbours hold of models in an exchange, where a codec rounds. With x these,
            w <- w + (x P - x): both ends of a link apply the same difference with opposite sign,
            so the weighted mean stays where it is whatever the codec rounds off.
    """
    routes = Routes.find(averager, ranks)
    if shown is None and averager.contraction == 0.0:
        return _mean(averager, models, routes, ranks).to(models.dtype)
    now = models.new_zeros(len(routes.known), models.shape[1], dtype=torch.float64)
    after, result = torch.empty_like(now), models.double()
    now[routes.mine] = models
    for number in range(averager.exchanges):
        if shown is not None:
            now[routes.mine] = x = shown(result.to(models.dtype), number).double()
        if averager.route == "neighbours":
            _exchange_once(averager.exchange(number), now, after, routes, ranks)
        else:
            after[routes.mine] = _mean(averager, now[routes.mine], routes, ranks)
        if shown is not None:
            result += after[routes.mine] - x
        now, after = after, now
    return (now[routes.mine] if shown is None else result).to(models.dtype)


def _exchange_once(
    P: NDArray[np.float64], now: Tensor, after: Tensor, routes: Routes, ranks: Ranks
) -> None:
    """Every server takes the models of its neighbours as they were before: `now`, into `after`."""
    out = [(rank, now[rows]) for rank, rows in routes.out.items()]
    ranks.exchange(out, [(rank, now[rows]) for rank, rows in routes.into.items()])
    if routes.product:
        weights = torch.from_numpy(np.ascontiguousarray(P.T)).to(now.device)
        torch.mm(weights, now, out=after)
        after[routes.far] = 0.0  # what comes of them there is the model of no server
        return
    columns = P[list(routes.known)][:, list(routes.known[routes.mine])].T
    for mixed, weights_of in zip(after[routes.mine], columns, strict=True):
        first, *others = (int(j) for j in np.flatnonzero(weights_of))
        torch.mul(now[first], float(weights_of[first]), out=mixed)
        for j in others:
            mixed.add_(now[j], alpha=float(weights_of[j]))


def _mean(averager: Averager, models: Tensor, routes: Routes, ranks: Ranks) -> Tensor:
    """The weighted mean of all servers, for each of those held here."""
    shares = torch.from_numpy(averager.shares[list(routes.known[routes.mine])])
    mean = ranks.chain(shares[:, None].to(models.device) * models.double())
    return mean.repeat(len(models), 1)


def mixed(
    models: Floats,
    told: Told,
    rows: Mapping[str, object],  # noqa: ARG001 - as the hook `exchange` has it
    averager: Averager,
    number: int,
) -> Floats:
    """Eq. (5) once, with what each server is told by each neighbour."""
    P = averager.exchange(number)
    after = np.zeros_like(models)
    for j, d in zip(*np.nonzero(P), strict=True):
        heard = models[d] if j == d else told(int(j), int(d))[0]
        after[d] += P[j, d] * heard
    return after
