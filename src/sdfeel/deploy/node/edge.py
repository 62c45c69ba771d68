"""The edge server: serves its clients, exchanges with its neighbours, survives what happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.exchange.decision import Decider
from sdfeel.deploy.exchange.mixer import Mixer
from sdfeel.deploy.link import rpc
from sdfeel.deploy.link.dialler import Dialler
from sdfeel.deploy.link.link import Link
from sdfeel.deploy.link.link_states import LinkStates
from sdfeel.deploy.model import wire
from sdfeel.deploy.model.files import read_model
from sdfeel.deploy.model.store import Checkpoint, Store
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.node.adoption import Adopter
from sdfeel.deploy.node.cluster import Cluster
from sdfeel.deploy.node.recorder import Recorder
from sdfeel.deploy.node.rounds import Rounds
from sdfeel.deploy.observe.logs import Log, Sink
from sdfeel.deploy.observe.metrics import Metrics, serve_http
from sdfeel.deploy.observe.results import Results
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.agreement import Agreement
from sdfeel.deploy.trust.identity import Credentials, Identity, check, identify, server_options
from sdfeel.deploy.trust.lifetime import Lifetime
from sdfeel.deploy.trust.namesakes import Namesakes
from sdfeel.deploy.waiting import Bell
from sdfeel.errors import InputError

__all__ = ["EdgeServer"]

WATCH_SECONDS = 0.5


class EdgeServer:
    """One edge of a deployment. `run` returns when all periods are done."""

    def __init__(
        self,
        deployment: Deployment,
        name: str,
        state: Path,
        log: Sink | None = None,
        out: Path | None = None,
    ) -> None:
        self.deployment, self.name = deployment, name
        self.me = deployment.edge(name)
        self.topology = Topology(deployment)
        self.log = Log(name, log)
        self.metrics = Metrics()
        self.metrics.log_lost.set_function(lambda: self.log.lost)
        self.credentials = Credentials(deployment, "edge", name)
        self.lifetime = Lifetime(self.credentials, self.log, self.metrics)
        self.bell = Bell()
        model, done, found = self._restore(state, out)
        size = model.size
        self.cluster = Cluster(name, self.topology, size, state, self.bell, self.log, self.metrics)
        self.links = {
            peer: Link(peer, size, state, self.bell, self.log, self.metrics)
            for peer in self.topology.neighbours(name)
        }
        self.states = LinkStates(name, self.links)
        for peer, link in self.links.items():
            link.others = self.links
            link.weights = self.topology.weights_digest
            if found is not None and peer in found.links:
                link.memory.load(found.links[peer], found.changes)
            for key, doubt in link.memory.doubts.items():
                for child in doubt.children:
                    self.links[child].deciding.add(key)  # it is told with us
            link.on_wanted = lambda link=link: self._lend(link)  # type: ignore[misc]
            link.on_state = lambda state, peer=peer: self.states.take(state, peer)  # type: ignore[misc]
        patience = deployment.deadlines.exchange
        mixer = Mixer(
            name,
            self.topology,
            self.links,
            state,
            Decider(self.bell, self.log, patience),
            self.log,
            self.metrics,
            self.states,
        )
        adopter = Adopter(self.links, self.bell, self.log, self.topology.periods, patience)
        self.rounds = Rounds(
            deployment,
            self.topology,
            self.store,
            model,
            done,
            self.cluster,
            self.links,
            mixer,
            self.bell,
            self.log,
            self.metrics,
            adopter if found is None else None,
        )
        self.results = Results(
            self.topology.tau1,
            self.topology.periods,
            deployment.evaluate_every,
            self.topology.weights,
            self.log,
            self.metrics,
        )
        self.cluster.on_upload = lambda client, about: self.results.report(client, about.measures)
        self.rounds.on_period = self.results.take
        self.recorder = Recorder(
            self.topology, name, self.results, self.log, out, lambda: self.model, self._first
        )
        self._incarnation = time.time_ns()
        self._namesakes = Namesakes()
        self._identities: dict[asyncio.Task[Any], Identity] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._http: ThreadingHTTPServer | None = None

    def _restore(self, state: Path, out: Path | None) -> tuple[Vector, int, Checkpoint | None]:
        """From the own checkpoint; else the model that everybody starts from."""
        initial = self.deployment.path(self.deployment.model.initial)
        self._first = first = read_model(initial, constants=out is not None)
        model = first.vector
        most = self.deployment.limits.values
        if model.size > most:
            raise InputError("limits.values", most, f"the first model has {model.size} values")
        self._with_edges = Agreement.of_edges(self.topology, model.sha256)
        self._with_clients = Agreement.of_clients(self.deployment)
        self.store = Store.of(self.deployment, self.name, state, first)
        self.store.acquire()
        found, problems = self.store.load(model.size)
        for problem in problems:
            self.log("checkpoint-damaged", reason=problem)
        if found is None:
            self.log("fresh-start", values=model.size)
            return model, 0, None
        self.log("resumed", period=found.done)
        return found.model, found.done, found

    # Starting and stopping.

    async def start(self) -> None:
        """Listens, dials the neighbours behind it in the file, and serves metrics."""
        deadlines = self.deployment.deadlines
        self._server = grpc.aio.server(
            options=server_options(deadlines.ping, wire.MESSAGE_BYTES),
            maximum_concurrent_rpcs=self.deployment.limits.connections + 64,
        )
        self._server.add_generic_rpc_handlers(rpc.handlers(self._work, self._link, self._status))
        address = self.me.listen or self.me.address
        self._listen(address)
        await self._server.start()
        self._spawn(self._watch())
        for peer, link in self.links.items():
            if self.topology.leads(self.name, peer):
                dialler = Dialler(
                    self.deployment, self.name, self.credentials, link, self._hello, self.states.all
                )
                self._spawn(dialler.run())
        self.log("listening", address=address, secure=not self.credentials.plaintext)

    def _listen(self, address: str) -> None:
        """On both ports; InputError names the one that cannot be had."""
        field = "listen" if self.me.listen else "address"
        try:
            if self.credentials.plaintext:
                self._server.add_insecure_port(address)
            else:
                self._server.add_secure_port(address, self.credentials.server())
            field = "metrics"
            if self.me.metrics:
                self._http = serve_http(
                    self.me.metrics, self.metrics, lambda: True, lambda: bool(self.cluster.sessions)
                )
        except (RuntimeError, OSError) as problem:
            self.store.release()
            place = self.me.metrics if field == "metrics" else address
            reason = f"nobody can listen there, or somebody does already: {problem}"
            raise InputError(f"edges.{self.name}.{field}", place, reason) from None

    def _spawn(self, work: Any) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.stop(grace=0.2)
        await self.rounds.settle()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
        self.store.release()
        self.log("stopped", period=self.done)

    async def run(self) -> None:
        """All periods, from the last one that is durable."""
        await self.recorder.start(self.done)
        try:
            await self.rounds.run()
        finally:
            await self.recorder.finish(self.done)

    @property
    def model(self) -> Vector:
        return self.rounds.model

    @property
    def done(self) -> int:
        """The last period that is finished and durable."""
        return self.rounds.done

    @property
    def phase(self) -> str:
        return "paused" if self.rounds.disk.problem else self.rounds.phase

    def _hello(self) -> v1.Hello:
        """To neighbours; they must also have begun with the same model."""
        return v1.Hello(
            protocol=wire.PROTOCOL,
            name=self.name,
            deployment=self.deployment.digest,
            done=self.done,
            incarnation=self._incarnation,
            settings=self._with_edges.tell(),
            weights=self.topology.weights_digest,
        )

    def _answer(self, hello: v1.Hello, caller: Identity | None) -> v1.Hello:
        """The same to whoever dialled, with a proof that our certificate is a good one."""
        answer = self._hello()
        for name, value in self.credentials.prove(hello.nonce, caller).items():
            setattr(answer, name, value)
        return answer

    async def _watch(self) -> None:
        """Ends streams whose certificate has run out or was revoked; keeps link states fresh."""
        while True:
            self.lifetime.look()
            self.states.refresh()
            self.metrics.links.set(sum(link.up for link in self.links.values()))
            for task, identity in list(self._identities.items()):
                try:
                    check(identity, self.credentials)
                except wire.Refused as refusal:
                    self._refuse_peer(refusal)
                    task.cancel()
            loop = asyncio.get_running_loop()
            now = loop.time()
            await self.bell.until(self._links_changed, lambda now=now: now + WATCH_SECONDS)  # type: ignore[misc]

    def _links_changed(self) -> bool:
        return self.states.is_stale

    def _lend(self, link: Link) -> None:
        """To a neighbour that has no checkpoint: what is on our disk."""
        if self.done:
            link.lend(self.model, self.done)

    def _refuse_peer(self, refusal: wire.Refused) -> None:
        self.metrics.refused.labels(refusal.kind).inc()
        self.log("peer-refused", kind=refusal.kind, reason=refusal.reason)

    def handshake_refused(self, reason: str, count: int, detail: str) -> None:
        """What `handshakes` found out: callers that never came as far as a call."""
        self.metrics.handshakes.labels(reason).inc(count)
        self.log("handshake-refused", reason=reason, count=count, detail=detail)

    # The calls.

    async def _work(self, _requests: Any, context: Any) -> None:
        async def serve(identity: Identity | None) -> None:
            hello = await _hello(context)
            self._with_clients.check(hello)
            name = self.cluster.greet(hello, identity)
            is_there = name in self.cluster.sessions
            if self._namesakes.admit(name, hello.incarnation, is_there):
                self.log("client-replaced", client=name, reason="a newer process has its name")
            await context.write(v1.FromEdge(hello=self._answer(hello, identity)))
            await self.cluster.serve(name, context, identity)

        await self._guarded(context, ("client",), serve)

    async def _link(self, _requests: Any, context: Any) -> None:
        async def serve(identity: Identity | None) -> None:
            hello = await _hello(context)
            if identity is not None and identity.name != hello.name:
                raise wire.Refused("role", f"edge/{identity.name} calls as edge/{hello.name}")
            self._with_edges.check(hello)
            link = self.links.get(hello.name)
            if link is None or self.topology.leads(self.name, hello.name):
                raise wire.Refused("not-allowed", f"edge {hello.name!r} has no link to dial here")
            await context.write(v1.LinkMessage(hello=self._answer(hello, identity)))
            await link.serve(context, hello, self.states.all())

        await self._guarded(context, ("edge",), serve)

    async def _status(self, request: v1.StatusRequest, context: Any) -> v1.StatusReply:
        proof: dict[str, bytes] = {}

        async def serve(identity: Identity | None) -> None:
            proof.update(self.credentials.prove(request.nonce, identity))

        await self._guarded(context, ("edge", "operator"), serve)
        value = self.metrics.value
        return v1.StatusReply(
            edge=self.name,
            period=self.done,
            periods=self.topology.periods,
            phase=self.phase,
            ready=self.rounds.is_ready,
            clients=sorted(self.cluster.sessions),
            expected=len(self.cluster.home),
            links=[
                v1.LinkStatus(peer=peer, up=link.up, used=link.used, skipped=link.skipped)
                for peer, link in self.links.items()
            ],
            seconds_per_period=self.rounds.period_seconds,
            disagreement=max((value("sdfeel_disagreement", peer=p) for p in self.links), default=0),
            refused=int(value("sdfeel_uploads_total", verdict="refused")),
            late=int(value("sdfeel_uploads_total", verdict="late")),
            measures=[v1.Measure(name=n, value=v) for n, v in self.results.last.items()],
            warnings=self.warnings,
            certificate_hours=self.lifetime.hours,
            certificate=proof.get("certificate", b""),
            proof=proof.get("proof", b""),
        )

    @property
    def warnings(self) -> list[str]:
        """What an operator should look at."""
        disk = self.rounds.disk.problem
        return [*([f"state disk: {disk}"] if disk else []), *self.lifetime.look()]

    async def _guarded(
        self,
        context: Any,
        roles: tuple[str, ...],
        serve: Callable[[Identity | None], Coroutine[Any, Any, None]],
    ) -> None:
        """Lets in only certificates of these roles; a refusal is counted and told.

        The work is a task of its own: ended from outside, the caller is still told so.
        """
        work: asyncio.Task[None] | None = None
        try:
            identity = identify(context, self.credentials)
            if identity is not None and identity.role not in roles:
                who = f"{identity.role}/{identity.name}"
                raise wire.Refused("role", f"{who} may not make this call")
            work = asyncio.ensure_future(serve(identity))
            if identity is not None:
                self._identities[work] = identity
            await asyncio.wait({work})
            if not work.cancelled():
                work.result()
                return
        except wire.Refused as refusal:
            self._refuse_peer(refusal)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal.reason)
        except grpc.aio.InternalError:
            return  # the caller went away while we wrote to it
        finally:
            if work is not None:
                self._identities.pop(work, None)
                work.cancel()
        await context.abort(grpc.StatusCode.ABORTED, "this stream was replaced or revoked")


async def _hello(context: Any) -> v1.Hello:
    """The first message of a stream."""
    first = await context.read()
    if first is grpc.aio.EOF or first.WhichOneof("body") != "hello":
        raise wire.Refused("protocol", "the first message must be a hello")
    hello: v1.Hello = first.hello
    return hello
