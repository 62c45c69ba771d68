"""Who takes part: with probability beta (figure 6), or a number drawn at random (FEEL)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.randomness import PARTICIPATION, uniforms
from sdfeel.errors import InputError


@dataclass(frozen=True)
class Participation:
    """Which clients are present in an upload period, as a function of (seed, period).

    beta   probability with which each reachable client takes part, in (0, 1]
    drawn  how many of those are drawn at random; None for all
    reach  the clients that can take part at all; None for everyone
    """

    clients: int
    seed: int
    beta: float = 1.0
    drawn: int | None = None
    reach: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.beta <= 1:
            raise InputError("participation", self.beta, "a probability in (0, 1]")
        if self.drawn is not None and self.drawn < 1:
            raise InputError("drawn", self.drawn, "at least one client each round")

    def present(self, period: int) -> NDArray[np.bool_]:
        """A mask over all clients."""
        everyone = np.arange(self.clients)
        mask = np.zeros(self.clients, dtype=bool)
        mask[list(self.reach) if self.reach is not None else everyone] = True
        if self.beta == 1.0 and (self.drawn is None or self.drawn >= mask.sum()):
            return mask
        numbers = uniforms(self.seed, everyone, period, PARTICIPATION)
        mask &= numbers < self.beta
        if self.drawn is not None and self.drawn < mask.sum():
            # Those of the smallest numbers: a draw without replacement from who is there. By rank,
            # not by value: two numbers may be equal, and as many as asked for must come.
            there = np.flatnonzero(mask)
            ranked = there[np.argsort(numbers[there], kind="stable")]
            mask[ranked[self.drawn :]] = False
        return mask

    def among(self, clients: NDArray[np.int64], period: int) -> NDArray[np.bool_]:
        """Return which of some clients take part, without drawing for all where possible."""
        if self.drawn is not None or self.reach is not None:
            return self.present(period)[clients]
        if self.beta == 1.0:
            return np.ones(len(clients), dtype=bool)
        return uniforms(self.seed, clients, period, PARTICIPATION) < self.beta
