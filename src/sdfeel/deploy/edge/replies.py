"""What an edge says about itself: to neighbours, to clients and to an operator."""

from __future__ import annotations

import datetime
import math
import resource
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sdfeel.deploy.cluster.cluster import Cluster
from sdfeel.deploy.edge.carrier import Carrier
from sdfeel.deploy.facts.concern import Concern
from sdfeel.deploy.facts.results import Results
from sdfeel.deploy.facts.stream import Recent
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

MEMBER_BYTES = 64 * 1024  # of what an operator is told of clients
DIFFER = (
    "the clients' samples differ in its deployment file; no model is exchanged until both have the "
    "same file"
)
BARRED = (
    "has signed two states that contradict each other; its links are not used until it has a new "
    "certificate"
)


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

    settings  what neighbours must have the same
    """

    node: Node
    settings: SharedSettings
    lifetime: Lifetime
    carrier: Carrier
    files: FileVersions
    results: Results

    @property
    def links(self) -> Links:
        return self.carrier.links

    @property
    def cluster(self) -> Cluster:
        return self.carrier.cluster

    def hello(self) -> v1.Hello:
        """To neighbours; they must also have begun with the same model."""
        return v1.Hello(
            protocol=PROTOCOL,
            name=self.node.name,
            deployment=self.node.deployment.digest,
            done=self.carrier.done,
            incarnation=self.node.life,
            checkpoint=self.carrier.saver.number,
            settings=self.settings.tell(),
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

    def status(self, request: v1.StatusRequest, caller: Identity | None) -> v1.StatusReply:
        """To an operator, who may know the facts until number `since` of this life."""
        value, carrier = self.node.metrics.value, self.carrier
        since = request.since if request.life == self.node.life else 0
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
            refused=int(value("sdfeel_uploads_total", verdict="refused")),
            late=int(value("sdfeel_uploads_total", verdict="late")),
            measures=_measures(self.results.last),
            warnings=[
                v1.Warning(kind=warning.kind, about=warning.about, text=warning.text)
                for warning in self.warnings
            ],
            certificate_hours=self.lifetime.hours,
            phases=_measures(carrier.times.round),
            memory=resident_bytes(),
            pace=name_of_pace(self.node.deployment.pace),
            steps=value("sdfeel_steps"),
            life=self.node.life,
            now=time.time(),
            facts=_facts(self.node.recent, since),
            members=self._members(),
            **self.node.credentials.prove(request.nonce, caller),
        )

    def _members(self) -> list[v1.Member]:
        """Return the connected clients, as many as there is room for."""
        now, room = datetime.datetime.now(datetime.UTC), MEMBER_BYTES
        members: list[v1.Member] = []
        for name, session in sorted(self.cluster.sessions.items()):
            left = math.inf if session.until is None else (session.until - now).total_seconds()
            claims = _measures(self.results.claims.get(name, {}))
            is_guest = name not in self.cluster.home
            hours = left / 3600
            member = v1.Member(name=name, guest=is_guest, certificate_hours=hours, measures=claims)
            room -= member.ByteSize()
            if room < 0:
                break
            members.append(member)
        return members

    @property
    def phase(self) -> str:
        return "paused" if self.carrier.saver.problem else self.carrier.phase

    @property
    def warnings(self) -> list[Concern]:
        """What an operator should look at."""
        disk = self.carrier.saver.problem
        few = self.carrier.averaging.warning(len(self.cluster.home))
        differing = [peer for peer, link in self.links.items() if link.differs]
        return [
            *([Concern("disk", f"state disk: {disk}")] if disk else []),
            *(Concern("samples", f"link to {peer}: {DIFFER}", peer) for peer in differing),
            *self.files.warnings,
            *(Concern("barred", f"edge {e} {BARRED}", e) for e in sorted(self.links.barred)),
            *([Concern("few-clients", few)] if few else []),
            *self.lifetime.look(),
        ]


def _measures(values: Mapping[str, float]) -> list[v1.Measure]:
    return [v1.Measure(name=name, value=value) for name, value in values.items()]


def _facts(recent: Recent, since: int) -> list[v1.Fact]:
    return [
        v1.Fact(
            number=note.number,
            time=note.time,
            kind=type(note.fact).__name__,
            fields=fields,
            count=note.count,
        )
        for note, fields in recent.since(since)
    ]
