"""What the clock predicts for a deployment: its network and schedule with a latency profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sdfeel.algorithm.costs import round_cost
from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import load_profile
from sdfeel.errors import InputError
from sdfeel.page.lanes import Box, shares
from sdfeel.page.timeline import boxes_of
from sdfeel.simulation.settings import Settings

if TYPE_CHECKING:
    from sdfeel.deploy.config import Deployment

__all__ = ["Prediction", "predicted"]

ROUNDS = 4  # over which unequal servers are averaged


@dataclass(frozen=True)
class Prediction:
    """Of a round, tau2 periods: seconds by part for each edge.

    seconds     of all together, as `sdfeel clock` has them
    link_bytes  over a link, both ways; like `seconds` None where there are no rounds
    """

    profile: str
    edges: Mapping[str, Mapping[str, float]]
    seconds: float | None
    link_bytes: float | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def predicted(deployment: Deployment, name: str) -> Prediction:
    """By a profile's name or file; its lists of rates are in the order of the deployment file."""
    from sdfeel.deploy.model.files import read_model
    from sdfeel.deploy.topology import Topology

    profile = load_profile(name)
    if profile.flops_per_step is None:
        raise InputError(
            "--profile", name, "says no flops_per_step, and nobody can count them here"
        )
    topology, table = Topology(deployment), deployment.schedule
    size = read_model(deployment.path(deployment.model.initial), constants=False).vector.size
    settings = Settings.of(
        {
            "schedule": Schedule(table.tau1, table.tau2, table.alpha),
            "averager": table.averager,
            "codecs": dict(deployment.codecs),
            "pace": deployment.pace,
        }
    )
    algorithm = settings.algorithm(topology.at(0).network, profile, size)
    has_rounds = "rounds" not in algorithm.pace.breaks
    periods, count = ROUNDS * table.tau2, dict.fromkeys(range(len(topology.at(0).edges)), 0)
    boxes: list[Box] = []
    for event in algorithm.events():
        boxes += boxes_of(event)
        count |= {group.server: count[group.server] + 1 for group in event.groups}
        if min(count.values()) >= periods:
            break
    parts = {}
    for number, edge in enumerate(topology.at(0).edges):
        boxes_of_edge = [box for box in boxes if box.lane == number]
        parts[edge] = shares(boxes_of_edge, len(boxes_of_edge) / table.tau2)
    if not has_rounds:
        return Prediction(profile.name, parts, None, None)
    links, cost = max(topology.at(0).network.graph.number_of_edges(), 1), round_cost(algorithm)
    return Prediction(profile.name, parts, cost.total, cost.bytes["between"] / links)
