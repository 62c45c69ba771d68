"""Certificates that end, clocks that are wrong, disks that lose power, and files that differ."""

from __future__ import annotations

import asyncio
from typing import Any

from faults import Fault
from twin_faults import world
from twin_identity import TwinAuthority
from twin_world import DEADLINES, TwinWorld

HOURS = 3600.0


def trusted(fault: Fault, seen: str, periods: int = 60) -> Any:
    return world(fault, seen, periods=periods, secured=True)


def authority_of(world: TwinWorld) -> TwinAuthority:
    assert world.net.authority is not None
    return world.net.authority


@trusted(Fault.CERTIFICATES_RENEWED_AT_ONCE, "link-down")
async def renewed_at_once(world: TwinWorld) -> None:
    """Of all nodes: everybody dials anew."""
    await asyncio.sleep(0.3)
    for name in (*world.topology.at(0).edges, *world.topology.at(0).clients):
        authority_of(world).renew(name)


@trusted(Fault.EDGE_CERTIFICATE_ENDS, "refused:expired", periods=200)
async def edge_certificate_ends(world: TwinWorld) -> None:
    """And is renewed two seconds later: meanwhile nobody lets that edge in."""
    authority_of(world).renew("e00", seconds=1.0)
    await asyncio.sleep(3.0)
    authority_of(world).renew("e00")


@trusted(Fault.EDGE_CERTIFICATE_REVOKED, "refused:revoked", periods=200)
async def edge_certificate_revoked(world: TwinWorld) -> None:
    await asyncio.sleep(0.2)
    authority_of(world).revoke("e00")
    await asyncio.sleep(2.0)
    authority_of(world).renew("e00")


@trusted(Fault.CLIENT_CERTIFICATE_ENDS, "refused:expired", periods=200)
async def client_certificate_ends(world: TwinWorld) -> None:
    authority_of(world).renew("c0", seconds=0.8)
    await asyncio.sleep(2.5)
    authority_of(world).renew("c0")


async def _wrong_clock(world: TwinWorld, hours: float) -> None:
    """Of one edge, whose links break once: nobody can shake hands with it until it is right."""
    authority_of(world).clocks.wrong["e00"] = hours * HOURS
    for name in ("e00", *world.topology.at(0).edges):
        authority_of(world).renew(name, seconds=HOURS)
    for peer in world.topology.at(0).neighbours("e00"):
        world.net.cut("e00", peer)
    await asyncio.sleep(2.0)
    authority_of(world).clocks.wrong.clear()


@trusted(Fault.CLOCK_BEHIND, "dial-failed", periods=200)
async def clock_behind(world: TwinWorld) -> None:
    await _wrong_clock(world, -2.0)


@trusted(Fault.CLOCK_AHEAD, "dial-failed", periods=200)
async def clock_ahead(world: TwinWorld) -> None:
    await _wrong_clock(world, 2.0)


@trusted(Fault.CLOCK_BACK_AT_A_RESTART, "resumed", periods=100)
async def clock_back(world: TwinWorld) -> None:
    """The numbers of its states begin lower than those that the others know of it."""
    await asyncio.sleep(0.3)
    world.kill("e01")
    authority_of(world).clocks.wrong["e01"] = -200.0
    await world.start("e01")
    await asyncio.sleep(0.5)
    world.net.cut("e01", "e02")


@trusted(Fault.CLOCKS_ALL_WRONG, "period")
async def clocks_all_wrong(world: TwinWorld) -> None:
    """By a day, and by the same: nobody notices."""
    authority = authority_of(world)
    for name in (*world.topology.at(0).edges, *world.topology.at(0).clients):
        authority.clocks.wrong[name] = 24 * HOURS
    world.net.cut("e00", "e01")


async def _tear(world: TwinWorld, *names: str) -> None:
    """Cut the power of these edges while a checkpoint is being flushed."""
    while not any(world.disks[name].found is not world.disks[name].durable for name in names):
        await asyncio.sleep(0.0005)
    for name in names:
        world.kill(name, quietly=True)
    for name in names:
        await world.start(name)


@world(Fault.DISK_TORN, "checkpoint-damaged", periods=60)
async def disk_torn(world: TwinWorld) -> None:
    await _tear(world, "e01")


@world(Fault.DISKS_ALL_TORN, "checkpoint-damaged", "all-reduce", periods=60)
async def disks_all_torn(world: TwinWorld) -> None:
    await _tear(world, *world.topology.at(0).edges)


@world(Fault.DISK_TORN_AFTER_A_CRASH, "resumed", "all-reduce", periods=60)
async def torn_after_a_crash(world: TwinWorld) -> None:
    """Killed while it flushes, back from that checkpoint, which it tells its neighbours, and then
    without power: what it goes on from was flushed first.
    """
    disk = world.disks["e01"]
    while disk.found is disk.durable:
        await asyncio.sleep(0.0005)
    world.kill("e01")
    await world.start("e01")
    await asyncio.sleep(0.02)
    world.kill("e01", quietly=True)
    await world.start("e01")


@world(Fault.DISK_FULL_FOR_A_WHILE, "disk-relief", periods=100)
async def disk_full(world: TwinWorld) -> None:
    disk = world.disks["e01"]
    save = disk.save

    def refuse(_checkpoint: Any) -> Any:
        raise OSError(28, "No space left on device")

    disk.save = refuse  # type: ignore[method-assign]
    await asyncio.sleep(3.0)
    disk.save = save  # type: ignore[method-assign]


@world(Fault.NETWORK_SPLIT, "link-down", "all-reduce", periods=100)
async def network_split(world: TwinWorld) -> None:
    """Two halves, each of which goes on by itself."""
    await asyncio.sleep(0.3)
    for way in (("e01", "e02"), ("e02", "e01"), ("e00", "e03"), ("e03", "e00")):
        world.net.silence(way, 5 * DEADLINES["ping"])


@world(Fault.EDGE_SENDS_INTO_THE_VOID, "link-down", periods=100)
async def into_the_void(world: TwinWorld) -> None:
    """It hears everybody, and nobody hears it."""
    await asyncio.sleep(0.3)
    for name in (*world.topology.at(0).edges, *world.topology.at(0).clients):
        world.net.silence(("e00", name), 4 * DEADLINES["ping"])


@world(Fault.CLIENTS_ALL_DIE, "no-clients", periods=100)
async def clients_all_die(world: TwinWorld) -> None:
    await asyncio.sleep(0.3)
    for name in world.topology.at(0).clients:
        world.kill(name)
    await asyncio.sleep(2.0)
    for name in world.topology.at(0).clients:
        await world.start(name)


async def _newer_file(world: TwinWorld, *names: str) -> None:
    """The clients of one edge may go to another one now; nobody's weight is another."""
    older = world.deployment
    table = older.model_dump(mode="json", exclude_none=True)
    table["clients"][0]["fallbacks"] = ["e03"]
    newer = older.model_validate({**table, "folder": older.folder})
    world.deployment = newer
    await asyncio.sleep(0.2)
    for name in names:
        world.kill(name)
        await world.start(name)
        await asyncio.sleep(0.1)


@world(Fault.FILE_NEWER_AT_ONE_EDGE, "older-file-holds", periods=200)
async def file_newer_at_one(world: TwinWorld) -> None:
    await _newer_file(world, "e01")


@world(Fault.FILE_NEWER_EVERYWHERE, "newer-file-holds", periods=300)
async def file_newer_everywhere(world: TwinWorld) -> None:
    await _newer_file(world, *world.topology.at(0).edges)
