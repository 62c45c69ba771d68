"""What an edge says about itself: to neighbours, to clients and to an operator."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sdfeel.deploy.cluster.cluster import Cluster
from sdfeel.deploy.edge.carrier import Carrier
from sdfeel.deploy.facts.results import Results
from sdfeel.deploy.facts.stream import StatusFacts
from sdfeel.deploy.node import Node
from sdfeel.deploy.pace import name_of_pace
from sdfeel.deploy.peers.file_versions import FileVersions
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.trust.identity import Identity
from sdfeel.deploy.trust.lifetime import Lifetime
from sdfeel.deploy.trust.shared_settings import SharedSettings
from sdfeel.deploy.wire import frames

__all__ = ["Replies"]


def resident_bytes() -> int:
    """Memory of this process; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()


@dataclass(frozen=True)
class Replies:
    """Of one edge.

    life    the number of this life
    common  what neighbours must have the same
    seen    what has happened in this life
    """

    node: Node
    life: int
    common: SharedSettings
    lifetime: Lifetime
    carrier: Carrier
    cluster: Cluster
    links: Links
    files: FileVersions
    results: Results
    seen: StatusFacts

    def hello(self) -> v1.Hello:
        """To neighbours; they must also have begun with the same model."""
        return v1.Hello(
            protocol=PROTOCOL,
            name=self.node.name,
            deployment=self.node.topology.deployment.digest,
            done=self.carrier.done,
            incarnation=self.life,
            checkpoint=self.carrier.saver.number,
            settings=self.common.tell(),
            weights=self.node.topology.at(self.carrier.done).weights_digest,
        )

    def answer(self, hello: v1.Hello, caller: Identity | None) -> v1.Hello:
        """The same to whoever dialled, with a proof that our certificate is a good one."""
        answer = self.hello()
        for name, value in self.node.credentials.prove(hello.nonce, caller).items():
            setattr(answer, name, value)
        return answer

    def model(self) -> Iterator[v1.LinkMessage]:
        """The model of the last finished period, to be looked at elsewhere."""
        model, done = self.carrier.saver.durable, self.carrier.done
        yield v1.LinkMessage(model=frames.header(model, done, stage=v1.Stage.LENT))
        for chunk in frames.chunks(model):
            yield v1.LinkMessage(chunk=chunk)

    def status(self, nonce: bytes, caller: Identity | None) -> v1.StatusReply:
        value, carrier = self.node.metrics.value, self.carrier
        return v1.StatusReply(
            edge=self.node.name,
            period=carrier.done,
            periods=carrier.last,
            phase=self.phase,
            ready=carrier.is_ready,
            clients=sorted(self.cluster.sessions),
            expected=len(self.cluster.home),
            links=[
                v1.LinkStatus(
                    peer=peer,
                    up=link.up,
                    used=link.used,
                    skipped=link.skipped,
                    disagreement=value("sdfeel_disagreement", peer=peer),
                    sent=link.sent,
                    received=link.received,
                )
                for peer, link in self.links.items()
            ],
            seconds_per_period=carrier.period_seconds,
            disagreement=max((value("sdfeel_disagreement", peer=p) for p in self.links), default=0),
            refused=self.seen.refused,
            late=self.seen.late,
            measures=[v1.Measure(name=n, value=v) for n, v in self.results.last.items()],
            warnings=self.warnings,
            certificate_hours=self.lifetime.hours,
            phases=[v1.Measure(name=n, value=v) for n, v in carrier.times.round.items()],
            memory=resident_bytes(),
            pace=name_of_pace(self.node.topology.deployment.pace),
            steps=value("sdfeel_steps"),
            **self.node.credentials.prove(nonce, caller),
        )

    @property
    def phase(self) -> str:
        return "paused" if self.carrier.saver.problem else self.carrier.phase

    @property
    def warnings(self) -> list[str]:
        """What an operator should look at."""
        disk = self.carrier.saver.problem
        differ = [
            f"link to {peer}: the clients' samples differ in its deployment file; no model is "
            "exchanged until both have the same file"
            for peer, link in self.links.items()
            if link.differs
        ]
        few = self.carrier.averaging.warning(len(self.cluster.home))
        disks = [f"state disk: {disk}"] if disk else []
        barred = [
            f"edge {edge} has signed two states that contradict each other; its links are not used "
            "until it has a new certificate"
            for edge in sorted(self.links.barred)
        ]
        return [
            *disks,
            *differ,
            *self.files.warnings,
            *barred,
            *([few] if few else []),
            *self.lifetime.look(),
        ]
