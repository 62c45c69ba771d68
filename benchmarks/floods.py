"""How fast honest nodes are beside one member that floods: periods a second, against calm.

    python benchmarks/floods.py --seconds 10 [--kinds churn headers ...]

Two edges and four honest clients run as processes with mutual TLS. A fifth client has a good
certificate and does one thing as fast as it can, with the lowest priority of the system, so that
what is measured is what it costs the edge. Prints one JSON object; `share` is the pace of a kind
over the mean of the calm before and after it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from deployment import toy
from deployment.members import members, write_deployment
from deployment.nodes import Nodes
from sdfeel.deploy.config import Deployment, load_deployment
from sdfeel.deploy.model.vectors import BLOCK
from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.trust.shared_settings import SharedSettings
from sdfeel.deploy.wire.grpc_transport import call_status, call_stream, open_channel
from sdfeel.deploy.wire.transport import Call

FLOODER, TARGET = "c2", "a"
WARM = 15.0  # seconds until an edge no longer waits in every period for a client that never answers


class Flooder:
    """The member; every method floods its edge in one way until it is killed."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.credentials = Credentials(deployment, "client", FLOODER)

    def hello(self) -> v1.FromClient:
        me = self.deployment.client(FLOODER)
        hello = v1.Hello(
            protocol=PROTOCOL,
            name=FLOODER,
            deployment=self.deployment.digest,
            samples=me.samples,
            values=toy.SIZE,
            settings=SharedSettings.of_clients(self.deployment).tell(),
            incarnation=1,
        )
        return v1.FromClient(hello=hello)

    def channel(self) -> Any:
        return open_channel(self.deployment, self.credentials, TARGET)

    async def churn(self) -> None:
        """Streams that say hello, hear the answer and end."""
        channel = self.channel()
        while True:
            call = call_stream(channel, Call.WORK)
            with contextlib.suppress(Exception):
                await call.write(self.hello())
                await call.read()
            call.cancel()
            await asyncio.sleep(0)

    async def silent(self) -> None:
        """Streams that end before their first word."""
        channel = self.channel()
        while True:
            call = call_stream(channel, Call.WORK)
            with contextlib.suppress(Exception):
                await call.wait_for_connection()
            call.cancel()
            await asyncio.sleep(0)

    async def status(self) -> None:
        """Questions that a client may not ask."""
        channel = self.channel()
        while True:
            with contextlib.suppress(Exception):
                await call_status(channel, 5.0)
            await asyncio.sleep(0)

    async def connections(self) -> None:
        """A connection for every stream, as nodes open them."""
        while True:
            channel = self.channel()
            call = call_stream(channel, Call.WORK)
            with contextlib.suppress(Exception):
                await call.write(self.hello())
                await call.read()
            call.cancel()
            await channel.close()

    async def handshakes(self) -> None:
        """Connections that end after the handshake."""
        folder = self.deployment.path(self.deployment.security.folder)
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        context.check_hostname = False
        context.load_cert_chain(folder / "client" / f"{FLOODER}.pem")
        context.set_alpn_protocols(["h2"])
        host, _, port = self.deployment.edge(TARGET).address.rpartition(":")
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port), ssl=context)
                writer.transport.abort()

    async def headers(self) -> None:
        """Models of a period that cannot be."""
        announced = v1.ModelHeader(period=10**6, values=toy.SIZE, dtype="float32", sha256=b"x" * 32)
        await self._write(v1.FromClient(model=announced))

    async def chunks(self) -> None:
        """Pieces of models that were never announced."""
        chunk = v1.Chunk(offset=0, data=b"x" * 4 * BLOCK)
        await self._write(v1.FromClient(chunk=chunk))

    async def garbage(self) -> None:
        """Streams of bytes that are no messages."""
        channel = self.channel()
        while True:
            call = channel.stream_stream("/sdfeel.v1.Cluster/Work")()
            with contextlib.suppress(Exception):
                while True:
                    await call.write(b"\xff" * 20)
            call.cancel()

    async def resets(self) -> None:
        """Streams that are ended before anybody can answer, many at a time."""
        channel = self.channel()
        while True:
            calls = [call_stream(channel, Call.WORK) for _ in range(8)]
            await asyncio.sleep(0.001)
            for call in calls:
                call.cancel()

    async def words(self) -> None:
        """Messages that mean nothing where they come."""
        await self._write(self.hello())

    async def _write(self, message: v1.FromClient) -> None:
        channel = self.channel()
        while True:
            call = call_stream(channel, Call.WORK)
            reading = asyncio.ensure_future(self._drain(call))
            with contextlib.suppress(Exception):
                await call.write(self.hello())
                while True:
                    await call.write(message)
            reading.cancel()
            call.cancel()
            await asyncio.sleep(0.01)

    @staticmethod
    async def _drain(call: Any) -> None:
        with contextlib.suppress(Exception):
            async for _ in call:
                pass


KINDS = (
    "churn",
    "silent",
    "resets",
    "garbage",
    "chunks",
    "status",
    "connections",
    "handshakes",
    "headers",
    "words",
)
ALONE = ("headers", "words", "chunks", "resets")  # a client has one stream


async def flood(file: str, kind: str, tasks: int) -> None:
    flooder = Flooder(load_deployment(file))
    count = 1 if kind in ALONE else tasks
    await asyncio.gather(*(getattr(flooder, kind)() for _ in range(count)))


def periods(nodes: Nodes) -> int:
    return sum(line["event"] == "period" for line in nodes.lines(TARGET))


def pace(nodes: Nodes, seconds: float) -> float:
    """Periods a second of the edge that is flooded."""
    before, start = periods(nodes), time.monotonic()
    time.sleep(seconds)
    return (periods(nodes) - before) / (time.monotonic() - start)


def measure(folder: Path, kinds: list[str], seconds: float, tasks: int) -> dict[str, Any]:
    table = members((3, 2)) | {
        "name": "floods",
        "schedule": {"iterations": 10**6, "tau1": 1, "tau2": 1, "alpha": 1},
        "deadlines": {"round": 1.0, "exchange": 4.0, "ping": 4.0},
        "local": {"options": {"delay": 0.02}},
    }
    file, deployment = write_deployment(folder, table, Path(toy.__file__), np.zeros(toy.SIZE))
    shares = {}
    with Nodes(file, deployment, without=[FLOODER]) as nodes:
        while periods(nodes) < 20:
            time.sleep(0.1)
        time.sleep(2.0)
        calm = pace(nodes, seconds)
        for kind in kinds:
            enemy = subprocess.Popen(
                [
                    sys.executable,
                    __file__,
                    "--flood",
                    kind,
                    "--file",
                    str(file),
                    "--tasks",
                    str(tasks),
                ],
                preexec_fn=lambda: os.nice(19),  # noqa: PLW1509
                stderr=subprocess.DEVNULL,
            )
            time.sleep(WARM)
            beside = pace(nodes, seconds)
            enemy.send_signal(signal.SIGKILL)
            enemy.wait()
            time.sleep(2.0)
            before, calm = calm, pace(nodes, seconds)
            shares[kind] = {"share": round(2 * beside / (before + calm), 3), "calm": round(calm, 2)}
            print(kind, shares[kind], file=sys.stderr)
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--tasks", type=int, default=8, help="that the flooder has at a time")
    parser.add_argument("--flood", choices=KINDS)
    parser.add_argument("--file")
    asked = parser.parse_args()
    if asked.flood:
        asyncio.run(flood(asked.file, asked.flood, asked.tasks))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), asked.kinds, asked.seconds, asked.tasks)))


if __name__ == "__main__":
    main()
