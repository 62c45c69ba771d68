"""Models of clients arrive at their servers: codecs and corrections see each of them once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.simulation.controls import Controls
from sdfeel.simulation.messages import Messages

__all__ = ["receive"]

# Numbers of models that a core works on at a time: what is done to a model stays in its cache.
CACHED = 2**18


def receive(
    models: Tensor,
    begun: Tensor,
    servers: NDArray[np.int64],
    held: NDArray[np.int64],
    k: int,
    reach: float,
    messages: Messages,
    controls: Controls,
) -> None:
    """Models of the clients `held` become what arrives of them; corrections learn from it.

    begun  what the clients of each server began with; servers: whose these are
    A few clients at a time, on every core.
    """
    if messages.as_they_are and not controls.of_clients:
        return
    few = max(1, CACHED // models.shape[1])
    parts = [slice(start, start + few) for start in range(0, len(held), few)]
    draw = messages.draw(held, k)

    def one(part: slice) -> None:
        before = begun[servers[part]]
        arrived = messages.up(models[part], before, held[part], draw.of(part))
        if controls.of_clients:
            controls.after_client(held[part], arrived - before, reach)
        if not messages.as_they_are:
            models[part] = arrived

    hands = min(torch.get_num_threads(), len(parts))
    if hands <= 1 or models.device.type != "cpu":
        for part in parts:
            one(part)
        return
    with ThreadPoolExecutor(hands, "sdfeel-receive", torch.set_num_threads, (1,)) as pool:
        list(pool.map(one, parts))
