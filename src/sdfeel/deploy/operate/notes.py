"""Facts as an edge gives them to an operator: checked as anything that comes from outside."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sdfeel.deploy.facts.facts import FACTS
from sdfeel.deploy.facts.stream import Noted
from sdfeel.deploy.operate.asking import printable
from sdfeel.deploy.protocol import v1

__all__ = ["read_facts"]

MOST = 4096  # facts of one answer
LONGEST = 64 * 1024  # characters of the fields of one
CLASSES = {fact.__name__: fact for fact in FACTS}


@cache
def _reader(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(CLASSES[kind])


def read_facts(facts: Iterable[v1.Fact], since: int) -> list[Noted]:
    """Return the facts that are valid, after number `since`, in their order.

    An edge of another version may know facts that this program does not: they are left out, as is
    everything that is not as its class says.
    """
    notes: list[Noted] = []
    last = since
    for each in list(facts)[:MOST]:
        kind = CLASSES.get(each.kind)
        is_late = each.number > last and math.isfinite(each.time)
        if kind is None or not is_late or len(each.fields) > LONGEST:
            continue
        try:
            fields = _reader(each.kind).validate_json(each.fields)
        except (ValidationError, RecursionError):
            continue
        last = each.number
        clean = {name: _harmless(value) for name, value in vars(fields).items()}
        notes.append(Noted(each.number, each.time, kind(**clean), max(1, each.count)))
    return notes


def _harmless(value: Any) -> Any:
    """Return a value whose texts a terminal can show."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _harmless(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_harmless(each) for each in value)
    return value
