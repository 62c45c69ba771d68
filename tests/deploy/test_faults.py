"""Whatever goes wrong, training goes on, the weighted mean is kept, and the fault has a name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import identity_faults
import message_faults
import node_faults
import operator_faults
import pytest
import toy
from faults import CASES, Case, Fault, refused
from harness import World, deploy

assert identity_faults
assert message_faults
assert node_faults
assert operator_faults


def test_every_fault_has_a_case() -> None:
    assert set(CASES) == set(Fault)
    assert len(CASES) >= 50


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_training_goes_on(fault: Fault, tmp_path: Path) -> None:
    asyncio.run(_run(CASES[fault], tmp_path))


async def _run(case: Case, folder: Path) -> None:
    options: dict[str, Any] = {"periods": 12, "fallback": True, **case.options}
    options["local"] = {"options": {"delay": case.delay}, **options.get("local", {})}
    deployment = deploy(folder, **options)
    async with World(deployment) as world:
        if case.before is not None:
            await case.before(world)
        trainers = {
            client.name: toy.ToyTrainer(number, client.samples, delay=case.delay)
            for number, client in enumerate(deployment.clients)
        }
        await world.start_all(trainers, case.without)
        if "c0" not in case.without:
            await world.until(lambda: all(edge.done >= 2 for edge in world.edges.values()))
        await case.act(world)
        await world.finish()
        assert all(edge.done == options["periods"] for edge in world.edges.values())
        assert world.audit(case.died) > 0
        _check_named(world, case.seen)
        for name in list(world.edges):
            await world.kill(name)


def _check_named(world: World, seen: str) -> None:
    how, _, kind = seen.partition(":")
    if how == "refused":
        assert refused(world, kind) > 0
    elif how == "handshake":
        lines = (line for process in world.processes for line in process.lines())
        found = [line for line in lines if line["event"] == "handshake-refused"]
        assert {line["reason"] for line in found} == {kind}
    else:
        events = {line["event"] for line in world.past}
        assert world.events(seen) or seen in events, f"{seen} in no log"
