"""Logs, metrics, health, status, and robust averaging in a deployment."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from io import StringIO
from pathlib import Path

import grpc
import numpy as np
import pytest
import toy
from harness import World, deploy, free_ports
from rich.console import Console

from sdfeel.deploy.cluster.session import WORDS, Session
from sdfeel.deploy.edge.edge import EdgeServer
from sdfeel.deploy.facts.metrics import Metrics
from sdfeel.deploy.operate.status import ask, status_table
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.wire.grpc_transport import open_channel


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - loopback
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as problem:
        with problem:
            return problem.code, problem.read().decode()


def test_status_metrics_and_health(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, periods=30)
    (port,) = free_ports(1)
    first = deployment.edges[0].model_copy(update={"metrics": f"127.0.0.1:{port}"})
    deployment = deployment.model_copy(update={"edges": [first, *deployment.edges[1:]]})

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_edge("a")
            status, _ = await asyncio.to_thread(get, f"http://127.0.0.1:{port}/readyz")
            assert status == 503, "nobody is there yet"
            await world.start_edge("b")
            rows = await ask(deployment, timeout=5.0)
            assert [bool(row.problem) for row in rows] == [False, False, True]
            await world.start_edge("c")
            for client in deployment.clients:
                number = int(client.name[1:])
                world.start_client(client.name, toy.ToyTrainer(number, client.samples, delay=0.02))
            await world.until(lambda: all(edge.done >= 3 for edge in world.edges.values()))
            rows = await ask(deployment, timeout=5.0)
            for path in ("healthz", "readyz"):
                status, _ = await asyncio.to_thread(get, f"http://127.0.0.1:{port}/{path}")
                assert status == 200
            _, text = await asyncio.to_thread(get, f"http://127.0.0.1:{port}/metrics")
            assert (await asyncio.to_thread(get, f"http://127.0.0.1:{port}/x"))[0] == 404
        assert all(row.period >= 3 and row.ready and len(row.clients) == 2 for row in rows)
        assert rows[0].links["b"].up
        assert rows[0].disagreement > 0
        out = StringIO()
        Console(file=out, width=200).print(status_table(rows, "test"))
        assert "2/2" in out.getvalue()
        for name in (
            "sdfeel_period",
            "sdfeel_participants 2.0",
            'sdfeel_phase_seconds_count{phase="collect"}',
            'sdfeel_model_bytes_total{direction="in",peers="clients"}',
            'sdfeel_link_exchanges_total{outcome="used",peer="b"}',
            'sdfeel_disagreement{peer="c"}',
        ):
            assert name in text, name

    asyncio.run(run())


def test_logs_are_json_lines_without_secrets(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1,), periods=3)
    out = StringIO()

    async def run() -> None:
        async with World(deployment) as world:
            edge = EdgeServer(deployment, "a", tmp_path / "state" / "a", out)
            await edge.start()
            world.edges["a"] = edge
            world.tasks["a"] = asyncio.create_task(edge.run())
            world.start_client("c0")
            await world.finish()

    asyncio.run(run())
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {"listening", "client-up", "period", "finished"} <= {line["event"] for line in lines}
    assert all({"time", "node", "event"} <= set(line) for line in lines)
    assert not re.search("PRIVATE|BEGIN", out.getvalue())


@pytest.mark.parametrize(
    ("rule", "bound", "spoiled"),
    [("mean", 0, True), ("mean", 100, False), ("median", 0, False), ("trimmed", 0, False)],
)
def test_a_poisoner_in_a_cluster(tmp_path: Path, rule: str, bound: float, spoiled: bool) -> None:
    """One of four clients sends a constant far away; only a mean without bound follows it."""
    averaging = {"rule": rule, "trim": 0.3, "bound": bound}
    deployment = deploy(tmp_path, sizes=(4,), periods=10, averaging=averaging)

    async def run() -> float:
        async with World(deployment) as world:
            await world.start_edge("a")
            for number, client in enumerate(deployment.clients):
                trainer = toy.ToyTrainer(number, client.samples)
                trainer.poison = 1000.0 if number == 0 else None
                world.start_client(client.name, trainer)
            await world.finish()
            return float(np.abs(world.edges["a"].model.array()).max())

    assert (asyncio.run(run()) > 100) == spoiled


def test_two_hundred_clients_on_one_edge_keep_their_schedule(tmp_path: Path) -> None:
    deployment = deploy(
        tmp_path, sizes=(200,), periods=4, deadlines={"round": 60.0, "exchange": 80.0, "ping": 30.0}
    )

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all()
            await world.finish()
            assert not world.events("deadline")
            periods = world.events("period")
            assert [len(line["participants"]) for line in periods] == [200] * 4

    asyncio.run(run())


def test_a_connection_without_a_word_is_ended_soon(tmp_path: Path) -> None:
    """Else one certificate could take all the connections that an edge may have."""
    deployment = deploy(tmp_path, sizes=(1,), periods=9999)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_edge("a")
            credentials = Credentials(deployment, "client", "c0")
            channel = open_channel(deployment, credentials, "a")
            async with asyncio.timeout(30):
                await channel.channel_ready()
                await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
            await channel.close()

    asyncio.run(run())


def test_a_client_that_never_reads_does_not_fill_the_memory() -> None:
    closed = []

    class Deaf:
        def close(self, reason: str) -> None:
            closed.append(reason)

    session = Session(v1.Hello(name="c0"), Deaf(), Metrics())
    for period in range(WORDS):
        session.receipt(period, v1.Verdict.REFUSED, "nonsense")
    assert not closed
    for period in range(10_000):
        session.receipt(period, v1.Verdict.REFUSED, "nonsense")
        assert len(session.outbox.words) <= WORDS
    assert closed
