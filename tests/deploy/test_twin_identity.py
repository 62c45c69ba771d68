"""Renewed, revoked and half-copied certificates, in deployments on the network in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from twin import End
from twin_identity import TwinAuthority
from twin_world import TwinWorld, make_edges_cheap, small
from virtual import VirtualLoop

from sdfeel.deploy.link import dialler
from sdfeel.deploy.node import edge as edge_module


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


def play(story: Callable[[TwinWorld], Awaitable[None]], shape: str = "pair") -> None:
    """A deployment whose periods do not end while the story is told."""
    deployment, topology = small(shape, "paper", 10**6)
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
