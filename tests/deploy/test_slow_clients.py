"""How long an edge waits is learned; a slow client takes part when it delivers."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from twin_world import SIZE, TwinWorld, make_deployment
from virtual import VirtualLoop

from sdfeel.deploy.cluster.averaging import Upload
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.waiting import SHORT, SLOW, UsualTimes

RING = [("e00", "e01"), ("e01", "e02"), ("e00", "e02")]
DEADLINES = {"round": 10.0, "exchange": 11.0, "ping": 0.4, "retry": 0.4, "home": 1.0}


class SlowClient(VirtualLoop):
    """Training takes c0 `slow` seconds, and the others a twentieth."""

    slow = 0.05

    def run_in_executor(self, _executor: Any, work: Any, *args: Any) -> asyncio.Future[Any]:
        function = getattr(work, "args", [None])[0]
        is_training = getattr(function, "__name__", "") == "_carry_out"
        is_slow = is_training and function.__self__.name == "c0"
        future = self.create_future()
        delay = self.slow if is_slow else 0.05 if is_training else 0.001
        self.call_later(delay, self._finish, future, lambda: self._do(work, args))
        return future


def play(slow: dict[tuple[str, str], float], seconds: float, training: float = 0.05) -> TwinWorld:
    deployment = make_deployment((3, 3, 3), RING, 10**6, "paper", guests=False, deadlines=DEADLINES)
    loop = SlowClient(1)
    loop.slow = training

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, Topology(deployment), 1, loop)
        world.checker.saved = lambda _name: None  # type: ignore[method-assign] # for short histories
        world.net.slow |= slow
        await world.start_all()
        await asyncio.sleep(seconds)
        return world

    return loop.run(main())


def lines(world: TwinWorld, node: str, event: str) -> list[dict[str, Any]]:
    return [line for line in world.edges[node].log.recent if line["event"] == event]


@pytest.mark.usefixtures("cheap")
def test_a_client_that_takes_3_of_10_seconds_does_not_stop_its_cluster() -> None:
    """Where the others take a twentieth of a second; its work counts when it is there."""
    calm = play({}, 40.0).edges["e00"].carrier.period
    world = play({}, 40.0, training=3.0)
    assert world.edges["e00"].carrier.period >= 0.8 * calm
    taken = lines(world, "e00", "taken-late")
    assert 8 <= len(taken) <= 13, "one each three seconds"
    assert {line["client"] for line in taken} == {"c0"}
    accepted = world.clients["c0"].accepted
    assert len(taken) <= len(accepted) <= len(taken) + 1, "the first was waited for"
    took_part = [line for line in lines(world, "e00", "period") if "c0" in line["participants"]]
    assert len(took_part) == len(accepted)


@pytest.mark.usefixtures("cheap")
def test_an_edge_that_answers_late_does_not_hold_up_its_neighbours() -> None:
    """At nine tenths of the deadline, where others answer at once."""
    calm = play({}, 60.0).edges["e00"].carrier.period
    world = play({("e02", "e00"): 9.0, ("e02", "e01"): 9.0}, 60.0)
    assert world.edges["e00"].carrier.period >= 0.8 * calm


def test_the_limit_is_a_few_times_what_half_of_them_take() -> None:
    times = UsualTimes(60.0)
    assert times.limit == 60.0, "nothing is known"
    for name in "abc":
        times.answered(name, 40.0)
    assert times.limit == 60.0, "the first answers prove nothing"
    times.answered("a", 1.0)
    assert times.limit == SLOW * 1.0
    times.answered("b", 0.01)
    assert times.limit == 60.0 / SHORT, "never too short"
    assert all(map(times.is_waited_for, "abcd")), "and so is one that is new"
    times.answered("c", 2.0)
    assert times.limit == 10.0
    times.answered("c", 10.5)
    assert not times.is_waited_for("c")
    times.answered("c", 10.0)
    assert times.is_waited_for("c")
    times.missed("c")
    assert not times.is_waited_for("c")
    times.answered("a", 50.0)
    times.answered("b", 50.0)
    assert times.limit == 60.0, "never above the deadline"


def test_a_late_update_is_added_to_the_model_of_now(tmp_path: Any) -> None:
    begun, now = np.arange(SIZE), 5.0 * np.ones(SIZE)
    update = np.array([0.5, -1.0, 2.0])
    upload = Upload(as_vector(begun + update), 1.0, 0, 3, as_vector(begun))
    late = upload.since(as_vector(now), tmp_path)
    np.testing.assert_allclose(late.vector.array(), now + update)
    assert upload.since(as_vector(begun), tmp_path) is upload
