"""The schemes: rows of one table, carried out by one loop.

A scheme is which servers there are, when they aggregate, how they agree, who takes part and where
models are uploaded to. To add one, add a row: `SCHEMES["mine"] = Scheme(...)`; see
examples/own_scheme.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from sdfeel.algorithm.participation import Participation
from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import Destination, EventClock, LatencyProfile, Uplink
from sdfeel.errors import InputError, closest
from sdfeel.network import AVERAGERS, Averager, Network

__all__ = ["SCHEMES", "Plan", "RoundCost", "Scheme", "plan_scheme"]


@dataclass(frozen=True)
class Scheme:
    """One row of the table.

    servers    "edge": the network's own; "one": a single one (a cloud, or FEEL's edge server)
    schedule   from the user's schedule to the scheme's
    averager   how the servers agree; None leaves it to the user
    uplink     where clients send their models, which decides what an upload costs
    drawn      clients drawn at random each round; None for all
    reach      "all" clients, or those of the first "cluster"
    """

    name: str
    summary: str
    servers: Literal["edge", "one"] = "edge"
    schedule: Callable[[Schedule], Schedule] = lambda schedule: schedule
    averager: str | None = None
    uplink: Destination = "server"
    drawn: int | None = None
    reach: Literal["all", "cluster"] = "all"


def _whole_round(schedule: Schedule) -> Schedule:
    """One aggregation every tau = tau1 tau2 iterations."""
    return Schedule(tau1=schedule.tau)


def _every_step(schedule: Schedule) -> Schedule:
    return replace(schedule, tau1=1, tau2=1)


SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme("sd-feel", "edge servers average their clients and exchange with neighbours"),
        Scheme("hierfavg", "as sd-feel, with a cloud in place of the exchanges", averager="exact"),
        Scheme(
            "fedavg",
            "a cloud averages all clients every tau1 tau2 steps",
            servers="one",
            schedule=_whole_round,
            uplink="cloud",
        ),
        Scheme(
            "feel",
            "one edge server that reaches the five clients of one cluster",
            servers="one",
            schedule=_whole_round,
            drawn=5,
            reach="cluster",
        ),
        Scheme(
            "feel-all",
            "one edge server that draws five of all clients each round",
            servers="one",
            schedule=_whole_round,
            drawn=5,
        ),
        Scheme(
            "sync-sgd",
            "everyone is averaged at every step (Remark 3)",
            servers="one",
            schedule=_every_step,
            uplink="cloud",
        ),
    )
}


@dataclass(frozen=True)
class Plan:
    """A scheme on a network whose data is known: all that the loop needs to know."""

    scheme: str
    network: Network  # the scheme's servers
    schedule: Schedule
    averager: Averager
    participation: Participation
    clock: EventClock

    def round_cost(self) -> RoundCost:
        """What one round with everyone present costs, by a clock of its own."""
        clock = EventClock(self.network, self.clock.uplink)
        everyone = replace(self.participation, beta=1.0).present(0)
        compute = upload = exchange = now = 0.0
        for k in range(1, self.schedule.tau + 1):
            clock.local_updates(1)
            compute, now = compute + clock.seconds(everyone) - now, clock.seconds(everyone)
            if self.schedule.is_intra(k):
                clock.upload(everyone)
                upload, now = upload + clock.seconds(everyone) - now, clock.seconds(everyone)
            if self.schedule.is_inter(k):
                clock.exchange(self.averager)
                exchange, now = exchange + clock.seconds(everyone) - now, clock.seconds(everyone)
        return RoundCost(compute, upload, exchange, now)


@dataclass(frozen=True)
class RoundCost:
    """Simulated seconds of one round and its parts."""

    compute: float
    upload: float
    exchange: float
    total: float


def plan_scheme(
    scheme: str | Scheme,
    network: Network,
    schedule: Schedule,
    *,
    profile: LatencyProfile,
    parameters: int,
    averager: str = "paper",
    participation: float = 1.0,
    seed: int = 0,
) -> Plan:
    """Resolve a row of the table on `network`, whose clients' sample counts are set."""
    if isinstance(scheme, str):
        if scheme not in SCHEMES:
            raise InputError("scheme", scheme, closest(scheme, SCHEMES))
        scheme = SCHEMES[scheme]
    if averager not in AVERAGERS:
        raise InputError("averager", averager, closest(averager, AVERAGERS))
    if scheme.servers == "edge":
        servers, agree = network, scheme.averager or averager
    else:  # nobody to agree with, and nothing to pay for it
        servers, agree = network.merged(), scheme.averager or "paper"
    own_schedule = scheme.schedule(schedule)
    uplink = Uplink.of(profile, network, parameters, scheme.uplink)
    return Plan(
        scheme=scheme.name,
        network=servers,
        schedule=own_schedule,
        averager=servers.averager(agree, own_schedule.alpha),
        participation=Participation(
            clients=network.clients,
            seed=seed,
            beta=participation,
            drawn=scheme.drawn,
            reach=network.clusters.members[0] if scheme.reach == "cluster" else None,
        ),
        clock=EventClock(servers, uplink),
    )
