"""The schemes: rows of one table, carried out by one loop.

A scheme is which servers there are, when they aggregate, how they agree, who takes part and where
models are uploaded to. To add one, add a row: `SCHEMES["mine"] = Scheme(...)`; see
examples/own_scheme.py. On a network, with what else the user chose, it is an `Algorithm`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.paces import FedAsync, FedBuff, Pace
from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import Destination
from sdfeel.network import Averager, Builder


@dataclass(frozen=True)
class Scheme:
    """A row of the table of schemes.

    servers    "edge": the network's own; "one": a single one (a cloud, or FEEL's edge server);
               "clients": none, every client is its own
    schedule   from the user's schedule to the scheme's
    averager   how the servers agree; None leaves it to the user
    uplink     where clients send their models, which decides what an upload costs
    drawn      clients drawn at random each round; None for all
    reach      "all" clients, or those of the first "cluster"
    pace       the scheme's own, whose numbers the user may change; None leaves it to the user
    each       each server's own model is evaluated, and the weighted mean taken of the numbers;
               else the weighted mean of the models is

    >>> own = sdfeel.Scheme("edge-all-reduce", "servers take the exact mean", averager="all-reduce")
    >>> sdfeel.train(model, data, network=network, steps=4, scheme=own).scheme
    'edge-all-reduce'
    """

    name: str
    summary: str
    servers: Literal["edge", "one", "clients"] = "edge"
    schedule: Callable[[Schedule], Schedule] = lambda schedule: schedule
    averager: str | Builder | None = None
    uplink: Destination = "server"
    drawn: int | None = None
    reach: Literal["all", "cluster"] = "all"
    pace: Pace | None = None
    each: bool = False


def _whole_round(schedule: Schedule) -> Schedule:
    """Return a schedule with one aggregation every tau = tau1 tau2 iterations."""
    if schedule.changes:
        return Schedule(tau1=lambda number: schedule.at(number).tau, tau2=1, alpha=1)
    return Schedule(tau1=schedule.tau, tau2=1, alpha=1)


def _every_step(schedule: Schedule) -> Schedule:
    return replace(schedule, tau1=1, tau2=1)


def _every_period(schedule: Schedule) -> Schedule:
    """Return a schedule with one exchange after every tau1 iterations."""
    return Schedule(schedule.tau1, 1, 1)


def no_exchange(graph: nx.Graph, shares: NDArray[np.float64], alpha: int) -> Averager:  # noqa: ARG001
    """Every server keeps what it has, at no cost."""
    nothing = np.zeros((len(shares), len(shares)))
    return Averager("none", "neighbours", shares, nothing, (), 1.0, 0.0)


_star = partial(Scheme, servers="one", schedule=_whole_round)
_alone = partial(Scheme, servers="clients", schedule=_every_period, uplink="nobody")

SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme("sd-feel", "edge servers average their clients and exchange with neighbours"),
        Scheme("hierfavg", "as sd-feel, with a cloud in place of the exchanges", averager="exact"),
        _star("fedavg", "a cloud averages all clients every tau1 tau2 steps", uplink="cloud"),
        _star(
            "feel",
            "one edge server that reaches the five clients of one cluster",
            drawn=5,
            reach="cluster",
        ),
        _star("feel-all", "one edge server that draws five of all clients each round", drawn=5),
        Scheme(
            "sync-sgd",
            "everyone is averaged at every step (Remark 3)",
            servers="one",
            schedule=_every_step,
            uplink="cloud",
        ),
        _star(
            "fedasync",
            "a cloud mixes in each client's model when it comes",
            uplink="cloud",
            pace=FedAsync(),
        ),
        _star(
            "fedbuff",
            "a cloud moves whenever ten clients have come",
            uplink="cloud",
            pace=FedBuff(),
        ),
        _alone(
            "d-psgd",
            "no servers: clients exchange with their neighbours every tau1 steps",
            averager="metropolis",
        ),
        _alone("local", "every client trains alone", averager=no_exchange, each=True),
    )
}
