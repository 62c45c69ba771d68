"""Samples that are read anew for every batch, so that a random transform stays random."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sdfeel.data.reading import Pair, check_map_style, from_items, outline
from sdfeel.errors import warn
from sdfeel.trees import leaves, mapped, rows

REREAD = 8  # items that are read once more, of all clients together
REREAD_SEED = 0x5DFEE1  # by chance none that a user has just given to a generator


class RandomTransformWarning(UserWarning):
    """Data is read once, and a random transform in it stands still from then on."""


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
        """Refuse what has no length and no items by index: it cannot be read again."""
        check_map_style("Fresh", self.dataset)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]


@contextmanager
def drawn_by(number: int) -> Iterator[None]:
    """Seed the global generators by a number, and restore them afterwards."""
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


def warn_if_random(datasets: Mapping[int, Any], pairs: Sequence[Pair]) -> None:
    """Read a few items again and warn, once, if one is not the same.

    Args:
        datasets: those that were read item by item, by client.
        pairs: what was read of every client.
    """
    most = max((rows(pairs[client][0]) for client in datasets), default=0)
    items = itertools.product(range(most), datasets)  # the first of every client, the second ...
    items_there = ((row, client) for row, client in items if row < rows(pairs[client][0]))
    for row, client in itertools.islice(items_there, REREAD):
        if _changes(datasets[client], row, client, pairs[client]):
            warn(
                f"sample {row} of client {client} is another one when it is read again: data is "
                "read once, so a random transform keeps what it drew then; "
                "sdfeel.data.Fresh(dataset) is read anew for every batch",
                RandomTransformWarning,
            )
            return


def _changes(dataset: Any, row: int, client: int, pair: Pair) -> bool:
    with suppress(Exception), drawn_by(REREAD_SEED):  # an item that can be read once is no mistake
        again = from_items(dataset, [row], client)
        before = mapped(lambda tensor: tensor[row : row + 1], pair)
        if outline(again) != outline(before):
            return True
        return not all(  # NaN is where NaN was: deterministic data may have some
            torch.allclose(now.to(then.dtype), then, rtol=0, atol=0, equal_nan=True)
            for now, then in zip(leaves(again), leaves(before), strict=True)
        )
    return False
