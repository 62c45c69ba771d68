"""What an edge counts and measures, for Prometheus."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
)

from sdfeel.deploy.protocol import PROTOCOL

__all__ = ["Metrics"]

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """One registry an edge, so that several edges may live in one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.period = Gauge("sdfeel_period", "Last finished upload period", registry=registry)
        self.periods = Gauge("sdfeel_periods", "Upload periods of the training", registry=registry)
        build = Info("sdfeel_build", "Version of the program", registry=registry)
        build.info({"version": _version(), "protocol": str(PROTOCOL)})
        self.participants = Gauge(
            "sdfeel_participants", "Clients in the last average", registry=registry
        )
        self.clients = Gauge("sdfeel_clients", "Clients connected", registry=registry)
        self.links = Gauge("sdfeel_links_up", "Neighbours connected", registry=registry)
        self.phase = Histogram(
            "sdfeel_phase_seconds", "Time per phase", ["phase"], buckets=SECONDS, registry=registry
        )
        self.bytes = Counter(
            "sdfeel_model_bytes", "Model bytes", ["peers", "direction"], registry=registry
        )
        self.uploads = Counter(
            "sdfeel_uploads", "Uploads by verdict", ["verdict"], registry=registry
        )
        self.refused = Counter(
            "sdfeel_refused", "Messages and peers refused, by reason", ["kind"], registry=registry
        )
        self.handshakes = Counter(
            "sdfeel_handshakes_refused", "Failed TLS handshakes", ["reason"], registry=registry
        )
        self.exchanges = Counter(
            "sdfeel_link_exchanges", "Exchanges by link", ["peer", "outcome"], registry=registry
        )
        self.repairs = Counter(
            "sdfeel_link_repairs", "Decisions learned late and made good", registry=registry
        )
        self.jumps = Counter(
            "sdfeel_jumps", "Times that it caught up with its neighbours", registry=registry
        )
        self.adoptions = Counter(
            "sdfeel_adoptions", "Times that it began from a neighbour's model", registry=registry
        )
        self.steps = Gauge(
            "sdfeel_steps", "Mean steps of the clients at the last turn", registry=registry
        )
        self.staleness = Gauge(
            "sdfeel_staleness", "Aggregations since a neighbour's last", ["peer"], registry=registry
        )
        self.measures = Gauge(
            "sdfeel_measure", "Losses and metrics, the last of each", ["kind"], registry=registry
        )
        self.disk = Gauge(
            "sdfeel_state_disk_problem",
            "1 while checkpoints cannot be written and the edge waits",
            registry=registry,
        )
        self.certificate = Gauge(
            "sdfeel_certificate_days", "Until the edge's own certificate ends", registry=registry
        )
        self.log_lost = Gauge(
            "sdfeel_log_lines_lost", "Log lines that wait for room or are lost", registry=registry
        )
        self.update_norm = Gauge(
            "sdfeel_update_norm", "Median ||w_i - w_d(0)|| of late", registry=registry
        )
        self.disagreement = Gauge(
            "sdfeel_disagreement", "||w_j - w_d|| / ||w_d||", ["peer"], registry=registry
        )

    def add_process(self) -> None:
        """Add memory, processor seconds and open files of this process, read when asked for."""
        ProcessCollector(registry=self.registry)

    def value(self, name: str, **labels: str) -> float:
        """One sample, for tests and the status table; 0 if it was never touched."""
        return self.registry.get_sample_value(name, labels) or 0.0


def _version() -> str:
    try:
        return version("sdfeel")
    except PackageNotFoundError:  # run from its sources
        return "unknown"
