"""Samples that are read anew for every batch, so that a random transform stays random."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sdfeel.errors import InputError

__all__ = ["Fresh", "drawn_by"]


@dataclass(frozen=True, eq=False)
class Fresh:
    """A map-style dataset whose items are read anew whenever a batch has them.

    Without it data is read once, and a random transform keeps what it drew then. What a transform
    draws from torch, numpy or `random` is a function of (seed, client, k): a run that is resumed,
    spread over ranks or deployed sees the same. Evaluations look at one fixed draw. The engines
    `reference` and `loop` train on it.
    """

    dataset: Any

    def __post_init__(self) -> None:
        """Only what has a length and items by index can be read again."""
        if not hasattr(self.dataset, "__getitem__") or not hasattr(self.dataset, "__len__"):
            raise InputError(
                "Fresh",
                type(self.dataset).__name__,
                "a map-style dataset: one with a length and items by index",
            )

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]


@contextmanager
def drawn_by(number: int) -> Iterator[None]:
    """Everybody's global generators seeded by a number; afterwards they are as they were."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002 - what transforms use
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(number)
        random.seed(number)
        np.random.seed([number & 0xFFFFFFFF, number >> 32])  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
