"""What no single field of a deployment file can tell: names, deadlines and what goes together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sdfeel.algorithm.methods.exchanges import EXCHANGES, Clipped, Exchange
from sdfeel.deploy.methods import check_methods
from sdfeel.deploy.pace import check_pace
from sdfeel.errors import InputError, closest
from sdfeel.network import AVERAGERS, route_of

if TYPE_CHECKING:
    from sdfeel.deploy.config import Deployment, ScheduleTable

__all__ = ["check_deployment"]

HIDING = ("all-reduce", "finite-time", "chebyshev")  # not for edges that may lie
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def check_deployment(deployment: Deployment) -> None:
    """Raises InputError, naming the field, unless all fields fit together."""
    edges = [edge.name for edge in deployment.edges]
    clients = [client.name for client in deployment.clients]
    for kind, names in (("edges", edges), ("clients", clients)):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise InputError(kind, twice, "every name may appear once")
    for client in deployment.clients:
        for name in (client.edge, *client.fallbacks):
            if name not in edges:
                raise InputError(f"clients.{client.name}", name, closest(name, edges))
    for name in edges:
        if not any(client.edge == name for client in deployment.clients):
            raise InputError(f"edges.{name}", [], "an edge needs a client of its own at least")
    _check_averager(deployment.schedule.averager, deployment.trust, deployment.audit)
    _check_schedule(deployment.schedule)
    check_pace(deployment)
    check_methods(deployment)
    deployment.lr  # noqa: B018 - or what is wrong with it
    if deployment.deadlines.exchange <= deployment.deadlines.round:
        raise InputError(
            "deadlines.exchange",
            deployment.deadlines.exchange,
            f"must exceed deadlines.round ({deployment.deadlines.round}): a neighbour may wait for "
            "its clients that long before it can exchange",
        )
    if deployment.security.plaintext:
        for edge in deployment.edges:
            for address in (edge.address, edge.listen or edge.address):
                if address.rpartition(":")[0] not in LOOPBACK:
                    raise InputError(
                        f"edges.{edge.name}",
                        address,
                        "plain text is for loopback only; remove security.plaintext",
                    )


def _check_averager(averager: str | Exchange, trust: str, audit: bool) -> None:
    if isinstance(averager, Exchange):
        keeps_mean = isinstance(averager, Clipped) and averager.ends == "both"
        if audit and not keeps_mean:
            remedy = f"an audit adds up the weighted mean, which {averager} does not keep"
            raise InputError("audit", audit, remedy)
        return
    if averager not in AVERAGERS:
        known = [name for name in (*AVERAGERS, *EXCHANGES) if name != "exact"]
        raise InputError("schedule.averager", averager, closest(averager, known))
    if route_of(averager) == "cloud":
        raise InputError(
            "schedule.averager",
            averager,
            "needs a cloud, and a deployment has none: all-reduce or finite-time give the same "
            "mean between neighbours",
        )
    if trust == "members" and averager in HIDING:
        remedy = (
            "hides or enlarges the models of neighbours, so one edge that lies decides for all: "
            "clipped looks at each, paper and metropolis take each by itself; trust = 'edges' "
            "vouches for every edge"
        )
        raise InputError("schedule.averager", averager, remedy)


def _check_schedule(schedule: ScheduleTable) -> None:
    if schedule.iterations % (schedule.tau1 * schedule.tau2):
        raise InputError(
            "schedule.iterations",
            schedule.iterations,
            f"must be a multiple of tau1*tau2 = {schedule.tau1 * schedule.tau2}",
        )
