"""What receivers lack of a model because of a codec, measured on gradients of a real run."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from sdfeel.algorithm.codecs import Codec, Draw
from sdfeel.network import Shares

__all__ = ["owed"]

# Messages that are sent one after the other: what error feedback owes has settled by then.
MESSAGES = 8


def owed(way: str, codec: Codec, gradients: NDArray[np.float64], shares: Shares) -> float:
    """The norm of what does not arrive, where every message carries one more of these gradients.

    gradients  of every client, one row each; servers send the means of their clusters

    Up, a codec without memory loses what it rounds off, and one with error feedback owes it: what
    counts is the weighted mean over the clients, in which errors at random cancel. On the other
    ways a message is the difference to what the receivers hold, so that all of it is owed, and
    every cluster suffers its own.
    """
    up = way == "up"
    values = torch.from_numpy(gradients if up else shares.V.T @ gradients).float()
    remembers = bool(codec.keeps) or not up
    weights = torch.from_numpy(shares.client if up else shares.cluster).float()
    lacking, squares = torch.zeros_like(values), []
    for k in range(MESSAGES if remembers else 1):
        due = values + lacking if remembers else values
        fresh = {name: torch.zeros_like(due) for name in codec.keeps}
        draw = Draw(0, np.arange(len(due)), k)
        # Codecs may work in place.
        lacking = due - codec.decode(codec.encode(due.clone(), fresh, draw), like=due)
        mean = (weights @ lacking).square().sum()
        squares.append(mean if up else (weights * lacking.square().sum(dim=1)).sum())
    return float(torch.stack(squares).mean().sqrt())
