"""An object of the algorithm as users give it: a name of a table, or the object itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from sdfeel.errors import InputError, closest

__all__ = ["by_name"]

Kind = TypeVar("Kind")


def by_name(field: str, given: Any, known: Mapping[str, type[Kind]], kind: Any) -> Kind:
    """What `given` stands for, with its defaults; InputError names `field`.

    kind  of which the table's classes and users' own are
    """
    if isinstance(given, kind):
        own: Kind = given
        return own
    if not isinstance(given, str):
        raise InputError(field, given, f"a name or an object; {closest('', known)}")
    if given not in known:
        raise InputError(field, given, closest(given, known))
    return known[given]()
