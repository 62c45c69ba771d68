"""What edges and clients count and measure, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.facts import Fact
from sdfeel.deploy.protocol import PROTOCOL

__all__ = ["ClientMetrics", "Described", "Metrics"]

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)

M = TypeVar("M", Counter, Gauge, Histogram, Info)


class Described(NamedTuple):
    """One metric, as the documentation has it; its `name` is that of its samples."""

    name: str
    kind: str
    labels: tuple[str, ...]
    about: str


class _Registry:
    """One registry a node, so that several nodes may live in one process.

    Counters are raised by facts (`add`); what is a state is set by whoever has it.
    """

    counted: Mapping[type[Fact], Callable[[Any, Any], None]]

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.described: list[Described] = []
        build = self._make(Info, "sdfeel_build", "Version of the program")
        build.info({"version": _version(), "protocol": str(PROTOCOL)})
        self.certificate = self._make(
            Gauge, "sdfeel_certificate_days", "Until the node's own certificate ends"
        )
        self.log_lost = self._make(
            Gauge, "sdfeel_log_lines_lost", "Log lines that wait for room or are lost"
        )
        self.refused = self._make(
            Counter, "sdfeel_refused", "Messages and peers refused, by reason", "kind"
        )

    def _make(self, kind: type[M], name: str, about: str, *labels: str, **options: Any) -> M:
        suffix = {Counter: "_total", Info: "_info"}.get(kind, "")
        self.described.append(Described(name + suffix, kind.__name__.lower(), labels, about))
        return kind(name, about, labels, registry=self.registry, **options)

    def add(self, fact: Fact) -> None:
        """Count a fact."""
        count = self.counted.get(type(fact))
        if count is not None:
            count(self, fact)

    def add_process(self) -> None:
        """Add memory, processor seconds and open files of this process, read when asked for."""
        ProcessCollector(registry=self.registry)

    def value(self, name: str, **labels: str) -> float:
        """One sample, for tests and the status table; 0 if it was never touched."""
        return self.registry.get_sample_value(name, labels) or 0.0


class Metrics(_Registry):
    """Of an edge."""

    def __init__(self) -> None:
        super().__init__()
        counter, gauge = partial(self._make, Counter), partial(self._make, Gauge)
        self.period = gauge("sdfeel_period", "Last finished upload period")
        self.periods = gauge("sdfeel_periods", "Upload periods of the training")
        self.participants = gauge("sdfeel_participants", "Clients in the last average")
        self.clients = gauge("sdfeel_clients", "Clients connected")
        self.links = gauge("sdfeel_links_up", "Neighbours connected")
        self.phase = self._make(
            Histogram, "sdfeel_phase_seconds", "Time per phase", "phase", buckets=SECONDS
        )
        self.bytes = counter("sdfeel_model_bytes", "Model bytes", "peers", "direction")
        self.uploads = counter("sdfeel_uploads", "Uploads by verdict", "verdict")
        self.clipped = counter("sdfeel_clipped", "Updates that were scaled down to the usual norm")
        self.handshakes = counter("sdfeel_handshakes_refused", "Failed TLS handshakes", "reason")
        self.exchanges = counter("sdfeel_link_exchanges", "Exchanges by link", "peer", "outcome")
        self.repairs = counter("sdfeel_link_repairs", "Decisions learned late and made good")
        self.jumps = counter("sdfeel_jumps", "Times that it caught up with its neighbours")
        self.adoptions = counter("sdfeel_adoptions", "Times that it began from a neighbour's model")
        self.steps = gauge("sdfeel_steps", "Mean steps of the clients at the last turn")
        self.staleness = gauge("sdfeel_staleness", "Aggregations since a neighbour's last", "peer")
        self.measures = gauge("sdfeel_measure", "Losses and metrics on the holdout", "kind")
        self.claims = gauge(
            "sdfeel_client_measure", "Losses and metrics as a client says", "client", "kind"
        )
        self.disk = gauge(
            "sdfeel_state_disk_problem", "1 while checkpoints cannot be written and the edge waits"
        )
        self.update_norm = gauge("sdfeel_update_norm", "Median ||w_i - w_d(0)|| of late")
        self.disagreement = gauge("sdfeel_disagreement", "||w_j - w_d|| / ||w_d||", "peer")


class ClientMetrics(_Registry):
    """Of a client."""

    def __init__(self) -> None:
        super().__init__()
        counter, gauge = partial(self._make, Counter), partial(self._make, Gauge)
        self.period = gauge("sdfeel_client_period", "Last upload period that an edge has")
        self.connected = gauge("sdfeel_client_connected", "1 while an edge has let it in")
        self.uploads = counter(
            "sdfeel_client_uploads", "Models that it sent, by verdict", "verdict"
        )
        self.bytes = counter("sdfeel_client_model_bytes", "Model bytes", "direction")
        self.training = self._make(
            Histogram, "sdfeel_client_training_seconds", "Training of a period", buckets=SECONDS
        )
        self.waiting = self._make(
            Histogram, "sdfeel_client_waiting_seconds", "From an upload to work", buckets=SECONDS
        )


def _version() -> str:
    try:
        return version("sdfeel")
    except PackageNotFoundError:  # run from its sources
        return "unknown"


def _period(metrics: Metrics, fact: facts.Period) -> None:
    metrics.period.set(fact.period)
    metrics.participants.set(len(fact.participants))
    metrics.uploads.labels("accepted").inc(len(fact.participants))
    for phase in ("collect", "mix", "save"):
        metrics.phase.labels(phase).observe(getattr(fact, phase))


def _upload_refused(metrics: Metrics, fact: facts.UploadRefused) -> None:
    metrics.uploads.labels("refused").inc()
    metrics.refused.labels(fact.kind).inc()


def _measured(metrics: Metrics, fact: facts.Measured) -> None:
    for name, value in fact.values.items():
        metrics.measures.labels(name).set(value)


# What is counted of a fact.
COUNTED: dict[type[Fact], Callable[[Metrics, Any], None]] = {
    facts.Period: _period,
    facts.UploadRefused: _upload_refused,
    facts.UploadLate: lambda metrics, _: metrics.uploads.labels("late").inc(),
    facts.MessageRefused: lambda metrics, fact: metrics.refused.labels(fact.kind).inc(),
    facts.PeerRefused: lambda metrics, fact: metrics.refused.labels(fact.kind).inc(),
    facts.HandshakeRefused: lambda metrics, fact: metrics.handshakes.labels(fact.reason).inc(
        fact.count
    ),
    facts.Adopted: lambda metrics, _: metrics.adoptions.inc(),
    facts.Jump: lambda metrics, _: metrics.jumps.inc(),
    facts.Repaired: lambda metrics, _: metrics.repairs.inc(),
    facts.DiskProblem: lambda metrics, _: metrics.disk.set(1),
    facts.DiskRelief: lambda metrics, _: metrics.disk.set(0),
    facts.Clipped: lambda metrics, _: metrics.clipped.inc(),
    facts.Measured: _measured,
}
Metrics.counted = COUNTED


def _accepted(metrics: ClientMetrics, fact: facts.Accepted) -> None:
    metrics.period.set(fact.period)
    metrics.uploads.labels("accepted").inc()


COUNTED_OF_CLIENTS: dict[type[Fact], Callable[[ClientMetrics, Any], None]] = {
    facts.Uploaded: lambda metrics, fact: metrics.training.observe(fact.trained),
    facts.Accepted: _accepted,
    facts.ModelLate: lambda metrics, _: metrics.uploads.labels("late").inc(),
    facts.ModelRefused: lambda metrics, _: metrics.uploads.labels("refused").inc(),
    facts.TaskRefused: lambda metrics, fact: metrics.refused.labels(fact.kind).inc(),
    facts.EdgeDistrusted: lambda metrics, fact: metrics.refused.labels(fact.kind).inc(),
}
ClientMetrics.counted = COUNTED_OF_CLIENTS
