"""What goes wrong on the operator's side: disks, checkpoints, certificates, files, copies."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import pytest
import toy
from ended import issue_ended
from faults import Fault, case, refused
from harness import World
from identity_faults import _folder, _hello, _is_turned_away, _knock
from node_faults import QUICK

from sdfeel.deploy.config import parse_deployment
from sdfeel.deploy.edge.edge import EdgeServer
from sdfeel.deploy.facts.logs import LogFile
from sdfeel.deploy.model import store as stores
from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.trust.provision import Authority, provision
from sdfeel.deploy.trust.shared_settings import SharedSettings
from sdfeel.deploy.wire.grpc_transport import call_stream, open_channel
from sdfeel.deploy.wire.transport import Call
from sdfeel.errors import InputError

LONG: dict[str, Any] = {"options": {"periods": 60}, "delay": 0.02}


@contextmanager
def refusing_disk(edge: str, number: int) -> Iterator[None]:
    """Nothing can be written to the state folder of one edge."""
    real = stores.write_model

    def write(path: Path, *rest: object, **rows: object) -> None:
        if path.parent.name == edge:
            raise OSError(number, os.strerror(number))
        real(path, *rest, **rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "write_model", write)
        yield


async def _paused(world: World, number: int) -> None:
    with refusing_disk("a", number):
        await world.until(lambda: world.edges["a"].phase == "paused")
    await world.until(lambda: bool(world.events("disk-relief", "a")))


@case(Fault.STATE_DISK_FULL, "disk-problem")
async def state_disk_full(world: World) -> None:
    await _paused(world, errno.ENOSPC)


@case(Fault.STATE_DISK_READ_ONLY, "disk-problem")
async def state_disk_read_only(world: World) -> None:
    await _paused(world, errno.EROFS)


@case(Fault.LOG_DISK_FULL, "log-relief")
async def log_disk_full(world: World) -> None:
    log = world.edges["a"].log
    with LogFile(Path("/dev/full")) as full:
        log._sink = full
        await world.until(lambda: log.unwritten > 2)
    log._sink = StringIO()


async def _restart(world: World, name: str, harm: Any) -> None:
    await world.kill(name)
    harm(sorted((world.folder / "state" / name).glob("period-*.safetensors")))
    await world.start_edge(name)


@case(Fault.CHECKPOINT_DAMAGED, "checkpoint-damaged", died=("b",), **LONG)
async def checkpoint_damaged(world: World) -> None:
    """Bytes of the newest one's header are overwritten while the edge is down."""

    def harm(files: list[Path]) -> None:
        whole = files[-1].read_bytes()
        files[-1].write_bytes(whole[:30] + b"\x00\xff{[" + whole[34:])

    await _restart(world, "b", harm)


@case(Fault.CHECKPOINT_OTHER_PERIOD, "checkpoint-damaged", died=("b",), **LONG)
async def checkpoint_other_period(world: World) -> None:
    """The newest is called far ahead: nobody follows it there."""
    ahead = "period-000000050.safetensors"
    await _restart(world, "b", lambda files: files[-1].replace(files[-1].with_name(ahead)))
    assert world.edges["b"].done < 50


@case(Fault.EDGE_SECOND_INSTANCE, "period", **LONG)
async def second_instance(world: World) -> None:
    with pytest.raises(InputError, match="in use by edge a"):
        EdgeServer(world.deployment, "a", world.folder / "state" / "a")


@case(Fault.CERTIFICATE_STOLEN, "refused:revoked", **LONG)
async def stolen(world: World) -> None:
    """The one from before a renewal; revoking came after it."""
    own = _folder(world) / "client" / "c0.pem"
    shutil.copy(own, _folder(world) / "client" / "stolen.pem")
    await world.kill("c0")
    provision(world.deployment, only="c0")
    Authority(_folder(world)).revoke([("client", "c0")])
    await _knock(world, "stolen", _hello(world))


@case(Fault.CERTIFICATE_RAN_OUT, "certificate-expired", **LONG)
async def ran_out(world: World) -> None:
    """A client's own; it says so, and comes back with a new one."""
    issue_ended(_folder(world), "client", "c0")
    await world.until(lambda: bool(world.events("certificate-expired", "c0")))
    provision(world.deployment, 1, only="c0")
    client = world.clients["c0"]
    before = len(client.accepted)
    await world.until(lambda: len(client.accepted) > before)


@case(
    Fault.EDGE_REVOKED,
    "edge-distrusted",
    died=("b",),
    options={**QUICK, "periods": 40},
    delay=0.02,
)
async def edge_revoked(world: World) -> None:
    """Its clients go to their fallback, its neighbours go on without it."""
    Authority(_folder(world)).revoke([("edge", "b")])
    await world.until(lambda: not world.edges["b"].cluster.sessions)
    await world.until(lambda: "c2" in world.edges["a"].cluster.sessions)
    await world.kill("b")


@case(Fault.REVOCATION_LIST_MISSING, "revocation-list", **LONG)
async def list_missing(world: World) -> None:
    (_folder(world) / "revoked.pem").unlink()
    await world.until(lambda: bool(world.events("revocation-list", "a")))


@case(Fault.CLIENT_TWICE, "refused:twice", **LONG)
async def client_twice(world: World) -> None:
    """The newer process has the name, the older one is told."""
    older = world.tasks.pop("c0")
    samples = world.deployment.client("c0").samples
    world.start_client("c0", toy.ToyTrainer(0, samples, delay=0.02))
    await world.until(lambda: refused(world, "twice") > 0)
    older.cancel()


class Babbling(toy.ToyTrainer):
    measures: ClassVar = {"train_loss": float("nan"), "\x1b[2J": 1.0}


@case(Fault.MEASURES_NONSENSE, "refused:measure", **LONG)
async def nonsense(world: World) -> None:
    await world.kill("c0")
    world.start_client("c0", Babbling(0, world.deployment.client("c0").samples))
    await world.until(lambda: refused(world, "measure") > 0)


@case(Fault.CLIENT_WRONG_SEED, "refused:deployment")
async def wrong_seed(world: World) -> None:
    other = parse_deployment(
        world.deployment.model_dump(mode="json") | {"seed": 99}, world.deployment.folder
    )
    await _knock(world, "c0", _hello(world, settings=SharedSettings.of_clients(other).tell()))


@case(Fault.EDGE_WRONG_SCHEDULE, "refused:deployment")
async def wrong_schedule(world: World) -> None:
    """An edge whose file has another tau2."""
    table = world.deployment.model_dump(mode="json")
    table["schedule"]["tau2"] = 2
    other = Topology(parse_deployment(table, world.deployment.folder))
    channel = open_channel(world.deployment, Credentials(world.deployment, "edge", "a"), "b")
    hello = v1.Hello(
        protocol=PROTOCOL,
        name="a",
        deployment=world.deployment.digest,
        settings=SharedSettings.of_edges(other, b"").tell(),
    )
    await _is_turned_away(call_stream(channel, Call.LINK), v1.LinkMessage(hello=hello))
    await channel.close()
