"""How fast one mTLS gRPC stream moves bytes here: the yardstick for a deployment's own traffic."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc

from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.model.vectors import BLOCK
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.trust.provision import provision

__all__ = ["stream_seconds"]

METHOD = "/sdfeel.bench/Pour"


def stream_seconds(folder: Path, bytes_: int) -> float:
    """Seconds to move `bytes_` in a model's chunks over one stream between two processes."""
    folder.mkdir(parents=True, exist_ok=True)
    provision(_deployment(folder))
    server = subprocess.Popen(
        [sys.executable, "-P", __file__, str(folder)],
        stdout=subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        return asyncio.run(_pour(folder, port, bytes_))
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def _deployment(folder: Path) -> Deployment:
    table: dict[str, Any] = {
        "name": "stream",
        "schedule": {"iterations": 1},
        "edges": [{"name": "sink", "address": "127.0.0.1:1"}],
        "clients": [{"name": "source", "edge": "sink", "samples": 1}],
    }
    return parse_deployment(table, folder)


async def _pour(folder: Path, port: int, bytes_: int) -> float:
    credentials = Credentials(_deployment(folder), "client", "source")
    channel = credentials.channel(f"127.0.0.1:{port}", "sink", [])
    call: Any = channel.stream_unary(
        METHOD, request_serializer=v1.Chunk.SerializeToString, response_deserializer=bytes
    )()
    data = bytes(4 * BLOCK)
    await call.write(v1.Chunk(data=data))  # the handshake is not counted
    start = time.perf_counter()
    for offset in range(0, bytes_, len(data)):
        await call.write(v1.Chunk(offset=offset, data=data))
    await call.done_writing()
    await call
    seconds = time.perf_counter() - start
    await channel.close()
    return seconds


async def _sink(folder: Path) -> None:
    async def take(requests: Any, _context: Any) -> bytes:
        async for _ in requests:
            pass
        return b""

    handler = grpc.stream_unary_rpc_method_handler(
        take, request_deserializer=v1.Chunk.FromString, response_serializer=bytes
    )
    server = grpc.aio.server()
    _, service, method = METHOD.split("/")
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: handler}),)
    )
    credentials = Credentials(_deployment(folder), "edge", "sink")
    port = server.add_secure_port("127.0.0.1:0", credentials.server())
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_sink(Path(sys.argv[1])))
