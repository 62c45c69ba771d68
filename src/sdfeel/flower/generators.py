"""The generators that apps draw from: Python's, numpy's and torch's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["seeded"]


@contextmanager
def seeded(*numbers: int) -> Iterator[None]:
    """Seed all three by some whole numbers, and put them back afterwards.

    What a call of an app draws is then a function of (seed, client, round), whichever process
    carries it out and wherever a run was resumed.

    >>> with seeded(0, 3, 1):
    ...     first = random.random()
    >>> with seeded(0, 3, 1):
    ...     first == random.random()
    True
    """
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 - as apps use it
    words = np.random.SeedSequence(numbers).generate_state(3)
    try:
        with torch.random.fork_rng(devices=[]):
            random.seed(int(words[0]))
            np.random.seed(words[1])  # noqa: NPY002
            torch.manual_seed(int(words[2]))
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
