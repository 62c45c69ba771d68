"""Callers that must not be let in."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
from pathlib import Path
from typing import Any

import grpc
from ended import issue_ended
from faults import Fault, case, refused
from harness import World
from node_faults import process
from rogue import Rogue

from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.trust.provision import Authority
from sdfeel.deploy.trust.shared_settings import SharedSettings
from sdfeel.deploy.wire.grpc_transport import call_stream, open_channel
from sdfeel.deploy.wire.transport import Call


async def _is_turned_away(call: Any, message: Any) -> None:
    """No answer to the first message but the end of the stream."""
    async with asyncio.timeout(10):
        try:
            await call.write(message)
            assert await call.read() is grpc.aio.EOF
        except grpc.aio.AioRpcError:
            pass
        assert await call.code() != grpc.StatusCode.OK


def _hello(world: World, name: str = "c0", **fields: Any) -> v1.FromClient:
    samples = world.deployment.client(name).samples
    given = {
        "protocol": PROTOCOL,
        "name": name,
        "deployment": world.deployment.digest,
        "settings": SharedSettings.of_clients(world.deployment).tell(),
    } | fields
    return v1.FromClient(hello=v1.Hello(**{"samples": samples, **given}))


async def _knock(world: World, certificate: str, message: v1.FromClient) -> None:
    async with Rogue(world, "c0", certificate) as rogue:
        await _is_turned_away(rogue.call, message)


def _folder(world: World) -> Path:
    return world.deployment.path(world.deployment.security.folder)


async def _knock_as_stranger(world: World, authority: str) -> None:
    """With a certificate of another CA, which bears the name `authority`."""
    Authority.create(world.folder / "other", authority).issue("client", "stranger")
    place = _folder(world) / "client" / "stranger.pem"
    shutil.copy(world.folder / "other" / "client" / "stranger.pem", place)
    await _knock(world, "stranger", _hello(world))


# Handshakes end inside gRPC: that an edge names them needs the program, not only its parts.
ALONE = {"without": ("a",), "before": process("edge", "a"), "options": {"periods": 12}}


@case(Fault.CERTIFICATE_UNKNOWN, "handshake:unknown-ca", **ALONE)
async def unknown(world: World) -> None:
    """Signed by a CA of its own, of the same name."""
    await _knock_as_stranger(world, "test")


@case(Fault.CERTIFICATE_EXPIRED, "handshake:expired", **ALONE)
async def expired(world: World) -> None:
    issue_ended(_folder(world), "client", "yesterday")
    await _knock(world, "yesterday", _hello(world))


@case(Fault.CERTIFICATE_REVOKED, "refused:revoked", options={"periods": 40}, delay=0.05)
async def revoked(world: World) -> None:
    """Also the stream that is open already ends."""
    Authority(_folder(world)).revoke([("client", "c0")])
    await world.until(lambda: refused(world, "revoked") > 1)
    await world.kill("c0")


@case(Fault.CERTIFICATE_WRONG_ROLE, "refused:role")
async def wrong_role(world: World) -> None:
    """A client's certificate cannot call the edges' exchange."""
    credentials = Credentials(world.deployment, "client", "c0")
    channel = open_channel(world.deployment, credentials, "b")
    call = call_stream(channel, Call.LINK)
    hello = v1.Hello(protocol=PROTOCOL, name="a", deployment=world.deployment.digest)
    await _is_turned_away(call, v1.LinkMessage(hello=hello))
    await channel.close()


@case(Fault.CERTIFICATE_WRONG_NAME, "refused:role")
async def wrong_name(world: World) -> None:
    await _knock(world, "c1", _hello(world, "c0"))


@case(Fault.CERTIFICATE_OTHER_AUTHORITY, "handshake:unknown-ca", **ALONE)
async def other_authority(world: World) -> None:
    """Signed by a CA that calls itself something else."""
    await _knock_as_stranger(world, "elsewhere")


@case(Fault.CERTIFICATE_MISSING, "handshake:no-certificate", **ALONE)
async def without_certificate(world: World) -> None:
    """TLS as a browser speaks it."""
    context = ssl.create_default_context(cafile=_folder(world) / "ca.pem")
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    host, _, port = world.deployment.edge("a").address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        async with asyncio.timeout(10):
            assert await reader.read() == b""
    except (ssl.SSLError, ConnectionError):
        pass
    writer.transport.abort()


@case(Fault.CALLER_WITHOUT_TLS, "handshake:not-tls", **ALONE)
async def without_tls(world: World) -> None:
    channel = grpc.aio.insecure_channel(world.deployment.edge("a").address)
    await _is_turned_away(call_stream(channel, Call.WORK), _hello(world))
    await channel.close()


@case(Fault.CLIENT_NOT_ALLOWED, "refused:not-allowed", options={"fallback": False})
async def not_allowed(world: World) -> None:
    """c5 belongs to edge c alone and knocks at a."""
    await _knock(world, "c5", _hello(world, "c5"))


@case(Fault.CLIENT_WRONG_SAMPLES, "refused:samples")
async def wrong_samples(world: World) -> None:
    await _knock(world, "c0", _hello(world, samples=10**6))


@case(Fault.CLIENT_WRONG_DEPLOYMENT, "refused:deployment")
async def wrong_deployment(world: World) -> None:
    await _knock(world, "c0", _hello(world, deployment="another"))


@case(Fault.GOSSIP_FORGED, "refused:signature")
async def gossip_forged(world: World) -> None:
    """a tells b that c has no links, under the largest number there is."""
    state = v1.LinkState(edge="c", number=2**64 - 1)
    for _ in range(3):
        world.edges["a"].links["b"].tell(v1.LinkMessage(state=state))


@case(Fault.EDGE_SECOND_STREAM, "link-down", options={"periods": 30})
async def second_stream(world: World) -> None:
    """Somebody takes a's place at b with a's certificate; a's own stream ends, and comes back."""
    honest = world.edges["a"].links["b"].generation
    credentials = Credentials(world.deployment, "edge", "a")
    channel = open_channel(world.deployment, credentials, "b")
    call = call_stream(channel, Call.LINK)
    await call.write(v1.LinkMessage(hello=world.edges["a"].replies.hello()))
    async with asyncio.timeout(10):
        await call.read()
        await world.until(lambda: world.edges["a"].links["b"].generation > honest)
        with contextlib.suppress(grpc.RpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
    await channel.close()
    used = world.edges["a"].links["b"].used
    await world.until(lambda: world.edges["a"].links["b"].used > used)


BARE = 600


@case(
    Fault.BARE_CONNECTIONS,
    "period",
    without=("a",),
    before=process("edge", "a", descriptors=256),
    options={"periods": 40},
)
async def bare_connections(world: World) -> None:
    """More connections than an edge may have open files, and no word on any of them."""
    host, _, port = world.deployment.edge("a").address.rpartition(":")
    sockets = []
    for _ in range(BARE):
        found = socket.socket()
        found.setblocking(False)
        found.connect_ex((host, int(port)))
        sockets.append(found)
    at = world.edges["b"].done
    await world.until(lambda: world.edges["b"].done >= min(at + 10, 40))
    assert world.processes[0].process.poll() in (None, 0)
    for found in sockets:
        found.close()
