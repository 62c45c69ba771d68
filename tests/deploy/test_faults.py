"""Whatever goes wrong, training goes on, the weighted mean is kept, and the fault has a name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import coded_faults
import identity_faults
import message_faults
import node_faults
import numpy as np
import operator_faults
import pytest
import toy
import twin_exchange_faults
import twin_trust_faults
from faults import CASES, Case, Fault, refused
from harness import World, deploy
from liar import Liar
from twin_faults import TWIN_CASES, TwinCase
from twin_world import TwinWorld, make_deployment, make_edges_cheap, secured
from virtual import VirtualLoop

from sdfeel.deploy.peers.agreement import Standing
from sdfeel.deploy.topology import Topology

assert coded_faults
assert identity_faults
assert message_faults
assert node_faults
assert operator_faults
assert twin_exchange_faults
assert twin_trust_faults

RING = [("e00", "e01"), ("e01", "e02"), ("e02", "e03"), ("e00", "e03")]


def test_every_fault_has_a_case() -> None:
    assert set(CASES) | set(TWIN_CASES) == set(Fault)
    assert not set(CASES) & set(TWIN_CASES)
    assert len(Fault) >= 120


@pytest.mark.parametrize("fault", CASES, ids=lambda fault: fault.name.lower())
def test_training_goes_on(fault: Fault, tmp_path: Path) -> None:
    asyncio.run(_run(CASES[fault], tmp_path))


@pytest.mark.parametrize("fault", TWIN_CASES, ids=lambda fault: fault.name.lower())
def test_training_goes_on_in_memory(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    make_edges_cheap(monkeypatch)
    case = TWIN_CASES[fault]
    codecs = {"between": case.codec}
    deployment = make_deployment([2, 2, 2, 2], RING, case.periods, case.averager, codecs=codecs)
    loop = VirtualLoop(7, longest=0.1)
    world = TwinWorld(deployment, Topology(deployment), seed=7, loop=loop)
    if not case.secured:
        loop.run(_run_twin(case, world))
        return
    with secured() as authority:
        authority.clocks.now, world.net.authority = loop.time, authority
        loop.run(_run_twin(case, world))


async def _run_twin(case: TwinCase, world: TwinWorld) -> None:
    honest = world.topology.at(0).edges[:-1] if case.liar else world.topology.at(0).edges
    before = world.mean(honest)
    if case.liar is not None:
        await Liar(world, case.liar, **case.hello).listen()
    for name in (*honest, *world.topology.at(0).clients):
        if name not in case.without:
            await world.start(name)
    acting = asyncio.ensure_future(case.act(world)) if case.act is not None else None
    while not _is_over(world, honest):
        assert world.loop.time() < 90, world.where()
        await asyncio.sleep(0.1)
    if acting is not None and (acting.done() or case.codec != "float32"):
        assert acting.done(), "its stage was not reached as often as it was to be cut"
        acting.result()
    np.testing.assert_allclose(world.mean(honest), before, atol=1e-4)
    how, _, kind = case.seen.partition(":")
    lines = [line for edge in world.edges.values() for line in edge.log.recent] + world.past
    if kind:
        kinds = {line["kind"] for line in lines if line["event"] in ("refused", "peer-refused")}
        assert kind in kinds
    else:
        assert how in {line["event"] for line in lines}


def _is_over(world: TwinWorld, honest: Sequence[str]) -> bool:
    """Every period is made, nothing is owed, and nobody is in doubt."""
    if not all(name in world.edges for name in honest):
        return False
    edges = [world.edges[name] for name in honest]
    states = [t.state for edge in edges for t in edge.links.agreement.open.values()]
    return Standing.IN_DOUBT not in states and all(
        edge.phase == "finished" and not edge.links.agreement.owed for edge in edges
    )


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
