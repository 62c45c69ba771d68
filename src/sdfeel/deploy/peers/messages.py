"""What travels between edges with a codec: changes of what both ends of a link hold.

Each end knows which model of its own the other one holds, and which of the other's it holds itself
(`agreement.Base`). A message is the coded change of the former; its header names that model. In an
exchange both ends add flows of what they hold afterwards, with opposite sign over their weights:

    x_d <- x_d + decode(encode(w_d - x_d))              what the neighbour holds of w_d
    w_d <- w_d + p_jd (x_j - x_d)                       w_j <- w_j + p_dj (x_d - x_j)

so the weighted mean stays whatever the codec leaves out, and what did not arrive of a change is in
the next one. What both hold becomes the new x_d and x_j with the word COMMIT and by nothing else.
Where the ends may differ, the whole model travels and both begin anew from it: at the beginning of
a stream each says what it holds; one that is in doubt about a decision knows both possibilities of
the other's model, and sends all of its own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from sdfeel.algorithm.methods.codecs import Draw
from sdfeel.deploy.model.vectors import Change, Vector
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.agreement import Agreement, Base
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.waiting import offload
from sdfeel.deploy.wire.packing import Load, nearer, packing_of

__all__ = ["Bases", "Message", "Messages"]

STREAM = 2  # of the draws between edges, and an exchange each from there on, as in the simulator


@dataclass
class Bases:
    """Of one link."""

    agreement: Agreement[Change]
    peer: str
    _unsure: Base[Change] | None = None  # on this stream nobody has said yet that it is the same

    def begin(self) -> v1.Held:
        """A new stream: what this end says first."""
        self._unsure = self.agreement.bases.get(self.peer)
        return self.word

    @property
    def word(self) -> v1.Held:
        """Which model of the neighbour's this end holds."""
        base = self.agreement.bases.get(self.peer)
        return v1.Held(sha256=_model(base.theirs).sha256 if base is not None else b"")

    def hear(self, word: v1.Held) -> None:
        """Which of our models the neighbour holds."""
        base = self.agreement.bases.get(self.peer)
        is_same = base is not None and _model(base.mine).sha256 == word.sha256
        self._unsure = None if is_same else base

    @property
    def mine(self) -> Vector | None:
        """What our next message is a change of; None: all of the model has to travel."""
        base = self.agreement.bases.get(self.peer)
        if base is None or base is self._unsure or self.agreement.undecided_bases(self.peer):
            return None
        return _model(base.mine)

    def find(self, sha256: bytes) -> Vector | None:
        """The model that the neighbour's message is a change of, if it is here."""
        base = self.agreement.bases.get(self.peer)
        known = [base] if base is not None else []
        known += self.agreement.undecided_bases(self.peer)
        models = [_model(each.theirs) for each in known]
        return next((model for model in models if model.sha256 == sha256), None)


def _model(remembered: Change) -> Vector:
    return remembered.vectors[0]


class Message(NamedTuple):
    """One end's model on its way: what travels, and what the other end holds afterwards."""

    load: Load
    shown: Vector


@dataclass
class Messages:
    """The messages of one model: neighbours that hold the same of it get the same.

    k, exchange  of which draws are a function: the iteration and the number of the exchange after
                 it; without rounds the aggregations of anybody before, and 0
    """

    node: Node
    model: Vector
    k: int
    exchange: int
    _made: dict[bytes, Message] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._packing = packing_of(self.node.deployment.codecs.between)

    def base(self, shown: Vector, theirs: Vector) -> Base[Change] | None:
        """What both ends hold once they have used the link."""
        if self._packing is None:
            return None
        return Base(Change.of(shown), Change.of(theirs))

    async def to(self, bases: Bases) -> Message:
        """The message over a link."""
        packing, base = self._packing, bases.mine
        if packing is None or base is None:
            return Message(self.model, self.model)
        async with self._lock:
            message = self._made.get(base.sha256)
            if message is None:
                members = self.node.topology.at(0)
                sender = np.array([members.edges.index(self.node.name)])
                seed, stream = self.node.deployment.seed, STREAM + self.exchange
                draw = partial(Draw, seed, sender, self.k, stream)
                found = await offload(
                    self.model.is_large,
                    lambda: nearer(packing, self.model, base, draw, self.node.folder),
                )
                shown, load = (self.model, self.model) if found is None else found
                message = Message(load, shown)
                self._made[base.sha256] = message
        return message
