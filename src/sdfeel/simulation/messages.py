"""What arrives of the models that clients and servers send each other, by the codecs of three ways.

    up        a server holds w_d(0) of its client: it gets the change since
    down      the clients of a server hold `down.model`: it tells them how to come nearer to its own
    between   all neighbours of a server hold `between.model` of it, and it knows that they do

What was not sent of a change down or between is in the next difference; up it is a client's row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.codecs import Draw
from sdfeel.algorithm.local import Rows
from sdfeel.errors import InputError
from sdfeel.simulation.ranks import Placement, Ranks

__all__ = ["Messages"]


class Messages:
    """The rows that codecs need, and what they make of models; empty where models go as they are.

    clients, servers  named rows, as checkpoints and ranks carry them
    """

    def __init__(
        self, algorithm: Algorithm, seed: int, ranks: Ranks, placement: Placement, start: Tensor
    ) -> None:
        self._codecs, self._seed = algorithm.codecs, seed
        self._servers = np.array(placement.servers[ranks.rank])
        self._numbers = np.array(placement.clients[ranks.rank])
        many = len(self._numbers)
        names = self._codecs["up"].keeps
        self.clients: Rows = {f"up.{name}": start.new_zeros(many, start.shape[1]) for name in names}
        lossy = [way for way in ("down", "between") if not self._codecs[way].exact]
        self.servers: Rows = {f"{way}.model": start.clone() for way in lossy}

    @property
    def as_they_are(self) -> bool:
        """Whether a client's model arrives as it is."""
        return self._codecs["up"].exact

    @property
    def swapped_as_they_are(self) -> bool:
        """Whether servers get their neighbours' models as they are."""
        return self._codecs["between"].exact

    def held(self, models: Tensor) -> Tensor:
        """What the clients of each server hold of its model."""
        return self.servers.get("down.model", models)

    def draw(self, held: NDArray[np.int64], k: int | NDArray[np.int64]) -> Draw:
        """By what these clients draw in messages up."""
        return Draw(self._seed, self._numbers[held], k)

    def up(self, models: Tensor, before: Tensor, held: NDArray[np.int64], draw: Draw) -> Tensor:
        """What servers make of what these clients send: the change since the broadcast."""
        if self.as_they_are:
            return models
        names = self._codecs["up"].keeps
        kept = {name: self.clients[f"up.{name}"][held] for name in names}
        arrived = self._through("up", models - before, kept, draw)
        for name, rows in kept.items():
            self.clients[f"up.{name}"][held] = rows
        return before + arrived

    @property
    def told_as_they_are(self) -> bool:
        """Whether clients get their server's model as it is."""
        return self._codecs["down"].exact

    def down(self, models: Tensor, k: int) -> None:
        """Clients come nearer to their server's model."""
        self._follow("down", models, k, 1)

    def told(
        self, models: Tensor, held: Tensor, senders: NDArray[np.int64], k: NDArray[np.int64]
    ) -> Tensor:
        """What some groups of clients hold once they were told of a model each, by turns."""
        return held + self._change("down", models - held, Draw(self._seed, senders, k, 1))

    def between(self, models: Tensor, k: int, number: int) -> Tensor:
        """What neighbours hold of each server's model in exchange `number` of an aggregation."""
        return self._follow("between", models, k, 2 + number)

    def _follow(self, way: str, models: Tensor, k: int, stream: int) -> Tensor:
        if self._codecs[way].exact:
            return models
        held = self.servers[f"{way}.model"]
        # The same number is not the same sender on another way: each has its own stream.
        draw = Draw(self._seed, self._servers, k, stream)
        self.servers[f"{way}.model"] = held + self._change(way, models - held, draw)
        return self.servers[f"{way}.model"]

    def _change(self, way: str, change: Tensor, draw: Draw) -> Tensor:
        """What arrives of a difference that has in it all that did not arrive before."""
        fresh = {name: change.new_zeros(change.shape) for name in self._codecs[way].keeps}
        return self._through(way, change, fresh, draw)

    def _through(self, way: str, values: Tensor, kept: Rows, draw: Draw) -> Tensor:
        codec = self._codecs[way]
        arrived = codec.decode(codec.encode(values, kept, draw), like=values)
        if arrived.shape != values.shape or arrived.dtype != values.dtype:
            raise InputError(
                f"codecs.{way}",
                codec,
                f"decoded {arrived.dtype}{list(arrived.shape)} where {values.dtype}"
                f"{list(values.shape)} was sent",
            )
        return arrived
