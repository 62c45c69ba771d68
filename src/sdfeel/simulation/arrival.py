"""Models of clients arrive at their servers: codecs, corrections and averaging rules see them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.averaging import AveragingRule
from sdfeel.errors import InputError
from sdfeel.simulation.controls import Controls
from sdfeel.simulation.engines.engine import Engine, SummingEngine
from sdfeel.simulation.messages import Messages

__all__ = ["at_once", "by_rule", "cuts", "receive"]

# Numbers of models that a core works on at a time: what is done to a model stays in its cache.
CACHED = 2**18
# A block of clients holds about so many numbers in its models, and at least so many clients. Where
# no model of a client is ever written, it may hold so many times more.
BLOCK = 4 * 2**20
FEWEST = 16
UNWRITTEN = 2


def at_once(engine: Engine, width: int, unwritten: bool) -> int:
    """How many clients an engine is handed at a time, at most.

    width      numbers of a model
    unwritten  nobody asks for the model of a single client
    """
    numbers, fewest = BLOCK, max(FEWEST, 2 * torch.get_num_threads())
    if unwritten and isinstance(engine, SummingEngine) and not engine.holds_models:
        numbers *= UNWRITTEN
    return max(numbers // width, fewest)


def cuts(groups: NDArray[np.int64], size: int, whole: bool) -> Iterator[slice]:
    """Clients that are handed to an engine together, `size` at most; no cut depends on the time or
    the machine.

    groups  whose clients they are, in order
    whole   a rule other than the mean needs all models of a group at once, however many
    """
    start = 0
    while start < len(groups):
        end = min(start + size, len(groups))
        if whole:
            end = int(np.searchsorted(groups, groups[end - 1], side="right"))
        yield slice(start, end)
        start = end


def receive(
    models: Tensor,
    begun: Tensor,
    servers: NDArray[np.int64],
    held: NDArray[np.int64],
    k: int | NDArray[np.int64],
    messages: Messages,
    controls: Controls | None = None,
    reach: float = 0.0,
) -> None:
    """Models of the clients `held` become what arrives of them; corrections learn from it.

    begun  what the clients of each server began with; servers: whose these are
    k      their iteration, or that of each
    A few clients at a time, on every core.
    """
    corrected = controls is not None and controls.of_clients
    if messages.as_they_are and not corrected:
        return
    few = max(1, CACHED // models.shape[1])
    parts = [slice(start, start + few) for start in range(0, len(held), few)]
    draw = messages.draw(held, k)

    def one(part: slice) -> None:
        before = begun[servers[part]]
        arrived = messages.up(models[part], before, held[part], draw.of(part))
        if controls is not None and corrected:
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


def by_rule(
    rule: AveragingRule, models: Tensor, weights: NDArray[np.float64], before: Tensor
) -> Tensor:
    """What a rule makes of the models of a cluster that began from `before`."""
    after = rule(models, torch.from_numpy(weights).to(models), before)
    if not isinstance(after, Tensor) or after.shape != before.shape:
        shown = list(after.shape) if isinstance(after, Tensor) else type(after).__name__
        raise InputError(
            "averaging_rule", shown, f"must give back a tensor of {len(before)} values"
        )
    return after
