"""Pages and files that follow from the facts and metrics of a deployment.

`python docs/observing.py` writes docs/events.md, and in examples/deployment alerts.yml for
Prometheus and dashboard.json for Grafana; `--check` sees whether they are as the code says.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.facts import FACTS, Fact
from sdfeel.deploy.facts.metrics import ClientMetrics, Described, Metrics

ROOT = Path(__file__).parents[1]
PAGE = Path("docs/events.md")
ALERTS = Path("examples/deployment/alerts.yml")
DASHBOARD = Path("examples/deployment/dashboard.json")

TRAINS = "sdfeel_period < sdfeel_periods"
INTRUDERS = "gossip|malformed|not-allowed|often|role|signature"


class Alert(NamedTuple):
    """`about` is a sentence, or the fact that has it."""

    name: str
    when: str
    during: str
    severity: str
    about: str | type[Fact]

    @property
    def event(self) -> str:
        return "" if isinstance(self.about, str) else self.about.event

    @property
    def sentence(self) -> str:
        """What has happened: the beginning of the fact's sentence."""
        text = self.about if isinstance(self.about, str) else sentence(self.about)
        return text.partition(";")[0].rstrip(".") + "."


RULES = [
    Alert("EdgeDown", 'up{job="sdfeel"} == 0', "2m", "critical",
          "The edge does not answer on its metrics port."),
    Alert("ClientDown", 'up{job="sdfeel-clients"} == 0', "10m", "warning",
          "The client does not answer on its metrics port."),
    Alert("ClientWithoutEdge", "sdfeel_client_connected == 0", "10m", "warning",
          facts.EdgeUnreachable),
    Alert("ClientModelsRefused",
          'increase(sdfeel_client_uploads_total{verdict="refused"}[10m]) > 0', "0m", "warning",
          facts.ModelRefused),
    Alert("EdgeStandsStill", f"changes(sdfeel_period[15m]) == 0 and {TRAINS}", "1m", "critical",
          "No period went by in 15 minutes."),
    Alert("EdgeRestarts", 'changes(process_start_time_seconds{job="sdfeel"}[1h]) > 3', "0m",
          "warning", "The edge was started more than three times in an hour."),
    Alert("NoClients", f"sdfeel_clients == 0 and {TRAINS}", "5m", "warning", facts.NoClients),
    Alert("LinkDown", f"sdfeel_links_up < max_over_time(sdfeel_links_up[1d]) and {TRAINS}", "2m",
          "warning", facts.LinkDown),
    Alert("LinkUnused",
          'increase(sdfeel_link_exchanges_total{outcome="skipped"}[15m]) > 0 unless '
          'ignoring(outcome) increase(sdfeel_link_exchanges_total{outcome="used"}[15m]) > 0',
          "5m", "warning", facts.Exchange),
    Alert("Jumps", "increase(sdfeel_jumps_total[1h]) > 3", "0m", "warning", facts.Jump),
    Alert("DiskProblem", "sdfeel_state_disk_problem == 1", "1m", "critical", facts.DiskProblem),
    Alert("LogLost", "sdfeel_log_lines_lost > 0", "1m", "warning", facts.LogLost),
    Alert("CertificateEnds", "sdfeel_certificate_days < 0.2", "10m", "warning",
          facts.CertificateEnds),
    Alert("CertificateExpired", "sdfeel_certificate_days <= 0", "1m", "critical",
          facts.CertificateExpired),
    Alert("ModelsRefused", 'increase(sdfeel_uploads_total{verdict="refused"}[10m]) > 0', "0m",
          "warning", facts.UploadRefused),
    Alert("ModelsLate",
          'sum without (verdict) (increase(sdfeel_uploads_total{verdict="late"}[1h])) > '
          "0.2 * sum without (verdict) (increase(sdfeel_uploads_total[1h]))",
          "15m", "warning", facts.UploadLate),
    Alert("PeersRefused", f'increase(sdfeel_refused_total{{kind=~"{INTRUDERS}"}}[10m]) > 0', "0m",
          "warning", "A node said what it may not say: its file is wrong, or worse."),
    Alert("HandshakesRefused", "increase(sdfeel_handshakes_refused_total[10m]) > 10", "0m",
          "warning", facts.HandshakeRefused),
]  # fmt: skip


def sentence(fact: type[Fact]) -> str:
    """Return what a fact means."""
    return " ".join((fact.__doc__ or "").split())


# The page.

HEAD = """# Events, metrics, alerts

What does a line of a node's log mean, what can Prometheus read, and what should wake somebody? The
tables are made from the code by `docs/observing.py`; [deploying](deployment.md) says what to do.

A line of a log is a JSON object with `time`, `node`, `event` and the fields of the event. A field
in brackets is there if there is something to say.

With `audit = true` in the file, `before`, `after` and `moved` are a linear function of the model:
anybody can add up from the logs that the weighted mean was kept.
"""

METRICS = """## Metrics of an edge

On its `metrics` address, beside those of the process (`process_...`).

"""

CLIENT_METRICS = """## Metrics of a client

Of `sdfeel client ... --metrics HOST:PORT`, beside those of the process.

"""

WATCHING = """## Prometheus and Grafana

How do I get graphs and alerts? Give the edges a `metrics` address, clients `--metrics`, and
Prometheus this; the alerts ask for the names `sdfeel` and `sdfeel-clients`:

```yaml
rule_files: [alerts.yml]
scrape_configs:
  - job_name: sdfeel
    static_configs:
      - targets: ["north.example.org:9101", "south.example.org:9101"]
  - job_name: sdfeel-clients
    static_configs:
      - targets: ["phone-1.example.org:9101"]
```

`alerts.yml` and `dashboard.json`, which Grafana imports, are in `examples/deployment`. Look at the
numbers in the rules: they are for periods of seconds or minutes, and certificates of a day.
"""

TITLES = {
    "edge": "Events of an edge",
    "client": "Events of a client",
    "node": "Events of both",
}


def page() -> str:
    """Return docs/events.md."""
    parts = [HEAD]
    for teller, title in TITLES.items():
        rows = [
            (f"`{fact.event}`", _fields(fact), sentence(fact) + _often(fact))
            for fact in FACTS
            if fact.teller == teller
        ]
        parts.append(f"## {title}\n\n" + _table(("event", "fields", "means"), rows))
    parts += [METRICS + _metrics(Metrics()), CLIENT_METRICS + _metrics(ClientMetrics()), WATCHING]
    rules = [
        (f"`Sdfeel{rule.name}`", f"`{rule.when}`", rule.sentence, rule.event and f"`{rule.event}`")
        for rule in RULES
    ]
    parts.append("## Alerts\n\n" + _table(("alert", "when", "means", "event"), rules))
    return "\n".join(parts)


def _metrics(metrics: Metrics | ClientMetrics) -> str:
    rows = [
        (f"`{metric.name}`", metric.kind, ", ".join(f"`{x}`" for x in metric.labels), metric.about)
        for metric in metrics.described
    ]
    return _table(("metric", "kind", "labels", "means"), rows)


def _fields(fact: type[Fact]) -> str:
    kinds = get_type_hints(fact, vars(facts) | {"Mapping": Mapping})
    names = []
    for field in dataclasses.fields(fact):  # type: ignore[arg-type]
        if getattr(kinds[field.name], "__origin__", None) is Mapping:
            names.append("one for each value")
        elif field.default is dataclasses.MISSING:
            names.append(f"`{field.name}`")
        else:
            names.append(f"(`{field.name}`)")
    return ", ".join(names)


def _often(fact: type[Fact]) -> str:
    if fact.repeats:
        return " Told the first time, and at each doubling of `times`."
    if fact.limit is None:
        return ""
    most, seconds, by = fact.limit
    same = f" of the same {' and '.join(f'`{name}`' for name in by)}" if by else ""
    lines = "a line" if most == 1 else f"{most} lines"
    period = "a second" if seconds == 1 else f"{seconds:g} s"
    return f" At most {lines} in {period}{same}; `count` has those since the last."


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in cells)


# What Prometheus and Grafana read.


def alerts() -> str:
    """Return the rules as YAML; a string of JSON is one of YAML."""
    lines = ["# Made by docs/observing.py.", "groups:", "  - name: sdfeel", "    rules:"]
    for alert in RULES:
        lines += [
            f"      - alert: Sdfeel{alert.name}",
            f"        expr: {json.dumps(alert.when)}",
            f"        for: {alert.during}",
            f"        labels: {{severity: {alert.severity}}}",
            "        annotations:",
            f"          summary: {json.dumps(alert.sentence)}",
        ]
        if alert.event:
            lines.append(f"          event: {alert.event}")
    return "\n".join(lines) + "\n"


def dashboard() -> str:
    """Return a Grafana dashboard with a panel for each metric."""
    shown = [metric for metric in known_metrics() if metric.kind != "info"]
    panels = [_panel(number, metric) for number, metric in enumerate(shown)]
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    edges = {
        "name": "edge",
        "type": "query",
        "label": "Edge",
        "datasource": SOURCE,
        "query": "label_values(sdfeel_period, instance)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }
    board = {
        "title": "sdfeel",
        "uid": "sdfeel",
        "tags": ["sdfeel"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, edges]},
        "panels": panels,
    }
    return json.dumps(board, indent=1) + "\n"


SOURCE = {"type": "prometheus", "uid": "${source}"}
COLUMNS, WIDTH, HEIGHT = 3, 8, 7
SHOWN_AS = {"counter": ", per second", "histogram": ", 9 of 10"}


def _panel(number: int, metric: Described) -> dict[str, Any]:
    row, column = divmod(number, COLUMNS)
    names = " ".join(f"{{{{{name}}}}}" for name in ("instance", *metric.labels))
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": metric.about + SHOWN_AS.get(metric.kind, ""),
        "description": metric.name,
        "datasource": SOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "targets": [{"refId": "A", "expr": _query(metric), "legendFormat": names}],
    }


def _query(metric: Described) -> str:
    is_client = metric.name.startswith("sdfeel_client_") and "client" not in metric.labels
    of = '{job="sdfeel-clients"}' if is_client else '{instance=~"$edge"}'
    if metric.kind == "counter":
        return f"rate({metric.name}{of}[5m])"
    if metric.kind == "histogram":
        by = ", ".join(("le", "instance", *metric.labels))
        return f"histogram_quantile(0.9, sum by ({by}) (rate({metric.name}_bucket{of}[5m])))"
    return f"{metric.name}{of}"


# All of them.

FILES = {PAGE: page, ALERTS: alerts, DASHBOARD: dashboard}


def known_metrics() -> list[Described]:
    """Return the metrics of edges and clients; those of both once."""
    of_both = {metric.name: metric for metric in (*Metrics().described, *ClientMetrics().described)}
    return list(of_both.values())


def unknown_metrics(text: str) -> set[str]:
    """Return the metrics of ours that a text names and no edge has."""
    known = set()
    for metric in known_metrics():
        known |= {metric.name, f"{metric.name}_bucket"}
    return set(re.findall(r"\bsdfeel_\w+", text)) - known


def stale() -> Iterator[Path]:
    """Yield the files that are not as the code says."""
    for path, make in FILES.items():
        file = ROOT / path
        if not file.exists() or file.read_text(encoding="utf-8") != make():
            yield path


def main() -> None:
    """Write the files, or see whether they are as the code says."""
    found = [*stale()]
    if "--check" not in sys.argv:
        for path in found:
            (ROOT / path).write_text(FILES[path](), encoding="utf-8")
    elif found:
        names = ", ".join(map(str, found))
        sys.exit(f"not as the code says: {names}; run python docs/{Path(__file__).name}")


if __name__ == "__main__":
    main()
