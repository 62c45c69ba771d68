"""Renewed, revoked and half-copied certificates, in deployments on the network in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from twin import End
from twin_identity import TwinAuthority
from twin_world import TwinWorld, make_deployment, make_edges_cheap, small
from virtual import VirtualLoop

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.edge import edge as edge_module
from sdfeel.deploy.peers import dialler
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.provision import Authority, provision


@pytest.fixture
def authority(monkeypatch: pytest.MonkeyPatch) -> TwinAuthority:
    """Of edges that look at certificates as often as real ones do."""
    seconds = edge_module.WATCH_SECONDS, dialler.RENEWAL_SECONDS
    make_edges_cheap(monkeypatch)
    monkeypatch.setattr(edge_module, "WATCH_SECONDS", seconds[0])
    monkeypatch.setattr(dialler, "RENEWAL_SECONDS", seconds[1])
    made = TwinAuthority()
    made.install(monkeypatch)
    return made


def play(
    story: Callable[[TwinWorld], Awaitable[None]], deployment: Deployment | None = None
) -> None:
    """A deployment whose periods do not end while the story is told."""
    deployment = deployment or small("pair", "paper", 10**6)[0]
    topology = Topology(deployment)
    loop = VirtualLoop(1, longest=0.3)

    async def main() -> None:
        world = TwinWorld(deployment, topology, 1, loop)
        await world.start_all()
        await asyncio.sleep(3.0)
        await story(world)

    loop.run(main())


def test_a_revoked_neighbour_is_left_also_after_a_renewal(
    authority: TwinAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the old stream is heard of after the answer on the new one, or before it."""
    close = End.close

    def close_later(self: End, reason: str = "") -> None:
        self.net.loop.call_later(0.1, close, self, reason)

    monkeypatch.setattr(End, "close", close_later)

    async def story(world: TwinWorld) -> None:
        near, far = world.edges["e00"], world.edges["e01"]  # the first of the file dials
        link = near.links[far.name]
        authority.renew(near.name)
        await asyncio.sleep(5.0)
        assert (link.up, link.generation) == (True, 2), "the renewed one has dialled again"
        authority.revoke(far.name)
        await asyncio.sleep(2.0)
        assert not link.up
        assert "revoked" in str([x for x in near.log.recent if x["event"] == "dial-failed"])

    play(story)


def test_an_edge_that_is_replacing_a_stream_can_be_stopped(
    authority: TwinAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new stream is not answered in time, and closing the old one takes long."""

    async def wait_closed(self: End) -> None:
        await asyncio.sleep(10.0)

    async def story(world: TwinWorld) -> None:
        world.net.slow |= {("e00", "e01"): 0.5, ("e01", "e00"): 0.5}
        monkeypatch.setattr(End, "wait_closed", wait_closed)
        authority.renew("e00")
        await asyncio.sleep(3.0)
        async with asyncio.timeout(60.0):
            await world.edges["e00"].stop()

    play(story)


@pytest.mark.parametrize("averager", ["paper", "all-reduce"])
def test_a_certificate_that_is_copied_by_halves_changes_nothing(
    tmp_path: Path, averager: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With real files. The last good certificate counts, and others are still looked after."""
    make_edges_cheap(monkeypatch)
    monkeypatch.setattr(edge_module, "WATCH_SECONDS", 0.5)
    monkeypatch.setattr(dialler, "RENEWAL_SECONDS", 0.5)
    security = {"folder": str(tmp_path)}
    deployment = make_deployment(
        [1, 1, 1], [("e00", "e01"), ("e01", "e02")], 10**6, averager, security=security
    )
    provision(deployment)
    own, revoked = tmp_path / "edge" / "e01.pem", tmp_path / "revoked.pem"
    nobody = revoked.read_bytes()
    Authority(tmp_path).revoke([("edge", "e00"), ("edge", "e02"), ("client", "c1")])
    others = revoked.read_bytes()
    revoked.write_bytes(nobody)

    async def story(world: TwinWorld) -> None:
        edge = world.edges["e01"]
        whole = own.read_bytes()
        own.write_bytes(whole[: len(whole) // 2])
        world.net.cut("e00", "e01")  # links that end and come are signed for
        await asyncio.sleep(5.0)
        assert not world.tasks["e01"].done()
        assert edge.links["e00"].up
        done = edge.done
        revoked.write_bytes(others)
        await asyncio.sleep(5.0)
        assert edge.done > done
        assert not edge.links["e02"].up, "the one that it dials is looked at"
        own.write_bytes(whole)
        provision(deployment, only="e01")
        await asyncio.sleep(1.0)
        assert own.read_bytes() == edge.credentials.own_pem() != whole, "the new one counts"

    play(story, deployment)
