"""What two nodes must have the same in their files: what the mathematics needs, and no more.

    edge and edge      the deployment's name, the edges and their links, tau1, tau2, alpha, the
                       averager, the pace with its settings, the server optimizer, the
                       correction, the codec between edges and the first model
    client and edge    the name; tau1, the seed and the name of the pace, from which steps and
                       batches follow; codecs up and down; the correction; the client's samples

Everything else may differ: how long training goes on, who the clients are, addresses, deadlines,
folders. Each node judges periods by its own plan (`check_done`). A field that only one program
knows must have the value that the other acts by.

The weights of the clusters follow from the clients. While two edges differ in them (a client was
added, and one of them has not got the new file yet), their link stays up and is not used: the
weighted mean that an exchange must keep would not be the same one at both ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from sdfeel.algorithm.methods.codecs import codec_table
from sdfeel.deploy.config import Deployment, ScheduleTable
from sdfeel.deploy.pace import name_of_pace
from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.topology import Topology

__all__ = ["SharedSettings", "check_done"]

LONGEST = 200  # characters of a value; longer ones are compared by their hash


class SharedSettings:
    """The fields of one node, to be told in its hello and compared with the other's."""

    def __init__(self, deployment: Deployment, fields: Mapping[str, tuple[Any, bool]]) -> None:
        self._deployment = deployment
        self._fields = {name: (_short(value), default) for name, (value, default) in fields.items()}

    @classmethod
    def of_clients(cls, deployment: Deployment) -> SharedSettings:
        fields = {"seed": (deployment.seed, deployment.seed == 0), **_schedule(deployment, "tau1")}
        pace = name_of_pace(deployment.pace)
        fields["pace"] = (pace, pace == "synchronous")
        fields |= _codecs(deployment, "up", "down")
        fields["correction"] = _correction(deployment)
        return cls(deployment, fields)

    @classmethod
    def of_edges(cls, topology: Topology, first_model: bytes) -> SharedSettings:
        deployment, names = topology.deployment, topology.at(0).edges
        links = sorted(f"{names[a]}-{names[b]}" for a, b in topology.at(0).network.graph.edges())
        fields: dict[str, tuple[Any, bool]] = {
            "edges": (" ".join(names), False),
            "graph": (" ".join(links), False),
            "model.initial": (first_model.hex()[:16], False),
        }
        fields |= _schedule(deployment, "tau1", "tau2", "alpha", "averager")
        fields["pace"] = (deployment.pace, name_of_pace(deployment.pace) == "synchronous")
        optimizer = deployment.server_optimizer
        fields["server_optimizer"] = (optimizer or "mean", optimizer is None)
        fields["correction"] = _correction(deployment)
        fields |= _codecs(deployment, "between")
        return cls(deployment, fields)

    def tell(self) -> list[v1.Setting]:
        """For a hello."""
        return [
            v1.Setting(name=name, value=value, is_default=default)
            for name, (value, default) in self._fields.items()
        ]

    def check(self, hello: v1.Hello) -> None:
        """Raises Refused with the first field that differs."""
        if hello.protocol != PROTOCOL:
            raise Refused("protocol", f"version {hello.protocol}, this is {PROTOCOL}")
        if hello.deployment != self._deployment.digest:
            raise Refused("deployment", f"another deployment; this is {self._deployment.name!r}")
        self._compare(hello.settings)

    def _compare(self, settings: Iterable[v1.Setting]) -> None:
        theirs = {field.name: (field.value, field.is_default) for field in settings}
        for name in sorted({*self._fields, *theirs}):
            mine, other = self._fields.get(name), theirs.get(name)
            if mine is None or other is None:
                known = mine or other
                if known is not None and not known[1]:
                    raise Refused("deployment", f"{name} = {known[0]!r} at one end, unknown there")
            elif mine[0] != other[0]:
                raise Refused("deployment", f"{name}: {mine[0]!r} here, {other[0]!r} there")


def _codecs(deployment: Deployment, *ways: str) -> dict[str, tuple[Any, bool]]:
    codecs = {way: getattr(deployment.codecs, way) for way in ways}
    return {f"codecs.{way}": (codec_table(codec), codec.exact) for way, codec in codecs.items()}


def _correction(deployment: Deployment) -> tuple[Any, bool]:
    """With the rates and the optimizer, from which it computes what a gradient has moved."""
    if deployment.correction is None:
        return "none", True
    value = f"{deployment.correction} with {deployment.lr}, {deployment.local.rule}"
    return value.replace("'", ""), False


def _schedule(deployment: Deployment, *names: str) -> dict[str, tuple[Any, bool]]:
    fields = {}
    for name in names:
        value = getattr(deployment.schedule, name)
        fields[f"schedule.{name}"] = (value, value == ScheduleTable.model_fields[name].default)
    return fields


def check_done(done: int, periods: int) -> None:
    """Raises Refused if somebody claims a period that is not in the own plan."""
    if done > periods:
        where = f"period {done}, the last one here is {periods}"
        raise Refused("period", f"{where}: `iterations` may be larger in the other file")


def _short(value: Any) -> str:
    text = str(value)
    if len(text) <= LONGEST:
        return text
    return f"{text[:40]}... ({hashlib.sha256(text.encode()).hexdigest()[:16]})"
