"""What callers may ask of an edge: who is let in for what, and who answers."""

from __future__ import annotations

from dataclasses import dataclass

from sdfeel.deploy.cluster.cluster import Cluster
from sdfeel.deploy.edge.admission import Admission
from sdfeel.deploy.edge.replies import Replies
from sdfeel.deploy.facts import facts
from sdfeel.deploy.node import Node
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.shared_settings import SharedSettings, check_done
from sdfeel.deploy.wire.transport import Call, Caller, Serve, Stream

__all__ = ["Handlers"]


@dataclass(frozen=True)
class Handlers:
    """Of one edge.

    clients  what they must have the same in their files
    """

    node: Node
    clients: SharedSettings
    admission: Admission
    replies: Replies

    @property
    def edges(self) -> SharedSettings:
        return self.replies.settings

    @property
    def cluster(self) -> Cluster:
        return self.replies.cluster

    @property
    def streams(self) -> dict[Call, Serve]:
        return {Call.WORK: self._work, Call.LINK: self._link, Call.MODEL: self._model}

    async def _work(self, stream: Stream) -> None:
        with self.admission.admitted(stream, "client") as identity:
            hello = await self.admission.hello(stream)
            self.clients.check(hello)
            self.cluster.greet(hello, identity)
            await stream.write(v1.FromEdge(hello=self.replies.answer(hello, identity)))
            until = None if identity is None else identity.until
            await self.cluster.serve(hello, stream, until)

    async def _link(self, stream: Stream) -> None:
        with self.admission.admitted(stream, "edge") as identity:
            hello = await self.admission.hello(stream)
            if identity is not None and identity.name != hello.name:
                raise Refused("role", f"edge/{identity.name} calls as edge/{hello.name}")
            link = self.replies.links.get(hello.name)
            members = self.node.topology.at(self.replies.carrier.done)
            if link is None or members.leads(self.node.name, hello.name):
                raise Refused("not-allowed", f"edge {hello.name!r} has no link to dial here")
            self.check_neighbour(hello, hello.name)
            await stream.write(v1.LinkMessage(hello=self.replies.answer(hello, identity)))
            await link.serve(stream, hello, self.replies.carrier.states.all())

    def check_neighbour(self, hello: v1.Hello, name: str) -> None:
        """Raises Refused if these two must not work together."""
        self.edges.check(hello)
        check_done(hello.done, self.node.topology.plan(name))
        if hello.name != name:
            raise Refused("role", f"edge/{name} answers as {hello.name!r}")

    async def _model(self, stream: Stream) -> None:
        with self.admission.admitted(stream, "operator") as identity:
            hello = await self.admission.hello(stream)
            self.edges.check(hello)
            who = "" if identity is None else f"{identity.role}/{identity.name}"
            certificate = "" if identity is None else f"{identity.serial:x}"
            period = self.replies.carrier.done
            self.node.tell(facts.Exported(period=period, by=who, certificate=certificate))
            await stream.write(v1.LinkMessage(hello=self.replies.answer(hello, identity)))
            for message in self.replies.model():
                await stream.write(message)

    async def status(self, request: v1.StatusRequest, caller: Caller) -> v1.StatusReply:
        with self.admission.admitted(caller, "edge", "operator") as identity:
            return self.replies.status(request, identity)
