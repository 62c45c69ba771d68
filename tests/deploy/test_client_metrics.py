"""What a client counts, and where Prometheus finds it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import toy
from harness import World, deploy, free_ports

from sdfeel import __version__
from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.http import serving_metrics
from sdfeel.deploy.facts.metrics import COUNTED_OF_CLIENTS, ClientMetrics
from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.shared_settings import SharedSettings
from sdfeel.errors import InputError


def get(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=10) as answer:  # noqa: S310 - ours
            return answer.status, answer.read().decode()
    except HTTPError as problem:
        return problem.code, ""


def test_a_client_counts_what_it_does(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(2,), periods=5)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all()
            client = world.clients["c0"]
            await world.finish()
            value = client.metrics.value
            assert value("sdfeel_client_uploads_total", verdict="accepted") == 5
            assert value("sdfeel_client_period") == 5
            assert value("sdfeel_client_training_seconds_count") == 5
            assert value("sdfeel_client_waiting_seconds_count") == 4
            for way in ("in", "out"):
                assert value("sdfeel_client_model_bytes_total", direction=way) == 5 * 4 * toy.SIZE
            assert value("sdfeel_certificate_days") > 0
            assert value("sdfeel_client_connected") == 0, "it has gone home"

    asyncio.run(run())


def test_prometheus_finds_it_and_readiness_is_having_an_edge() -> None:
    metrics, (port,) = ClientMetrics(), free_ports(1)
    is_there = False
    with serving_metrics(f"127.0.0.1:{port}", metrics, lambda: is_there):
        url = f"http://127.0.0.1:{port}"
        assert get(f"{url}/readyz")[0] == 503
        is_there = True
        assert get(f"{url}/readyz")[0] == get(f"{url}/healthz")[0] == 200
        status, text = get(f"{url}/metrics")
        assert status == 200
        assert f'version="{__version__}"' in text
        assert "process_resident_memory_bytes" in text


@pytest.mark.parametrize("address", ["here", "127.0.0.1:many", "127.0.0.1:99999", "203.0.113.1:1"])
def test_an_address_that_is_none_is_named(address: str) -> None:
    with (
        pytest.raises(InputError, match="--metrics"),
        serving_metrics(address, ClientMetrics(), lambda: True),
    ):
        pass


def test_every_verdict_is_counted_where_it_belongs() -> None:
    metrics = ClientMetrics()
    metrics.add(facts.ModelLate(period=1, reason=""))
    metrics.add(facts.ModelRefused(period=1, reason=""))
    metrics.add(facts.TaskRefused(edge="a", kind="task", reason=""))
    metrics.add(facts.Connected(edge="a"))
    assert metrics.value("sdfeel_client_uploads_total", verdict="late") == 1
    assert metrics.value("sdfeel_client_uploads_total", verdict="refused") == 1
    assert metrics.value("sdfeel_refused_total", kind="task") == 1
    assert {kind.teller for kind in COUNTED_OF_CLIENTS} == {"client"}


def test_a_hello_without_settings_is_compared_too(tmp_path: Path) -> None:
    """Who leaves them out has the defaults, and is told which field differs from them."""
    deployment = deploy(tmp_path, sizes=(1,), periods=5, tau1=3, secure=False)
    settings = SharedSettings.of_clients(deployment)
    hello = v1.Hello(protocol=PROTOCOL, deployment=deployment.digest)
    with pytest.raises(Refused, match=r"schedule\.tau1"):
        settings.check(hello)
    hello.settings.extend(settings.tell())
    settings.check(hello)
