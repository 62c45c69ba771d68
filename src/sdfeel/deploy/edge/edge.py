"""The edge server: serves its clients, exchanges with its neighbours, survives what happens."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sdfeel.deploy.cluster.cluster import Cluster
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.edge.admission import Admission
from sdfeel.deploy.edge.handlers import Handlers
from sdfeel.deploy.edge.paces import make_periods
from sdfeel.deploy.edge.recorder import Recorder
from sdfeel.deploy.edge.replies import Replies
from sdfeel.deploy.facts.logs import Log, Sink
from sdfeel.deploy.facts.metrics import Metrics, serve_http
from sdfeel.deploy.facts.refusals import Refusals
from sdfeel.deploy.facts.results import Results
from sdfeel.deploy.model.files import ModelFile, read_model
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import Change, Vector
from sdfeel.deploy.peers.agreement import Agreement
from sdfeel.deploy.peers.agreement_notes import load
from sdfeel.deploy.peers.dialler import Dialler
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.peers.link_states import LinkStates
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.trust.lifetime import Lifetime
from sdfeel.deploy.trust.notary import Notary
from sdfeel.deploy.trust.shared_settings import SharedSettings
from sdfeel.deploy.waiting import Signal
from sdfeel.deploy.wire.grpc_transport import GrpcTransport
from sdfeel.deploy.wire.transport import Transport
from sdfeel.errors import InputError

__all__ = ["EdgeServer"]

WATCH_SECONDS = 0.5
FAREWELL_SECONDS = 0.5


class EdgeServer:
    """One edge of a deployment. `run` returns when all periods are done."""

    def __init__(
        self,
        deployment: Deployment,
        name: str,
        state: Path,
        log: Sink | None = None,
        transport: Transport | None = None,
        store: Store | None = None,
        out: Path | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.deployment, self.name, self._chance = deployment, name, chance
        self.me = deployment.edge(name)
        self.topology = Topology(deployment)
        self.log = Log(name, log)
        self.metrics = Metrics()
        self.metrics.log_lost.set_function(lambda: self.log.unwritten)
        self.refused = Refusals(self.log, self.metrics)
        self.credentials = Credentials(deployment, "edge", name)
        self.lifetime = Lifetime(self.credentials, self.log, self.metrics)
        self.address = self.me.listen or self.me.address
        self.transport = transport or GrpcTransport(deployment, self.credentials, self.address)
        self.signal = Signal()
        first = self._read_first(constants=out is not None)
        self._with_edges = SharedSettings.of_edges(self.topology, first.vector.sha256)
        self.store = store or Store.of(deployment, name, state, first)
        model, done, found = self._restore(first.vector)
        elsewhere: dict[str, int] = {}  # the states tell it, the cluster asks
        self.cluster = Cluster(
            name,
            self.topology,
            model.size,
            state,
            self.signal,
            self.log,
            self.metrics,
            self.refused,
            elsewhere,
        )
        # A number of this life; transactions count up from it, so none comes twice.
        self._life = secrets.randbits(62)
        self.links = self._make_links(model.size, done, found)
        self.states = self._make_states(first.vector, elsewhere)
        self.rounds = make_periods(self, model, found)
        self.results = self._make_results()
        self.recorder = Recorder(
            self.topology, name, self.results, self.log, out, lambda: self.model, first
        )
        self.admission = Admission(self.credentials, self.refused, deployment.deadlines.ping)
        self.replies = self._make_replies()
        self.handlers = Handlers(
            name,
            self.topology,
            self._with_edges,
            SharedSettings.of_clients(deployment),
            self.admission,
            self.cluster,
            self.links,
            self.states,
            self.replies,
            self.log,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._http: ThreadingHTTPServer | None = None

    def _make_links(self, size: int, done: int, found: EdgeCheckpoint | None) -> Links:
        agreement: Agreement[Change] = Agreement(self._life)
        if found is not None and found.agreement:
            load(agreement, found.agreement, found.changes)
        links = Links(
            self.topology.neighbours(self.name),
            size,
            self.store.folder,
            agreement,
            done,
            self.topology.plan,
            self.deployment.limits.magnitude,
            self.signal,
            self.log,
            self.metrics,
            self.refused,
        )
        for link in links.values():
            link.weights = self.topology.weights_digest
            link.hooks.wanted = lambda _, link=link: self._lend(link)  # type: ignore[misc]
        return links

    def _make_states(self, first: Vector, elsewhere: dict[str, int]) -> LinkStates:
        states = LinkStates(
            self.name,
            self.links,
            self.topology,
            Notary(self.credentials),
            f"{self.deployment.digest} {first.sha256.hex()[:16]}",
            self._refuse_gossip,
            self.cluster.attending,
            elsewhere,
        )
        states.on_news = self.cluster.drop_doubled
        for peer, link in self.links.items():
            link.hooks.vouch = lambda peer=peer: states.vouch(peer)  # type: ignore[misc]
            link.hooks.state = lambda state, peer=peer: states.take(state, peer)  # type: ignore[misc]
        return states

    def _make_replies(self) -> Replies:
        return Replies(
            self.name,
            self._life,
            self.topology,
            self._with_edges,
            self.credentials,
            self.lifetime,
            self.rounds,
            self.cluster,
            self.links,
            self.results,
            self.metrics,
        )

    def _make_results(self) -> Results:
        topology = self.topology
        every = self.deployment.evaluate_every
        last = self.rounds.last
        results = Results(topology.tau1, last, every, topology.weights, self.log, self.metrics)

        def on_upload(client: str, about: v1.ModelHeader) -> None:
            self.rounds.times.came(about.trained)
            results.report(client, about.measures)

        self.cluster.on_upload = on_upload
        self.rounds.on_period = results.take
        return results

    def _read_first(self, constants: bool) -> ModelFile:
        """The model that everybody starts from."""
        initial = self.deployment.path(self.deployment.model.initial)
        first = read_model(initial, constants=constants)
        most, size = self.deployment.limits.values, first.vector.size
        if size > most:
            raise InputError("limits.values", most, f"the first model has {size} values")
        return first

    def _restore(self, model: Vector) -> tuple[Vector, int, EdgeCheckpoint | None]:
        """From the own checkpoint; else the first model."""
        self.store.acquire()
        found, problems = self.store.load(model.size)
        for problem in problems:
            self.log("checkpoint-damaged", reason=problem)
        if found is None:
            self.log("fresh-start", values=model.size)
            return model, 0, None
        self.log("resumed", period=found.done, checkpoint=found.agreement.get("checkpoint", 0))
        return found.model, found.done, found

    # Starting and stopping.

    async def start(self) -> None:
        """Listens, dials the neighbours behind it in the file, and serves metrics."""
        await self._listen()
        self._spawn(self._watch())
        for peer in self.links:
            if self.topology.leads(self.name, peer):
                self._spawn(self._dialler(peer).run())
        self.log("listening", address=self.address, secure=not self.credentials.plaintext)

    async def _listen(self) -> None:
        """On both ports; InputError names the one that cannot be had."""
        field, place = ("listen" if self.me.listen else "address"), self.address
        try:
            await self.transport.listen(self.handlers.streams, self.handlers.status)
            if self.me.metrics:
                field, place = "metrics", self.me.metrics
                self._http = serve_http(
                    self.me.metrics, self.metrics, lambda: True, lambda: bool(self.cluster.sessions)
                )
        except (RuntimeError, OSError) as problem:
            await self.transport.stop()
            self.store.release()
            reason = f"nobody can listen there, or somebody does already: {problem}"
            raise InputError(f"edges.{self.name}.{field}", place, reason) from None

    def _dialler(self, peer: str) -> Dialler:
        return Dialler(
            peer,
            self.links,
            self.transport,
            self.credentials,
            self.deployment.deadlines,
            self.replies.hello,
            self.handlers.check_neighbour,
            self.states.all,
            self._chance,
        )

    def _spawn(self, work: Any) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def stop(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await asyncio.gather(*(link.flush() for link in self.links.values()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.transport.stop()
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
        return self.replies.phase

    async def _watch(self) -> None:
        """Shows out whose certificate has ended; keeps link states fresh."""
        while True:
            self.lifetime.look()
            self.states.refresh()
            self.metrics.links.set(sum(link.up for link in self.links.values()))
            self.admission.look()
            loop = asyncio.get_running_loop()
            now = loop.time()
            await self.signal.until(self._links_changed, lambda now=now: now + WATCH_SECONDS)  # type: ignore[misc]

    def _links_changed(self) -> bool:
        return self.states.is_stale

    def _lend(self, link: Link) -> None:
        """To a neighbour that has no checkpoint: what is on our disk."""
        if self.done:
            link.lend(self.model, self.done)

    def _refuse_gossip(self, refusal: Refused, origin: str) -> None:
        self.refused("refused", refusal.kind, refusal.reason, origin, peer=origin)

    def handshake_refused(self, reason: str, count: int, detail: str) -> None:
        """What `handshakes` found out: callers that never came as far as a call."""
        self.metrics.handshakes.labels(reason).inc(count)
        self.log("handshake-refused", reason=reason, count=count, detail=detail)

    @property
    def warnings(self) -> list[str]:
        return self.replies.warnings
