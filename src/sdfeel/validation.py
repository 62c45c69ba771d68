"""What pydantic says of a mistake, in our words: the field, the value and what would be right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from sdfeel.errors import InputError, closest

__all__ = ["validated"]

Model = TypeVar("Model", bound=BaseModel)


def validated(kind: type[Model], table: Mapping[str, Any], where: str = "") -> Model:
    """A checked `kind`; the first mistake in `table` is named, with `where` it stands."""
    try:
        return kind.model_validate(dict(table))
    except ValidationError as problem:
        mistakes = problem.errors()
        # A misspelt key also leaves the right one missing: say the former.
        first = next((m for m in mistakes if m["type"] == "extra_forbidden"), mistakes[0])
        path = [str(part) for part in first["loc"]]
        own = first.get("ctx", {}).get("error")
        prefix = f"{where}: " if where else ""
        if isinstance(own, InputError):
            field = own.field or path[0]
            raise InputError(f"{prefix}{field}", own.value, own.remedy) from None
        if first["type"] == "extra_forbidden":
            remedy = f"unknown key; {closest(path[-1], _fields(kind, path[:-1]))}"
        elif first["type"] == "missing":
            remedy = "is needed"
        else:
            remedy = first["msg"][0].lower() + first["msg"][1:]
        raise InputError(f"{prefix}{'.'.join(path)}", first["input"], remedy) from None


def _fields(kind: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The keys that are right at `path`."""
    for name in path:
        field = kind.model_fields.get(name)
        found = field.annotation if field is not None else None
        inner = next(iter(get_args(found)), found)  # also the table inside of a list
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            kind = inner
    fields = kind.model_fields.items()
    return [field.alias or name for name, field in fields if not field.exclude]
