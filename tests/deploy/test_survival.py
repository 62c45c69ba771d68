"""Splits, stops of everything, renewal, and what comes back after an edge died in an exchange."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import toy
from harness import World, deploy, free_ports
from proxy import Mode, Proxy

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.vectors import probe
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.provision import Authority, provision

QUICK = {"round": 1.5, "exchange": 2.0, "ping": 0.6}


def slow_trainers(deployment: Deployment, delay: float) -> dict[str, toy.ToyTrainer]:
    return {
        client.name: toy.ToyTrainer(number, client.samples, delay=delay)
        for number, client in enumerate(deployment.clients)
    }


@pytest.mark.parametrize("averager", ["paper", "finite-time", "all-reduce"])
def test_a_split_network_goes_on_in_parts_and_agrees_again(tmp_path: Path, averager: str) -> None:
    """a-b and c-d, joined by b-c alone: what a path of four is when its middle is cut."""
    links = [("a", "b"), ("b", "c"), ("c", "d")]
    deployment = deploy(
        tmp_path, sizes=(1, 2, 2, 1), links=links, periods=60, averager=averager, deadlines=QUICK
    )
    entry = deployment.edge("c")
    (inner,) = free_ports(1)
    moved = entry.model_copy(update={"listen": f"127.0.0.1:{inner}"})
    edges = [moved if edge.name == "c" else edge for edge in deployment.edges]
    deployment = deployment.model_copy(update={"edges": edges})

    async def run() -> None:
        async with Proxy(int(entry.address[10:]), inner) as proxy, World(deployment) as world:
            # The clients of c reach it directly; only b goes through the proxy.
            direct = entry.model_copy(update={"address": f"127.0.0.1:{inner}"})
            near = [direct if edge.name == "c" else edge for edge in deployment.edges]
            for name in "abcd":
                await world.start_edge(name)
            world.deployment = deployment.model_copy(update={"edges": near})
            trainers = slow_trainers(deployment, 0.02)
            for client in deployment.clients:
                world.start_client(client.name, trainers[client.name])
            await world.until(lambda: all(edge.done >= 3 for edge in world.edges.values()))
            proxy.set(Mode.CUT)
            await world.until(lambda: not world.edges["b"].links["c"].up)
            at = {name: edge.done for name, edge in world.edges.items()}
            await world.until(lambda: all(e.done >= at[n] + 4 for n, e in world.edges.items()))
            assert world.edges["a"].links["b"].used > at["a"]
            assert world.edges["d"].links["c"].used > at["d"]
            proxy.set(Mode.PASS)
            await world.until(lambda: world.edges["b"].links["c"].up)
            joined = world.edges["b"].links["c"].used
            await world.until(lambda: world.edges["b"].links["c"].used > joined + 2)
            await world.finish()
            assert world.audit() > 0
            models = np.stack([edge.model.array() for edge in world.edges.values()])
            if averager != "paper":
                assert np.abs(models - models[0]).max() < 1e-5

    asyncio.run(run())


@pytest.mark.parametrize("averager", ["paper", "all-reduce"])
def test_everything_stopped_and_started_again_goes_on(tmp_path: Path, averager: str) -> None:
    deployment = deploy(tmp_path, periods=14, averager=averager)

    async def until_period(period: int) -> dict[str, int]:
        async with World(deployment) as world:
            await world.start_all(slow_trainers(deployment, 0.01))
            await world.until(lambda: all(edge.done >= period for edge in world.edges.values()))
            return {name: max(client.accepted, default=0) for name, client in world.clients.items()}

    accepted = asyncio.run(until_period(5))

    async def rest() -> None:
        async with World(deployment) as world:
            await world.start_all()
            for client, period in accepted.items():
                edge = deployment.client(client).edge
                assert world.edges[edge].done >= period, "an acknowledged period was lost"
            assert min(edge.done for edge in world.edges.values()) >= 5
            await world.finish()
            assert world.audit() > 0
            assert {edge.done for edge in world.edges.values()} == {14}

    asyncio.run(rest())


def test_certificates_are_renewed_without_stopping(tmp_path: Path) -> None:
    """All nodes get new certificates; the old ones are revoked; no link and no upload is lost."""
    deployment = deploy(tmp_path, periods=80)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all(slow_trainers(deployment, 0.04))
            await world.until(lambda: all(edge.done >= 3 for edge in world.edges.values()))
            up = len(world.events("link-up"))
            authority = Authority(deployment.path(deployment.security.folder))
            nodes = [("edge", edge.name) for edge in deployment.edges]
            nodes += [("client", client.name) for client in deployment.clients]
            old = {node: (authority.folder / node[0] / f"{node[1]}.pem") for node in nodes}
            copies = {node: path.read_bytes() for node, path in old.items()}
            provision(deployment, hours=1)
            await world.until(lambda: len(world.events("renewed")) == len(deployment.clients))
            await world.until(lambda: len(world.events("link-up")) == 2 * up)
            assert all(old[node].read_bytes() != copies[node] for node in nodes)
            await world.finish()
            skipped = sum(k.skipped for e in world.edges.values() for k in e.links.values())
            # Both ends count, and a renewal may cost each of three links the exchange it meets.
            assert skipped <= 6
            assert world.audit() > 0

    asyncio.run(run())


def test_what_a_dead_edge_took_part_in_is_taken_back(tmp_path: Path) -> None:
    """b dies after an exchange and before its checkpoint; a and c take out what b gave them."""
    deployment = deploy(tmp_path, periods=30, deadlines=QUICK)
    topology = Topology(deployment)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all(slow_trainers(deployment, 0.02))
            await world.until(lambda: all(edge.done >= 3 for edge in world.edges.values()))
            b = world.edges["b"]
            held = asyncio.Event()

            async def never(*_: object) -> None:
                held.set()
                await asyncio.sleep(60)

            b.carrier.saver._write = never  # type: ignore[method-assign]
            await asyncio.wait_for(held.wait(), 10)
            await world.kill("b")
            for name in ("c2", "c3"):
                await world.kill(name)
            await world.start_edge("b")
            for name in ("c2", "c3"):
                world.start_client(name)
            await world.until(lambda: {"a", "c"} <= {x["node"] for x in world.events("taken-back")})
            await world.until(lambda: len(world.events("repaired")) >= 2)
            await world.finish()
            assert world.audit(died=("b",)) > 0
            return

    asyncio.run(run())
    assert topology.at(0).share("a") > 0


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1,), periods=4)

    async def run() -> int:
        async with World(deployment) as world:
            await world.start_all()
            await world.finish()
            return world.edges["a"].done

    assert asyncio.run(run()) == 4
    newest = sorted((tmp_path / "state" / "a").glob("*.safetensors"))[-1]
    newest.write_bytes(newest.read_bytes()[:-4])

    async def again() -> None:
        async with World(deployment) as world:
            edge = await world.start_edge("a")
            assert edge.done in (1, 2, 3), "the one before: the disk may skip a period"
            assert world.events("checkpoint-damaged")
            world.start_client("c0")
            await world.finish()
            assert np.isfinite(probe(edge.model))

    asyncio.run(again())
