"""The edge server: serves its clients, exchanges with its neighbours, survives what happens."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from pathlib import Path

from sdfeel.deploy.cluster.cluster import Cluster
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.edge.admission import Admission
from sdfeel.deploy.edge.handlers import Handlers
from sdfeel.deploy.edge.paces import make_carrier
from sdfeel.deploy.edge.recorder import Recorder
from sdfeel.deploy.edge.replies import Replies
from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.concern import Concern
from sdfeel.deploy.facts.http import BoundedServer, serve_http, split_address
from sdfeel.deploy.facts.logs import Log, Sink
from sdfeel.deploy.facts.metrics import Metrics
from sdfeel.deploy.facts.results import Results
from sdfeel.deploy.facts.stream import Facts, Recent
from sdfeel.deploy.model.files import ModelFile, read_model
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import Change, Vector
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.agreement import Agreement
from sdfeel.deploy.peers.agreement_notes import load
from sdfeel.deploy.peers.dialler import Dialler
from sdfeel.deploy.peers.file_versions import FileVersions
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.peers.link_states import LinkStates
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.trust.lifetime import Lifetime
from sdfeel.deploy.trust.shared_settings import SharedSettings
from sdfeel.deploy.waiting import Background, Signal, end
from sdfeel.deploy.wire.grpc_transport import GrpcTransport
from sdfeel.deploy.wire.transport import Transport
from sdfeel.errors import InputError

__all__ = ["EdgeServer", "Surroundings"]

WATCH_SECONDS = 0.5
FAREWELL_SECONDS = 0.5
ARRIVAL_SECONDS = 0.05  # for its last words: a stream that is ended drops them


@dataclass(frozen=True)
class Surroundings:
    """The network, the disk and the chance of an edge; None: those of this machine."""

    transport: Transport | None = None
    store: Store | None = None
    chance: random.Random | None = None


class EdgeServer:
    """One edge of a deployment. `run` returns when all periods are done, or `files.is_over`.

    newer      the deployment file that is to hold once all edges have it
    has_begun  the file holds because all edges have it now
    """

    def __init__(
        self,
        deployment: Deployment,
        name: str,
        state: Path,
        log: Sink | None = None,
        out: Path | None = None,
        newer: Deployment | None = None,
        has_begun: bool = False,
        around: Surroundings | None = None,
    ) -> None:
        around = around or Surroundings()
        self.deployment, self.name = deployment, name
        self._newer, self._has_begun = Topology(newer) if newer else None, has_begun
        self.me, self.topology = deployment.edge(name), Topology(deployment)
        self.log, self.metrics = Log(name, log), Metrics()
        self.metrics.log_lost.set_function(lambda: self.log.unwritten)
        recent = Recent()
        self.facts = Facts(self.log.add, self.metrics.add, recent.add)
        self.credentials = Credentials(deployment, "edge", name)
        self.lifetime = Lifetime(self.credentials, self.facts.tell, self.metrics)
        self.address = self.me.listen or self.me.address
        self.transport = around.transport or GrpcTransport(
            deployment, self.credentials, self.address
        )
        first = self._read_first(constants=out is not None)
        self.store = around.store or Store.of(deployment, name, state, first)
        self.node = Node(
            name=name,
            topology=self.topology,
            credentials=self.credentials,
            folder=self.store.folder,
            size=first.vector.size,
            tell=self.facts.tell,
            metrics=self.metrics,
            signal=Signal(),
            background=Background(),
            recent=recent,
            chance=around.chance,
        )
        self._assemble(first, out)
        self._http: BoundedServer | None = None

    def _assemble(self, first: ModelFile, out: Path | None) -> None:
        """Make the parts and tell them of each other."""
        node, deployment = self.node, self.deployment
        checkpoint = self._restore()
        agreement: Agreement[Change] = Agreement(node.life)
        if checkpoint is not None and checkpoint.agreement:
            load(agreement, checkpoint.agreement, checkpoint.changes)
        elsewhere: dict[str, int] = {}  # the states tell it, the cluster asks
        self.cluster = Cluster(node, elsewhere)
        self.links = Links(node, agreement, checkpoint.done if checkpoint else 0)
        agreed = f"{deployment.digest} {first.vector.sha256.hex()[:16]}"
        self.states = LinkStates(node, self.links, agreed, self.cluster.attending, elsewhere)
        self.states.on_news = self.cluster.drop_doubled
        self.files = FileVersions(node, self.states, self._newer, self._has_begun)
        for link in self.links.values():
            link.hooks.wanted = lambda _, link=link: self._lend(link)  # type: ignore[misc]
        model = checkpoint.model if checkpoint else first.vector
        self.carrier = make_carrier(
            node, self.store, self.cluster, self.links, self.states, model, checkpoint
        )
        self.metrics.period.set(self.carrier.done)
        self.metrics.periods.set(self.carrier.last)
        self.results = self._make_results()
        self.recorder = Recorder(node, self.results, out, lambda: self.model, first)
        self.admission = Admission(self.credentials, node.tell, deployment.deadlines.ping)
        with_edges = SharedSettings.of_edges(self.topology, first.vector.sha256)
        self.replies = Replies(
            node, with_edges, self.lifetime, self.carrier, self.files, self.results
        )
        with_clients = SharedSettings.of_clients(deployment)
        self.handlers = Handlers(node, with_clients, self.admission, self.replies)

    def _make_results(self) -> Results:
        topology = self.topology
        every = self.deployment.evaluate_every
        last = self.carrier.last
        results = Results(
            topology.tau1, last, every, topology.at(0).weights, self.node.tell, self.metrics
        )

        def on_upload(client: str, about: v1.ModelHeader) -> None:
            self.carrier.times.came(about.trained)
            results.report(client, about.measures)

        self.cluster.on_upload = on_upload
        self.carrier.on_period = results.take
        return results

    def _read_first(self, constants: bool) -> ModelFile:
        """The model that everybody starts from."""
        initial = self.deployment.path(self.deployment.model.initial)
        first = read_model(initial, constants=constants)
        most, size = self.deployment.limits.values, first.vector.size
        if size > most:
            raise InputError("limits.values", most, f"the first model has {size} values")
        for _, codec in self.deployment.codecs:
            codec.bits(size)  # or it cannot send so few values
        return first

    def _restore(self) -> EdgeCheckpoint | None:
        """Read the newest checkpoint that is whole."""
        self.store.acquire()
        checkpoint, problems = self.store.load(self.node.size)
        for problem in problems:
            self.node.tell(facts.CheckpointDamaged(reason=problem))
        if checkpoint is None:
            self.node.tell(facts.FreshStart(values=self.node.size))
            return None
        number = checkpoint.agreement.get("checkpoint", 0)
        self.node.tell(facts.Resumed(period=checkpoint.done, checkpoint=number))
        return checkpoint

    # Starting and stopping.

    async def start(self) -> None:
        """Listens, dials the neighbours behind it in the file, and serves metrics."""
        await self._listen()
        self.node.background.spawn(self._watch())
        for peer in self.links:
            if self.topology.at(self.carrier.done).leads(self.name, peer):
                self.node.background.spawn(self._dialler(peer).run())
        is_secure = not self.credentials.plaintext
        self.node.tell(facts.Listening(address=self.address, secure=is_secure))
        home = sorted(self.cluster.home)
        if self.carrier.averaging.warning(len(home)):
            rule = self.carrier.averaging.rule.name
            self.node.tell(facts.Unprotected(rule=rule, clients=tuple(home)))

    async def _listen(self) -> None:
        """On both ports; InputError names the one that cannot be had."""
        field, place = ("listen" if self.me.listen else "address"), self.address
        try:
            await self.transport.listen(self.handlers.streams, self.handlers.status)
            if self.me.metrics:
                field, place = "metrics", self.me.metrics
                self.metrics.add_process()
                hosts = [split_address(self.me.address)[0], *self.me.metrics_hosts]
                is_ready = lambda: self.carrier.is_ready  # noqa: E731
                self._http = serve_http(place, self.metrics, lambda: True, is_ready, hosts)
        except (RuntimeError, OSError) as problem:
            await self.transport.stop()
            self.store.release()
            reason = f"nobody can listen there, or somebody does already: {problem}"
            raise InputError(f"edges.{self.name}.{field}", place, reason) from None

    def _dialler(self, peer: str) -> Dialler:
        return Dialler(
            self.node,
            peer,
            self.links,
            self.transport,
            self.replies.hello,
            self.handlers.check_neighbour,
            self.states.all,
        )

    async def stop(self) -> None:
        """Leave, so that no neighbour is left waiting for what this edge would have said."""
        self.links.leave()
        end = asyncio.get_running_loop().time() + FAREWELL_SECONDS
        await self.node.signal.until(lambda: not self.links.awaits_decision, lambda: end)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await asyncio.gather(*(link.flush() for link in self.links.values()))
        await asyncio.sleep(ARRIVAL_SECONDS)
        await self.carrier.saver.flush()
        await self.node.background.end()
        await self.transport.stop()
        await self.carrier.saver.settle()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
        self.store.release()
        self.node.tell(facts.Stopped(period=self.done))
        await self.log.drain()

    async def run(self) -> None:
        """Carry out all periods, from the last one that is durable."""
        await self.recorder.start(self.done)
        try:
            await self.node.background.guard(self._run())
        finally:
            await self.recorder.finish(self.done)

    async def _run(self) -> None:
        """Until all periods are done, or all edges have a newer file."""
        loop = asyncio.get_running_loop()
        rounds = loop.create_task(self.carrier.run())
        newer = loop.create_task(self.files.until_all_have_it())
        try:
            await asyncio.wait({rounds, newer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(newer)
            if not rounds.done():
                await end(rounds)
        if not rounds.cancelled():
            rounds.result()

    @property
    def model(self) -> Vector:
        return self.carrier.model

    @property
    def done(self) -> int:
        """The last period that is finished and durable."""
        return self.carrier.done

    @property
    def phase(self) -> str:
        return self.replies.phase

    async def _watch(self) -> None:
        """Shows out whose certificate has ended; keeps link states fresh."""
        while True:
            self.lifetime.look()
            self.states.refresh()
            self.files.look()
            self.metrics.links.set(sum(link.up for link in self.links.values()))
            self.admission.look()
            loop = asyncio.get_running_loop()
            now = loop.time()
            await self.node.signal.until(self._links_changed, lambda now=now: now + WATCH_SECONDS)  # type: ignore[misc]

    def _links_changed(self) -> bool:
        return self.states.is_stale

    def _lend(self, link: Link) -> None:
        """To a neighbour that has no checkpoint: what is on our disk."""
        if self.done:
            link.lend(self.carrier.saver.durable, self.done)

    def handshake_refused(self, reason: str, count: int, detail: str) -> None:
        """What `handshakes` found out: callers that never came as far as a call."""
        self.node.tell(facts.HandshakeRefused(reason=reason, count=count, detail=detail))

    @property
    def warnings(self) -> list[Concern]:
        return self.replies.warnings
