"""A newer deployment file comes to one edge after the other: until all have it, the older holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from twin_world import TwinWorld, make_deployment, make_edges_cheap
from virtual import VirtualLoop

from sdfeel.deploy.config import Deployment, load_deployment
from sdfeel.deploy.operate.used_file import NAME, used_file
from sdfeel.deploy.topology import Topology

LINKS = [("e00", "e01"), ("e01", "e02")]
PERIODS = 10**6
Story = Callable[[TwinWorld], Awaitable[None]]


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    make_edges_cheap(monkeypatch)


def deployment(sizes: tuple[int, ...], links: Any = LINKS) -> Deployment:
    return make_deployment(sizes, links, PERIODS, "paper")


OLDER = (1, 1, 1)
NEWER = (1, 1, 2)  # the last edge has another client


def play(story: Story) -> TwinWorld:
    older = deployment(OLDER)
    loop = VirtualLoop(3, longest=0.01)

    async def main() -> TwinWorld:
        world = TwinWorld(older, Topology(older), seed=3, loop=loop)
        await world.start_all()
        await asyncio.sleep(1.0)
        await story(world)
        return world

    return loop.run(main())


def lines(world: TwinWorld, event: str, name: str) -> list[dict[str, Any]]:
    return [line for line in world.edges[name].log.recent if line["event"] == event]


async def copy_to(world: TwinWorld, *names: str) -> None:
    for name in names:
        world.kill(name)
        await world.start(name)
        await asyncio.sleep(1.0)


def test_the_older_file_holds_and_everybody_names_who_has_which() -> None:
    """Before, the edge with the newer file exchanged with nobody, then trained alone."""

    async def story(world: TwinWorld) -> None:
        world.deployment = deployment(NEWER)
        await copy_to(world, "e02")
        done, used = world.edges["e02"].done, world.edges["e02"].links["e01"].used
        await asyncio.sleep(2.0)
        assert world.edges["e02"].done > done + 20
        assert world.edges["e02"].links["e01"].used > used + 20, "it exchanges all the time"
        assert [edge.done - world.edges["e00"].done for edge in world.edges.values()] < [3, 3, 3]
        assert "until these edges have it too: e00, e01" in str(world.edges["e02"].warnings)
        for name in ("e00", "e01"):
            assert "another one is at e02" in str(world.edges[name].warnings)
            assert lines(world, "other-file", name)[-1]["edges"] == ["e02"]
        assert lines(world, "older-file-holds", "e02")[-1]["without"] == ["e00", "e01"]

    play(story)


def test_once_all_have_it_the_newer_one_holds_everywhere() -> None:
    async def story(world: TwinWorld) -> None:
        world.deployment = deployment(NEWER)
        await copy_to(world, "e02", "e00")
        world.first = world.mean()
        await copy_to(world, "e01")
        assert {edge.topology.at(0).clients[-1] for edge in world.edges.values()} == {"c3"}
        for edge in world.edges.values():
            assert not edge.warnings
            assert all(link.up for link in edge.links.values())
        used = world.edges["e00"].links["e01"].used
        world.clients.clear()
        await world.start("c3")
        await asyncio.sleep(2.0)
        assert world.edges["e00"].links["e01"].used > used + 20
        periods = lines(world, "period", "e02")
        assert "c3" in periods[-1]["participants"]
        assert {line["event"] for line in world.past} >= {"newer-file-holds"}

    play(story)


def test_an_edge_that_is_new_in_the_file_is_let_in_when_the_others_have_it() -> None:
    async def story(world: TwinWorld) -> None:
        links = [*LINKS, ("e02", "e03")]
        newer = deployment((1, 1, 1, 1), links)
        world.deployment, world.topology = newer, Topology(newer)
        for name in ("e00", "e01", "e02"):
            await copy_to(world, name)
        await asyncio.sleep(1.0)
        assert all(edge.topology.at(0).edges[-1] == "e03" for edge in world.edges.values())
        assert not any(edge.files.warnings for edge in world.edges.values())

    play(story)


def test_one_that_is_killed_on_the_way_goes_on_where_it_was() -> None:
    async def story(world: TwinWorld) -> None:
        world.deployment = deployment(NEWER)
        await copy_to(world, "e02", "e00", "e02")
        assert world.edges["e02"].topology.at(0).clients[-1] == "c2", "still the older one"
        await copy_to(world, "e01", "e00", "e02")
        assert {edge.topology.at(0).clients[-1] for edge in world.edges.values()} == {"c3"}

    play(story)


FILE = """
name = "here"
[schedule]
iterations = 10
[graph]
kind = "path"
[security]
plaintext = true
[[edges]]
name = "a"
address = "127.0.0.1:1"
[[clients]]
name = "c"
edge = "a"
samples = {samples}
"""


def test_the_file_that_was_used_is_in_the_state_folder(tmp_path: Path) -> None:
    file, state = tmp_path / "d.toml", tmp_path / "state"
    state.mkdir()

    def begin(samples: int, extra: str = "") -> tuple[int, int | None]:
        file.write_text(FILE.format(samples=samples) + extra)
        used = used_file(file, load_deployment(file), "a", state)
        used.keep()  # it has started
        newer = used.newer.clients[0].samples if used.newer else None
        return used.deployment.clients[0].samples, newer

    assert begin(10) == (10, None)
    assert begin(10, "[deadlines]\nping = 3.0\n") == (10, None), "no other edge is concerned"
    assert begin(20) == (10, 20)
    assert begin(20) == (10, 20), "until all have it"
    used_file(file, load_deployment(file), "a", state).go_over().keep()
    assert begin(20) == (20, None)
    (state / NAME).write_text("no = [")
    assert begin(30) == (30, None), "a copy that cannot be read holds nobody up"
