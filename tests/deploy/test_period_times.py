"""Where a round's seconds go, by a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="the deployment comes with sdfeel[deploy]")

import toy
from harness import World, deploy
from hypothesis import given
from hypothesis import strategies as st

from sdfeel.deploy.facts.period_times import PARTS, PeriodTimes
from sdfeel.deploy.operate.status import ask


class Clock:
    at = 100.0

    def __call__(self) -> float:
        return self.at


def test_a_round_is_taken_apart() -> None:
    """Two periods make a round: one with an exchange, and one in which a client did not come."""
    now = Clock()
    times = PeriodTimes(now)
    times.begin()
    now.at += 3
    times.came(2.5)
    times.end(collected=10.0, ended=11.0, closes=False)
    assert times.round == {}, "the round is not over"
    now.at += 20
    times.begin()
    now.at += 1
    times.came(0.25)
    now.at += 3
    times.came(1.0)  # the last one decides
    times.exchanged(2.0, waited=0.5)
    times.end(collected=4.0, ended=7.0, closes=True)
    upload, waiting, save = 0.5 + 3.0, 7.0 + 0.5, 1.0 + 1.0
    assert times.round == {
        "compute": 3.5, "upload": upload, "waiting": waiting, "exchange": 1.5, "save": save,
    }  # fmt: skip


@given(
    told=st.floats(allow_nan=True, allow_infinity=True),
    waited=st.floats(allow_nan=False),
    passed=st.floats(0, 1e6),
    exchange=st.floats(0, 1e6),
    rest=st.floats(0, 1e6),
)
def test_no_word_of_a_client_makes_more_seconds(
    told: float, waited: float, passed: float, exchange: float, rest: float
) -> None:
    """Whatever is told, the parts are not negative and add up to what passed here."""
    now = Clock()
    times = PeriodTimes(now)
    now.at += passed
    times.came(told)
    seen = now.at - 100.0
    times.exchanged(exchange, waited)
    times.end(seen, seen + exchange + rest, closes=True)
    assert times.round.keys() == set(PARTS)
    assert all(math.isfinite(seconds) and seconds >= 0 for seconds in times.round.values())
    assert sum(times.round.values()) == pytest.approx(seen + exchange + rest, abs=1e-6)
    assert times.round["compute"] + times.round["upload"] == pytest.approx(seen, abs=1e-9)


@pytest.mark.parametrize(
    "pace", [{"name": "synchronous"}, {"name": "asynchronous", "deadline": 0.2}]
)
def test_an_edge_tells_it(tmp_path: Path, pace: dict[str, object]) -> None:
    """With rounds and without, in its status: nothing negative, and in all what a round took."""
    deployment = deploy(tmp_path, sizes=(1, 1), periods=4, tau2=2, pace=pace, secure=False)

    async def run() -> dict[str, float]:
        async with World(deployment) as world:
            trainers = {
                client.name: toy.ToyTrainer(number, client.samples, delay=0.05)
                for number, client in enumerate(deployment.clients)
            }
            await world.start_all(trainers)
            await world.until(lambda: all(edge.done >= 2 for edge in world.edges.values()))
            rows = await ask(deployment, timeout=20.0)
            assert rows[0].links["b"].received > 0
            return rows[0].phases

    found = asyncio.run(run())
    assert list(found) == list(PARTS)
    assert found["compute"] >= 2 * 0.05
    assert found["exchange"] + found["waiting"] > 0
    assert found["save"] > 0


def test_a_period_that_did_not_happen_is_forgotten() -> None:
    now = Clock()
    times = PeriodTimes(now)
    now.at += 5
    times.came(5.0)
    times.begin()
    times.end(0.0, 1.0, closes=True)
    assert times.round == {**dict.fromkeys(PARTS, 0.0), "save": 1.0}
