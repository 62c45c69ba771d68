"""The edge server: serves its clients, exchanges with its neighbours, survives what happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import grpc
import numpy as np

from sdfeel.deploy import rpc, wire
from sdfeel.deploy.bell import Bell
from sdfeel.deploy.cluster import Cluster
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.dialling import Dialler
from sdfeel.deploy.identity import Credentials, Identity, check, identify, server_options
from sdfeel.deploy.links import Link
from sdfeel.deploy.logs import Log
from sdfeel.deploy.metrics import Metrics, serve_http
from sdfeel.deploy.mixing import Mixer, beside
from sdfeel.deploy.plan import Plan
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.store import Checkpoint, Store, read_safetensors
from sdfeel.deploy.vectors import Block, Vector, combine, merge, probe
from sdfeel.deploy.views import LinkStates
from sdfeel.training.robust import Rule

__all__ = ["EdgeServer"]

WATCH_SECONDS = 0.5


class EdgeServer:
    """One edge of a deployment. `run` returns when all periods are done."""

    def __init__(
        self, deployment: Deployment, name: str, state: Path, log: IO[str] | None = None
    ) -> None:
        self.deployment, self.name = deployment, name
        self.me = deployment.edge(name)
        self.plan = Plan(deployment)
        self.log = Log(name, log)
        self.metrics = Metrics()
        self.credentials = Credentials(deployment, "edge", name)
        self.bell = Bell()
        self.store = Store(state, deployment.digest)
        self.phase = "starting"
        self.period_seconds = 0.0
        self.model, self.done, decisions = self._restore()
        size = self.model.size
        self.cluster = Cluster(name, self.plan, size, state, self.bell, self.log, self.metrics)
        self.links = {
            peer: Link(peer, size, state, self.bell, self.log, self.metrics)
            for peer in self.plan.neighbours(name)
        }
        self.states = LinkStates(name, self.links)
        for peer, link in self.links.items():
            link.ledger = list(decisions.get(peer, []))
            link.on_state = lambda state, peer=peer: self.states.take(state, peer)  # type: ignore[misc]
        self.mixer = Mixer(
            name,
            self.plan,
            self.links,
            state,
            self.bell,
            self.log,
            self.metrics,
            self.states,
            deployment.deadlines.exchange,
        )
        self.rule = Rule(
            **deployment.averaging.model_dump(include={"limit", "trim"}),
            name=deployment.averaging.rule,
        )
        self._identities: dict[asyncio.Task[Any], Identity] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._http: ThreadingHTTPServer | None = None

    def _restore(self) -> tuple[Vector, int, dict[str, list[tuple[int, int]]]]:
        """From the own checkpoint; else the model that everybody starts from."""
        initial = self.deployment.path(self.deployment.model.initial)
        model, _ = read_safetensors(initial)
        found, problems = self.store.load(model.size)
        for problem in problems:
            self.log("checkpoint-damaged", reason=problem)
        if found is None:
            self.log("fresh-start", values=model.size)
            return model, 0, {}
        self.log("resumed", period=found.done)
        return found.model, found.done, found.decisions

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
        if self.credentials.plaintext:
            self._server.add_insecure_port(address)
        else:
            self._server.add_secure_port(address, self.credentials.server())
        await self._server.start()
        if self.me.metrics:
            self._http = serve_http(
                self.me.metrics, self.metrics, lambda: True, lambda: self.is_ready
            )
        self._spawn(self._watch())
        for peer, link in self.links.items():
            if self.plan.leads(self.name, peer):
                dialler = Dialler(
                    self.deployment, self.name, self.credentials, link, self._hello, self.states.all
                )
                self._spawn(dialler.run())
        self.log("listening", address=address, secure=not self.credentials.plaintext)

    def _spawn(self, work: Any) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.stop(grace=0.2)
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
        self.log("stopped", period=self.done)

    @property
    def is_ready(self) -> bool:
        """Whether it can do its part: a client or a neighbour is there."""
        return bool(self.cluster.sessions) or any(link.up for link in self.links.values())

    def _hello(self) -> v1.Hello:
        return v1.Hello(
            protocol=wire.PROTOCOL,
            name=self.name,
            deployment=self.deployment.digest,
            done=self.done,
        )

    async def _watch(self) -> None:
        """Ends streams whose certificate has run out or was revoked; keeps link states fresh."""
        while True:
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

    def _refuse_peer(self, refusal: wire.Refused) -> None:
        self.metrics.refused.labels(refusal.kind).inc()
        self.log("peer-refused", kind=refusal.kind, reason=refusal.reason)

    # The calls.

    async def _work(self, _requests: Any, context: Any) -> None:
        async def serve(identity: Identity | None) -> None:
            first = await context.read()
            if first is grpc.aio.EOF or first.WhichOneof("body") != "hello":
                raise wire.Refused("protocol", "the first message must be a hello")
            name = self.cluster.greet(first.hello, identity)
            await context.write(v1.FromEdge(hello=self._hello()))
            await self.cluster.serve(name, context, identity)

        await self._guarded(context, ("client",), serve)

    async def _link(self, _requests: Any, context: Any) -> None:
        async def serve(identity: Identity | None) -> None:
            first = await context.read()
            if first is grpc.aio.EOF or first.WhichOneof("body") != "hello":
                raise wire.Refused("protocol", "the first message must be a hello")
            hello = first.hello
            if identity is not None and identity.name != hello.name:
                raise wire.Refused("role", f"edge/{identity.name} calls as edge/{hello.name}")
            if hello.protocol != wire.PROTOCOL or hello.deployment != self.deployment.digest:
                raise wire.Refused("deployment", "another protocol or deployment file")
            link = self.links.get(hello.name)
            if link is None or self.plan.leads(self.name, hello.name):
                raise wire.Refused("not-allowed", f"edge {hello.name!r} has no link to dial here")
            await context.write(v1.LinkMessage(hello=self._hello()))
            await link.serve(context, hello.done, self.states.all())

        await self._guarded(context, ("edge",), serve)

    async def _status(self, _request: v1.StatusRequest, context: Any) -> v1.StatusReply:
        async def serve(_identity: Identity | None) -> None:
            return

        await self._guarded(context, ("edge", "operator"), serve)
        value = self.metrics.value
        return v1.StatusReply(
            edge=self.name,
            period=self.done,
            periods=self.plan.periods,
            phase=self.phase,
            ready=self.is_ready,
            clients=sorted(self.cluster.sessions),
            expected=len(self.cluster.home),
            links=[
                v1.LinkStatus(peer=peer, up=link.up, used=link.used, skipped=link.skipped)
                for peer, link in self.links.items()
            ],
            seconds_per_period=self.period_seconds,
            disagreement=max((value("sdfeel_disagreement", peer=p) for p in self.links), default=0),
            refused=int(value("sdfeel_uploads_total", verdict="refused")),
            late=int(value("sdfeel_uploads_total", verdict="late")),
        )

    async def _guarded(
        self,
        context: Any,
        roles: tuple[str, ...],
        serve: Callable[[Identity | None], Awaitable[None]],
    ) -> None:
        """Lets in only certificates of these roles; a refusal is counted and told."""
        task = asyncio.current_task()
        try:
            identity = identify(context, self.credentials)
            if identity is not None:
                if identity.role not in roles:
                    raise wire.Refused(
                        "role", f"{identity.role}/{identity.name} may not make this call"
                    )
                if task is not None:
                    self._identities[task] = identity
            await serve(identity)
        except wire.Refused as refusal:
            self._refuse_peer(refusal)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal.reason)
        finally:
            if task is not None:
                self._identities.pop(task, None)

    # Training.

    async def run(self) -> None:
        """All periods, from the last one that is durable."""
        await self._gather()
        while self.done < self.plan.periods:
            await self._period()
        self.phase = "finished"
        self.log("finished", period=self.done)
        self.cluster.finish(self.done)
        await self._linger()

    async def _gather(self) -> None:
        """Waits once for the whole network, so that the first exchange finds it."""
        self.phase = "gathering"
        start = asyncio.get_running_loop().time()
        await self.bell.until(
            lambda: len(self.states.up()) == 2 * self.plan.network.graph.number_of_edges(),
            lambda: start + self.deployment.deadlines.exchange,
        )

    async def _linger(self) -> None:
        """Stays until neighbours and clients know, so that nobody is left waiting."""
        start = asyncio.get_running_loop().time()
        await self.bell.until(
            lambda: (
                not self.cluster.sessions
                and all(not k.up or k.peer_done >= self.done for k in self.links.values())
            ),
            lambda: start + self.deployment.deadlines.exchange,
        )

    async def _period(self) -> None:
        period, start = self.done + 1, time.perf_counter()
        uploads = await self._collect(period)
        order = sorted(uploads, key=self.plan.clients.index)
        collected = time.perf_counter()
        model = await self._average(order, uploads)
        heading = -(-period // self.plan.tau2) * self.plan.tau2
        ahead = self._ahead(heading)
        used = 0
        if ahead:
            self.metrics.jumps.inc()
            self.log("jump", period=period, to=ahead, kept=order)
            period = ahead
        elif self.plan.is_inter(period):
            self.phase = "exchanging"
            model, used = await self._exchange(period, model)
            if not used and not order and self.links:
                return  # nobody took part and nobody answered: the period did not happen
        mixed = time.perf_counter()
        model = await self._repair(model)
        await self._save(period, model)
        self.cluster.acknowledge(period, order)
        ended = time.perf_counter()
        self._note(period, order, used, (start, collected, mixed, ended))

    def _ahead(self, heading: int) -> int:
        """The last exchange that neighbours finished, if it is the one we head for or later."""
        tau2 = self.plan.tau2
        known = [link.peer_done // tau2 * tau2 for link in self.links.values() if link.up]
        reached = max(known, default=0)
        return reached if reached >= heading else 0

    async def _collect(self, period: int) -> dict[str, Vector]:
        self.phase = "collecting"
        heading = -(-period // self.plan.tau2) * self.plan.tau2
        if self.cluster.is_empty:
            # Alone, time stands still; with neighbours it is they who set the pace.
            forever = asyncio.get_running_loop().time() + 1e9
            await self.bell.until(lambda: self.is_ready, lambda: forever)
            if self.cluster.is_empty:
                return {}
        return await self.cluster.collect(
            period,
            self.model,
            self.deployment.deadlines.round,
            lambda: bool(self._ahead(heading)),
        )

    async def _average(self, order: list[str], uploads: dict[str, Vector]) -> Vector:
        """Eq. (3) over those who took part, in client order; nobody: the model stays."""
        if not order:
            return self.model
        vectors = [uploads[name] for name in order]
        weights = self.plan.weights(order)
        folder, centre, rule = self.store.folder, self.model, self.rule
        if rule.name == "mean":
            return await beside(centre.is_large, lambda: combine(vectors, weights, folder))
        return await beside(
            centre.is_large, lambda: _robust(rule, vectors, weights, centre, folder)
        )

    async def _exchange(self, period: int, model: Vector) -> tuple[Vector, int]:
        return await self.mixer.run(period, model, await self.mixer.agree(period))

    async def _repair(self, model: Vector) -> Vector:
        """Adds what links turned out to have carried after all."""
        for link in self.links.values():
            while link.repairs:
                late = link.repairs.pop(0)
                before = model
                model = combine(
                    [model, late.theirs, late.own],
                    [1.0, late.weight, -late.weight],
                    self.store.folder,
                )
                self.metrics.repairs.inc()
                fields = {}
                if self.deployment.audit:
                    fields = {"before": probe(before), "after": probe(model)}
                self.log("repaired", peer=link.peer, **fields)
        return model

    async def _save(self, period: int, model: Vector) -> None:
        decisions = {peer: link.ledger for peer, link in self.links.items()}
        checkpoint = Checkpoint(period, model, decisions)
        await asyncio.to_thread(self.store.save, checkpoint)
        self.model, self.done = model, period
        for link in self.links.values():
            link.forget(period)
            link.tell(v1.LinkMessage(progress=v1.Progress(done=period)))
        self.bell.ring()

    def _note(
        self, period: int, order: list[str], used: int, times: tuple[float, float, float, float]
    ) -> None:
        start, collected, mixed, ended = times
        self.period_seconds = ended - start
        phases = {"collect": collected - start, "mix": mixed - collected, "save": ended - mixed}
        for phase, seconds in phases.items():
            self.metrics.phase.labels(phase).observe(seconds)
        self.metrics.period.set(period)
        self.metrics.participants.set(len(order))
        self.log(
            "period",
            period=period,
            participants=order,
            links_used=used,
            **{phase: round(seconds, 6) for phase, seconds in phases.items()},
        )


def _robust(
    rule: Rule, vectors: list[Vector], weights: list[float], centre: Vector, folder: Path
) -> Vector:
    """A robust rule block by block; clipping needs each model's distance first."""
    norms = np.zeros(len(vectors))
    for span in centre.spans():
        start = centre.read(*span).astype(np.float64)
        for n, vector in enumerate(vectors):
            norms[n] += ((vector.read(*span) - start) ** 2).sum()
    scales = rule.scales(np.sqrt(norms))

    def apply(blocks: list[Block], _offset: int) -> Any:
        *models, before = blocks
        return rule.combine(np.stack(models), np.array(weights), before, scales)

    return merge([*vectors, centre], apply, folder)
