"""Objects as TOML has them: `optimizer = {name = "momentum", momentum = 0.9}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from sdfeel.errors import InputError, closest


def choice(
    where: str,
    kind: type,
    known: Mapping[str, type],
    *,
    none: str | None = None,
    default: str | None = None,
    function: Callable[[Any], Any] | None = None,
    beside: Mapping[str, str] | None = None,
) -> Callable[[Any], Any]:
    """A check of a setting that takes a name, a table or an object.

    Args:
        where: the setting, for mistakes.
        kind: of which the table's classes and the user's own are.
        known: classes by name.
        none: a word for none; None is none, too.
        default: the name where a table has none; by default `none`, or the first that is known.
        function: makes an object of a function of the user's.
        beside: what else a file has to set, by name.
    """

    def check(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        is_table = isinstance(value, Mapping)
        table = {"name": default or none or next(iter(known)), **value} if is_table else {}
        if none is not None and (value is None or none in (value, table.get("name"))):
            for key in sorted(set(table) - {"name"}):
                remedy = f"{none} has no settings: name one of {', '.join(sorted(known))}"
                raise InputError(f"{where}.{key}", table[key], remedy)
            return None
        if is_table:
            return from_table(where, table, known, beside=beside)
        if isinstance(value, str):
            if value not in known:
                raise InputError(where, value, closest(value, known))
            return from_table(where, {"name": value}, known)
        if callable(value) and not isinstance(value, type) and function is not None:
            return function(value)
        raise InputError(where, name_of(value), f"a name or an object; {_known(value, known)}")

    return check


def _known(value: Any, known: Mapping[str, type]) -> str:
    """The known names; and ours for a class of the same name, such as torch.optim.Adam."""
    kind = value if isinstance(value, type) else type(value)
    name = kind.__name__.lower()
    guess = f"sdfeel.{known[name].__name__}(...), not torch's; " if name in known else ""
    if kind.__module__.startswith("torch.optim") and not guess:
        guess = "torch's optimizers do not run here, a subclass of sdfeel.Optimizer does; "
    return guess + closest("", known)


def from_table(
    where: str,
    table: Mapping[str, Any],
    known: Mapping[str, type],
    *,
    key: str = "name",
    beside: Mapping[str, str] | None = None,
) -> Any:
    """Make the object that `table` describes: its `key` names the class, the rest are its fields.

    A table without `key` is of the first class that is known, if `key` is "name".
    """
    settings = dict(table)
    name = settings.get(key, next(iter(known)) if key == "name" else "")
    if not isinstance(name, str) or name not in known:
        raise InputError(f"{where}.{key}", name, closest(str(name), known))
    kind = known[name]
    names = [field.name for field in fields(kind)]
    if key not in names:
        settings.pop(key, None)
    for setting, value in settings.items():
        if setting not in names:
            needed = needed_for(where, setting, known, name, key=key, beside=beside)
            hint = f"it goes with {needed}" if needed else closest(setting, {key, *names})
            raise InputError(f"{where}.{setting}", value, f"unknown key; {hint}")
    return kind(**settings)


def needed_for(
    where: str,
    setting: str,
    known: Mapping[str, type],
    chosen: str | None,
    *,
    key: str = "name",
    beside: Mapping[str, str] | None = None,
) -> str:
    """What a file has to set for this setting; nothing if `chosen` has it, or no class."""
    names = [name for name, kind in known.items() if setting in (f.name for f in fields(kind))]
    more = [f" and {also}" for name, also in (beside or {}).items() if name in names]
    needed = f"{where}.{key} = {' or '.join(map(repr, names))}".lstrip(".")
    return needed + "".join(more) if names and chosen not in names else ""


def to_table(value: object, known: Mapping[str, type], *, key: str = "name") -> dict[str, Any]:
    """The table that describes an object; of one that is not known, its text."""
    if is_dataclass(value) and type(value) in known.values():
        name = next(name for name, kind in known.items() if type(value) is kind)
        return {key: name} | {field.name: getattr(value, field.name) for field in fields(value)}
    return {"name": name_of(value)}


def name_of(value: object) -> str:
    """The name of a function; an object shows itself, with its parameters (losses, methods)."""
    name = getattr(value, "__qualname__", None)
    return name if isinstance(name, str) else re.sub(r" at 0x[0-9a-f]+", "", repr(value))
