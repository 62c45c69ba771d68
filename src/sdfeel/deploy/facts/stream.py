"""The stream of facts of one node, and the newest of them for operators who ask now and then."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sdfeel.deploy.facts.facts import Fact
from sdfeel.deploy.facts.limits import Limits

__all__ = ["Facts", "Noted", "Recent", "Tell", "fields_as_json"]

Tell = Callable[[Fact], None]

LONGEST = 200  # characters of a text in a fact, and names in a list, that an operator is given
MOST_BYTES = 64 * 1024  # of the facts of one answer


class Facts:
    """Pass what is told to the log, the metrics and whatever else follows, in this order."""

    def __init__(self, *followers: Tell) -> None:
        self._followers = [*followers]

    def tell(self, fact: Fact) -> None:
        for follower in self._followers:
            follower(fact)

    def follow(self, follower: Tell) -> None:
        """Pass facts to one more, from now on."""
        self._followers.append(follower)


@dataclass(frozen=True)
class Noted:
    """A fact with its place in the life of a node.

    number  counts up in one life
    time    by the clock of the node, in seconds since 1970
    count   how many facts it stands for, see `Fact.limit`
    """

    number: int
    time: float
    fact: Fact
    count: int = 1


class Recent:
    """The newest facts of a node, some of each class (`Fact.recent`)."""

    def __init__(self) -> None:
        self._limits, self._number = Limits(), 0
        self._notes: dict[type[Fact], deque[Noted]] = {}

    def add(self, fact: Fact) -> None:
        """Note a fact, unless there have been enough of its like."""
        about = self._limits.admit(fact)
        if about is not None:
            self._number += 1
            notes = self._notes.setdefault(type(fact), deque(maxlen=fact.recent))
            notes.append(Noted(self._number, time.time(), fact, about.get("count", 1)))

    def since(self, number: int) -> list[tuple[Noted, str]]:
        """Return the newest facts after this number with their fields, in `MOST_BYTES` at most."""
        notes = [note for note in chain(*self._notes.values()) if note.number > number]
        newest: list[tuple[Noted, str]] = []
        room = MOST_BYTES
        for note in sorted(notes, key=lambda note: note.number, reverse=True):
            fields = fields_as_json(note.fact)
            room -= len(fields)
            if room < 0:
                break
            newest.append((note, fields))
        return newest[::-1]


def fields_as_json(fact: Fact) -> str:
    """Return the fields of a fact, with long texts and lists cut."""
    fields = {field.name: getattr(fact, field.name) for field in dataclasses.fields(fact)}  # type: ignore[arg-type]
    return json.dumps({name: _cut(value) for name, value in fields.items()}, default=str)


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value[:LONGEST]
    if isinstance(value, Mapping):
        return {key[:LONGEST]: value[key] for key in [*value][:LONGEST]}
    if isinstance(value, list | tuple):
        return [_cut(each) for each in value[:LONGEST]]
    return value
