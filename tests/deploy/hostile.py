"""Somebody with a client's certificate, on the network in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from twin import Door
from twin_world import SIZE, TwinWorld
from virtual import NODE

from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.trust.shared_settings import SharedSettings
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.transport import Call


async def dial(world: TwinWorld, name: str = "c0", edge: str = "e00") -> Any:
    token = NODE.set(name)
    try:
        return await Door(world.net, "client", name).dial(edge, Call.WORK)
    finally:
        NODE.reset(token)


async def hello(world: TwinWorld, stream: Any, name: str = "c0", **fields: Any) -> None:
    given: dict[str, Any] = {
        "protocol": PROTOCOL,
        "name": name,
        "deployment": world.deployment.digest,
        "samples": world.deployment.client(name).samples,
        "values": SIZE,
        "settings": SharedSettings.of_clients(world.deployment).tell(),
    }
    await stream.write(v1.FromClient(hello=v1.Hello(**{**given, **fields})))


async def upload(world: TwinWorld, stream: Any, period: int, values: Any, **fields: Any) -> None:
    vector = as_vector(np.asarray(values, dtype=np.float64))
    announced = frames.header(vector, period, samples=world.deployment.client("c0").samples)
    for field, value in fields.items():
        setattr(announced, field, value)
    await stream.write(v1.FromClient(model=announced))
    for chunk in frames.chunks(vector):
        await stream.write(v1.FromClient(chunk=chunk))
