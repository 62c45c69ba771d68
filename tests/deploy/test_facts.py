"""Facts: what the log writes of them, what is counted, and what the documentation says."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from sdfeel.deploy.facts import facts, logs
from sdfeel.deploy.facts.facts import FACTS, Fact
from sdfeel.deploy.facts.logs import Log
from sdfeel.deploy.facts.metrics import COUNTED, Metrics
from sdfeel.deploy.facts.stream import Facts, Recent

ROOT = Path(__file__).parents[2]


def load_observing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("observing", ROOT / "docs" / "observing.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


observing = load_observing()


# Lines.


def test_a_line_has_the_name_and_the_fields_but_no_defaults() -> None:
    log = Log("a", None)
    log.add(facts.LinkDown(peer="b"))
    log.add(facts.LinkDown(peer="b", reason="no file"))
    log.add(facts.Uploaded(period=3, trained=0.5, measures={"batch_loss": 0.25}))
    for line in log.recent:
        assert line.pop("time") > 0
    assert log.recent == [
        {"node": "a", "event": "link-down", "peer": "b"},
        {"node": "a", "event": "link-down", "peer": "b", "reason": "no file"},
        {"node": "a", "event": "uploaded", "period": 3, "trained": 0.5, "batch_loss": 0.25},
    ]


def test_a_flood_of_the_same_is_counted_and_told_a_few_times() -> None:
    log, metrics, recent = Log("a", None), Metrics(), Recent()
    tell = Facts(log.add, metrics.add, recent.add).tell

    async def run() -> None:
        for number in range(100):
            for client in ("c0", "c1"):
                kind = "hash" if number % 2 else "shape"
                tell(facts.UploadRefused(kind=kind, reason="", client=client, period=number))
            tell(facts.UploadLate(client="c0", period=1, now=2))

    asyncio.run(run())
    events = [line["event"] for line in log.recent]
    assert events.count("refused") == 4, "one for each kind and client"
    assert events.count("late") == 10
    assert metrics.value("sdfeel_refused_total", kind="hash") == 100
    assert metrics.value("sdfeel_uploads_total", verdict="refused") == 200
    assert metrics.value("sdfeel_uploads_total", verdict="late") == 100
    assert len(recent.since(0)) == 14, "as many as there are lines"


def test_a_line_after_a_flood_says_how_many_it_stands_for() -> None:
    log = Log("a", None)

    async def run() -> None:
        for _ in range(30):
            log.add(facts.PeerRefused(kind="role", reason="no"))
        await asyncio.sleep(1.01)
        log.add(facts.PeerRefused(kind="role", reason="no"))

    asyncio.run(run())
    assert [line.get("count") for line in log.recent] == [None, 30]


def test_the_memory_has_a_few_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "RECENT", 3)
    log = Log("a", None)
    for period in range(10):
        log.add(facts.Accepted(period=period))
    assert [line["period"] for line in log.recent] == [7, 8, 9]


def test_a_period_is_in_the_metrics() -> None:
    metrics = Metrics()
    metrics.add(
        facts.Period(
            period=7, participants=["c0", "c1"], links_used=1, collect=1.0, mix=2.0, save=3.0
        )
    )
    assert metrics.value("sdfeel_period") == 7
    assert metrics.value("sdfeel_participants") == 2
    assert metrics.value("sdfeel_uploads_total", verdict="accepted") == 2
    assert metrics.value("sdfeel_phase_seconds_sum", phase="mix") == 2


# The classes.


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_a_fact_has_a_sentence_and_somebody_tells_it(fact: type[Fact]) -> None:
    assert re.fullmatch(r"[A-Z`][^\n]*\.", fact.__doc__ or "")
    source = ROOT / "src" / "sdfeel" / "deploy"
    files = [path for path in source.rglob("*.py") if path.name != "facts.py"]
    assert any(re.search(rf"\b{fact.__name__}\b", path.read_text("utf-8")) for path in files)


def test_what_is_counted_and_limited_is_told() -> None:
    assert set(COUNTED) <= set(FACTS)
    for fact in FACTS:
        assert fact.limit is None or set(fact.limit.by) <= set(fact.__dataclass_fields__)  # type: ignore[attr-defined]


# The documentation.


def test_the_tables_the_alerts_and_the_dashboard_are_as_the_code_says() -> None:
    assert not [*observing.stale()], "run python docs/observing.py"


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    board = json.loads(observing.dashboard())
    queries = [panel["targets"][0]["expr"] for panel in board["panels"]]
    for text in (*queries, *(rule.when for rule in observing.RULES)):
        assert not observing.unknown_metrics(text)
    assert observing.unknown_metrics("rate(sdfeel_nothing_total[5m])") == {"sdfeel_nothing_total"}


def test_prometheus_understands_the_alerts() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here")
    rules = ROOT / observing.ALERTS
    done = subprocess.run([promtool, "check", "rules", rules], check=True, capture_output=True)
    assert f"{len(observing.RULES)} rules".encode() in done.stdout


def test_the_page_of_failures_names_events_that_there_are() -> None:
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    table = page.partition("| you see |")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| `([a-z-]+)`", table, re.MULTILINE)) - {"count"}
    assert len(named) > 20
    assert named <= {fact.event for fact in FACTS}
