"""Nodes that die, freeze, are cut off, lag behind and come back."""

from __future__ import annotations

import asyncio
import shutil
import signal

from faults import Fault, case
from harness import Process, World
from proxy import Mode, Proxy

QUICK = {"deadlines": {"round": 1.5, "exchange": 2.0, "ping": 0.6}}
# On a busy machine, too, an edge waits for a second voice.
PATIENT = {"deadlines": {"round": 4.0, "exchange": 60.0, "ping": 8.0}}


def process(role: str, name: str, descriptors: int = 0):
    """Starts one node as a program of its own, and waits until it works."""

    async def before(world: World) -> None:
        node = Process(world, role, name, descriptors=descriptors)
        event = "listening" if role == "edge" else "edge-unreachable"
        await world.until(lambda: node.log.exists() and node.saw(event))

    return before


def proxied(edge: str):
    """Everybody who dials `edge` goes through a proxy, kept in `world.proxy`."""

    async def before(world: World) -> None:
        from harness import free_ports

        (inner,) = free_ports(1)
        entry = world.deployment.edge(edge)
        port = int(entry.address.rpartition(":")[2])
        moved = entry.model_copy(update={"listen": f"127.0.0.1:{inner}"})
        edges = [moved if e.name == edge else e for e in world.deployment.edges]
        world.deployment = world.deployment.model_copy(update={"edges": edges})
        world.proxy = await Proxy(port, inner).__aenter__()

    return before


@case(
    Fault.CLIENT_KILL, "client-down", without=("c0",), before=process("client", "c0"), options=QUICK
)
async def client_kill(world: World) -> None:
    await world.until(lambda: world.processes[0].saw("accepted"))
    world.processes[0].signal(signal.SIGKILL)


@case(
    Fault.CLIENT_STOP,
    "client-down",
    without=("c0",),
    before=process("client", "c0"),
    options={**QUICK, "periods": 20},
)
async def client_stop(world: World) -> None:
    await world.until(lambda: world.processes[0].saw("accepted"))
    world.processes[0].signal(signal.SIGSTOP)


@case(Fault.CLIENT_CUT, "edge-lost", before=proxied("a"), options={**QUICK, "periods": 40})
async def client_cut(world: World) -> None:
    """The clients of a go to their fallback, and home again."""
    world.proxy.set(Mode.CUT)
    guests = {"c0", "c1"}
    await world.until(lambda: guests <= {line["client"] for line in world.events("client-up", "b")})
    world.proxy.set(Mode.PASS)
    await world.until(lambda: bool(world.events("going-home")))
    await world.finish()
    await world.proxy.__aexit__()


@case(
    Fault.CLIENT_SLOW,
    "deadline",
    options={"deadlines": {"round": 0.3, "exchange": 0.6}, "periods": 6},
)
async def client_slow(world: World) -> None:
    world.clients["c0"].trainer.delay = 0.5
    await world.until(lambda: bool(world.events("deadline", "a")))


@case(Fault.CLIENT_RESTART, "client-down")
async def client_restart(world: World) -> None:
    await world.kill("c0")
    await world.until(lambda: bool(world.events("client-down", "a")))
    world.start_client("c0")
    await world.until(lambda: bool(world.clients["c0"].accepted))


@case(
    Fault.EDGE_KILL,
    "link-down",
    without=("b",),
    before=process("edge", "b"),
    died=("b",),
    options={**QUICK, "periods": 20},
)
async def edge_kill(world: World) -> None:
    """It never comes back: its clients are guests of a for the rest."""
    world.processes[0].signal(signal.SIGKILL)
    await world.until(
        lambda: {"c2", "c3"} <= {line["client"] for line in world.events("client-up", "a")}
    )


@case(
    Fault.EDGE_STOP,
    "link-down",
    without=("b",),
    before=process("edge", "b"),
    options={**QUICK, "periods": 60},
)
async def edge_stop(world: World) -> None:
    """Frozen until the others have noticed; then it catches up."""
    frozen = world.processes[0]
    frozen.signal(signal.SIGSTOP)
    await world.until(lambda: any(line["peer"] == "b" for line in world.events("link-down")))
    frozen.signal(signal.SIGCONT)
    await world.until(lambda: frozen.saw("jump") or frozen.saw("finished"))


@case(Fault.EDGE_CUT, "link-down", before=proxied("b"), options={**QUICK, "periods": 30})
async def edge_cut(world: World) -> None:
    world.proxy.set(Mode.CUT)
    await world.until(lambda: bool(world.events("link-down", "a")))
    await asyncio.sleep(0.2)
    world.proxy.set(Mode.PASS)
    await world.until(lambda: len(world.events("link-up", "a")) >= 3)
    await world.finish()
    await world.proxy.__aexit__()


@case(Fault.EDGE_SLOW, "period", options={"periods": 5})
async def edge_slow(world: World) -> None:
    """Its neighbours wait for it: no link is left out."""
    for name in ("c2", "c3"):
        world.clients[name].trainer.delay = 0.3
    await world.finish()
    for edge in world.edges.values():
        assert all(link.skipped == 0 for link in edge.links.values())


@case(
    Fault.EDGE_RESTART,
    "link-down",
    without=("b",),
    before=process("edge", "b"),
    died=("b",),
    options={**QUICK, "periods": 60},
)
async def edge_restart(world: World) -> None:
    """Killed and started again, it goes on from its checkpoint and catches up."""
    first = world.processes[0]
    first.signal(signal.SIGKILL)
    first.process.wait()
    again = Process(world, "edge", "b")
    await world.until(lambda: again.saw("resumed"))
    await world.until(lambda: again.saw("jump") or again.saw("finished"))


@case(
    Fault.EDGE_LOST_DISK,
    "lent",
    without=("b",),
    before=process("edge", "b"),
    died=("b",),
    options={**PATIENT, "periods": 60},
)
async def edge_lost_disk(world: World) -> None:
    """Killed, and its state is gone: it takes over a neighbour's model and period."""
    first = world.processes[0]
    await world.until(lambda: all(edge.done >= 10 for edge in world.edges.values()))
    first.signal(signal.SIGKILL)
    first.process.wait()
    shutil.rmtree(world.folder / "state" / "b")
    again = Process(world, "edge", "b")
    await world.until(lambda: again.saw("adopted"))
    (adopted,) = (line for line in again.lines() if line["event"] == "adopted")
    assert adopted["period"] >= 10
    later = (line for line in again.lines() if line["time"] > adopted["time"])
    assert all(line["period"] > adopted["period"] for line in later if line["event"] == "period")
