"""What one end of a link remembers, so that a break or a death does not leave it used by one side.

    ledger    exchanges that used the link: what this end answers when the other asks
    doubts    it said READY and did not hear the decision: what it left out for now
    gifts     what the link gave it in a period that the other end may not have on its disk
    repairs   settled since: to be added to the model before the next checkpoint

All of it goes into the edge's checkpoints, together with the model that it is about.

A gift stays until the other end has confirmed the period. Whether it has is plain as long as both
live. If the other end has died since, either its disk is from before that period, or it is asked
and its own ledger tells; if the gift was lost there, it is taken out here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sdfeel.deploy.model.vectors import Change
from sdfeel.deploy.observe.logs import Log

__all__ = ["Doubt", "Gift", "Key", "Memory"]

Key = tuple[int, int]
REMEMBERED = 256
# Later than that, training has gone on from a difference and undoing it would disturb more.
PERIODS = 4


@dataclass
class Doubt:
    """To be added if the other end used the link; `children` of an all-reduce wait for it too."""

    change: Change
    children: list[str] = field(default_factory=list)


@dataclass
class Gift:
    """What the exchanges `keys` of one period gave, in this life of the other end."""

    keys: list[Key]
    change: Change
    incarnation: int


class Memory:
    """Of one link; see above."""

    def __init__(self, peer: str, log: Log) -> None:
        self.ledger: list[Key] = []
        self.doubts: dict[Key, Doubt] = {}
        self.gifts: dict[int, Gift] = {}
        self.repairs: list[Change] = []
        self._peer, self._log = peer, log

    def used(self, key: Key) -> None:
        """An exchange used the link."""
        self.ledger.append(key)
        del self.ledger[:-REMEMBERED]

    def holds(self, key: Key) -> bool:
        """The answer to the other end's question: it was used here, or will be if it was there."""
        return key in self.ledger or key in self.doubts

    def give(self, key: Key, change: Change, incarnation: int) -> None:
        """Keeps what the link gave, until the other end has it on its disk."""
        known = self.gifts.get(key[0])
        if known is None:
            self.gifts[key[0]] = Gift([key], change, incarnation)
        else:
            known.keys.append(key)
            known.change += change

    def confirm(self, done: int, incarnation: int) -> None:
        """The other end, in this life, has everything up to `done` on its disk."""
        for period, gift in list(self.gifts.items()):
            if period <= done and gift.incarnation == incarnation:
                del self.gifts[period]

    def meet(self, done: int, incarnation: int) -> list[Key]:
        """The other end is there, with `done` on its disk; what it must be asked about."""
        self.confirm(done, incarnation)
        asked = list(self.doubts)
        for period, gift in list(self.gifts.items()):
            if gift.incarnation != incarnation:
                if period > done:
                    self._take_back(period)
                else:
                    asked.append(gift.keys[0])
        return asked

    def settle(self, key: Key, used: bool) -> None:
        """The other end's answer about a gift."""
        gift = self.gifts.get(key[0])
        if gift is None or key not in gift.keys:
            return
        if used:
            del self.gifts[key[0]]
        else:
            self._take_back(key[0])

    def _take_back(self, period: int) -> None:
        """The other end has forgotten the exchanges of this period: they never happened."""
        gift = self.gifts.pop(period)
        self.repairs.append(-gift.change)
        for key in gift.keys:
            self._log("taken-back", peer=self._peer, key=key)
            if key in self.ledger:
                self.ledger.remove(key)

    def forget(self, period: int) -> list[tuple[Key, Doubt]]:
        """Drops what is too old to be made good; the doubts among it."""
        for old in [old for old in self.gifts if old < period - PERIODS]:
            for key in self.gifts.pop(old).keys:
                self._log("unconfirmed", peer=self._peer, key=key)
        dropped = []
        for key in [key for key in self.doubts if key[0] < period - PERIODS]:
            dropped.append((key, self.doubts.pop(key)))
            self._log("unresolved", peer=self._peer, key=key)
        return dropped

    # In checkpoints: names and numbers as JSON, what is to be added by its place in a list.

    def dump(self, changes: list[Change]) -> dict[str, Any]:
        """For `load`; appends to `changes`."""

        def put(change: Change) -> int:
            changes.append(change)
            return len(changes) - 1

        return {
            "ledger": list(self.ledger),
            "doubts": [[k, put(d.change), d.children] for k, d in self.doubts.items()],
            "gifts": [[list(g.keys), put(g.change), g.incarnation] for g in self.gifts.values()],
            "repairs": [put(change) for change in self.repairs],
        }

    def load(self, notes: dict[str, Any], changes: Sequence[Change | None]) -> None:
        """What `dump` gave, after a restart; what was lost with a disk's cache is left out."""
        self.ledger = [_key(pair) for pair in notes["ledger"]]
        for pair, place, children in notes["doubts"]:
            if (change := changes[place]) is not None:
                self.doubts[_key(pair)] = Doubt(change, list(children))
        for pairs, place, incarnation in notes["gifts"]:
            keys = [_key(pair) for pair in pairs]
            if (change := changes[place]) is not None:
                self.gifts[keys[0][0]] = Gift(keys, change, int(incarnation))
        found = [changes[place] for place in notes["repairs"]]
        self.repairs = [change for change in found if change is not None]


def _key(pair: Sequence[int]) -> Key:
    period, exchange = pair
    return int(period), int(exchange)
