"""Objects of a table by name, as TOML has them: `local = {name = "momentum", momentum = 0.9}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from sdfeel.errors import InputError, closest

__all__ = ["from_table", "name_of", "to_table"]


def from_table(where: str, table: Mapping[str, Any], known: Mapping[str, type]) -> Any:
    """The object that `table` describes: its `name`, and its class's own fields."""
    settings = dict(table)
    name = settings.get("name", next(iter(known)))
    if not isinstance(name, str) or name not in known:
        raise InputError(f"{where}.name", name, closest(str(name), known))
    kind = known[name]
    own = {field.name: field for field in fields(kind)} if is_dataclass(kind) else {}
    if "name" not in own:
        settings.pop("name", None)
    for key, value in settings.items():
        if key not in own:
            raise InputError(
                f"{where}.{key}", value, f"{name} has no such setting; {closest(key, own)}"
            )
        default = own[key].default
        if isinstance(default, float) and (isinstance(value, bool) or not _is_number(value)):
            raise InputError(f"{where}.{key}", value, "a number")
    for key, field in own.items():
        if key not in settings and field.default is MISSING and field.default_factory is MISSING:
            raise InputError(f"{where}.{key}", None, f"{name} needs it")
    return kind(**settings)


def to_table(value: object, known: Mapping[str, type]) -> dict[str, Any]:
    """The table that describes an object; of one that is not known, its text."""
    for name, kind in known.items():
        if type(value) is kind and is_dataclass(value):
            return {"name": name} | {
                field.name: getattr(value, field.name) for field in fields(value)
            }
    return {"name": name_of(value)}


def name_of(value: object) -> str:
    """The name of a function; an object shows itself, with its parameters (losses, rules)."""
    name = getattr(value, "__qualname__", None)
    return name if isinstance(name, str) else re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
