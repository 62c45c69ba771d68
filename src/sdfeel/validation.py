"""Checking what comes from outside, once: types for fields, and pydantic's mistakes in our words.

`Count`, `Positive`, `Share` and the others are types of fields, of a `checked` dataclass or of a
pydantic model. Whatever is wrong is an InputError: the field, the value and what would be right.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, dataclass_transform, get_args

import numpy as np
import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainValidator, ValidationError

from sdfeel.errors import InputError, closest, located

Kind = TypeVar("Kind")
Model = TypeVar("Model", bound=BaseModel)


def whole(least: int, most: float = math.inf, remedy: str = "") -> BeforeValidator:
    """Check a whole number from `least` to `most`."""
    return BeforeValidator(functools.partial(whole_number, least=least, most=most, remedy=remedy))


def whole_number(
    value: Any, least: int = 1, most: float = math.inf, remedy: str = "", field: str = ""
) -> int:
    """Check a whole number from `least` to `most`; numpy's are whole numbers, True is none."""
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:
        raise InputError(field, value, remedy or f"a whole number, at least {least}")
    return int(value)


def real(is_right: Callable[[float], bool], remedy: str) -> BeforeValidator:
    """Check a number, which is never infinite unless `is_right` says so of infinity."""
    return BeforeValidator(functools.partial(_real, is_right, remedy))


def _real(is_right: Callable[[float], bool], remedy: str, value: Any) -> float:
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    try:
        number = float(value) if is_real else math.nan
    except OverflowError:  # a whole number may be larger than any float
        number = math.nan
    if not is_right(number):
        raise InputError("", value, remedy)
    return number


def number_above_0(value: Any) -> float:
    """Check a finite number above 0."""
    return _real(lambda x: 0 < x < math.inf, "a finite number above 0", value)


def number_from_0(value: Any) -> float:
    """Check a finite number, not below 0."""
    return _real(lambda x: 0 <= x < math.inf, "a finite number, not below 0", value)


def one_or_each(value: Any) -> float | tuple[float, ...]:
    """Check a finite number above 0 for all, or a list with one for each."""
    if not isinstance(value, list | tuple | np.ndarray):
        return number_above_0(value)
    each = []
    for place, number in enumerate(value):
        with located(f"[{place}]"):
            each.append(number_above_0(number))
    return tuple(each)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):  # "no" would be true
        raise InputError("", value, "true or false")
    return value


Anything = Annotated[Any, PlainValidator(lambda value: value)]
Count = Annotated[int, whole(1)]
Seed = Annotated[int, whole(0, 2**64 - 1, "a whole number from 0 to 2**64 - 1")]
Flag = Annotated[bool, BeforeValidator(_flag)]
Positive = Annotated[float, BeforeValidator(number_above_0)]
OneOrEach = Annotated[float | tuple[float, ...], PlainValidator(one_or_each)]
NotNegative = Annotated[float, real(lambda x: 0 <= x < math.inf, "a finite number, not below 0")]
Share = Annotated[float, real(lambda x: 0 < x <= 1, "a number in (0, 1]")]
BelowHalf = Annotated[float, real(lambda x: 0 <= x < 0.5, "a number from 0 to below 0.5")]
BelowOne = Annotated[float, real(lambda x: 0 <= x < 1, "a number from 0 to below 1")]


@dataclass_transform(frozen_default=True)
def checked(where: str = "", *, kw_only: bool = False) -> Callable[[type[Kind]], type[Kind]]:
    """Make a class a frozen dataclass whose fields are checked; mistakes are named `where.field`.

    >>> from sdfeel.validation import Positive, checked
    >>> @checked("pace")
    ... class Deadline:
    ...     seconds: Positive
    >>> Deadline(seconds=-1.0)
    Traceback (most recent call last):
    sdfeel.errors.InputError: pace.seconds = -1.0: a finite number above 0
    """

    def decorate(kind: type[Kind]) -> type[Kind]:
        config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
        make = pydantic.dataclasses.dataclass(frozen=True, kw_only=kw_only, config=config)
        made: Any = make(kind)
        plain_init = made.__init__

        @functools.wraps(plain_init)
        def init(self: Any, *args: Any, **given: Any) -> None:
            try:
                plain_init(self, *args, **given)
            except ValidationError as problem:
                fields = sorted(dataclasses.fields(made), key=lambda field: bool(field.kw_only))
                names = [field.name for field in fields]  # in the order of arguments
                raise _in_our_words(problem, where, lambda _: names) from None

        made.__init__ = init
        checked_kind: type[Kind] = made
        return checked_kind

    return decorate


def validated(kind: type[Model], table: Mapping[str, Any], where: str = "") -> Model:
    """Check a table: an object of `kind`; the first mistake is named, with `where` it stands."""
    try:
        return kind.model_validate(dict(table))
    except ValidationError as problem:
        known = functools.partial(_fields, kind)
        mistake = _in_our_words(problem, "", known)
        raise (mistake.at(f"{where}: ") if where else mistake) from None


def _in_our_words(
    problem: ValidationError, where: str, known: Callable[[Sequence[str]], Sequence[str]]
) -> InputError:
    """The first mistake; but a misspelt key also leaves the right one missing: then the former."""
    mistakes = problem.errors()
    unknown = ("extra_forbidden", "unexpected_keyword_argument")
    first = next((m for m in mistakes if m["type"] in unknown), mistakes[0])
    path = [str(part) for part in first["loc"]]
    if first["loc"] and isinstance(first["loc"][0], int):  # given by position
        path[:1] = known(())[first["loc"][0] :][:1] or path[:1]
    field = ".".join([*([where] if where else []), *(path[:1] if where else path)])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        is_inside = cause.field[:1] in ("", ".", "[")  # named by its place inside of this field
        return cause.at(field) if is_inside else cause
    if first["type"] in unknown:
        remedy = f"unknown key; {closest(path[-1], known(path[:-1]))}"
    elif first["type"] in ("missing", "missing_argument"):
        return InputError(field, None, "is needed")
    elif first["type"] == "literal_error":
        words = first["ctx"]["expected"].replace(" or ", ", ").split(", ")
        remedy = closest(str(first["input"]), [word.strip("'") for word in words])
    else:
        remedy = first["msg"][0].lower() + first["msg"][1:]
    return InputError(field, first["input"], remedy)


def _fields(kind: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The keys that are right at `path`."""
    for name in path:
        field = kind.model_fields.get(name)
        annotation = field.annotation if field is not None else None
        inner = next(iter(get_args(annotation)), annotation)  # also the table inside of a list
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            kind = inner
    fields = kind.model_fields.items()
    return [field.alias or name for name, field in fields if not field.exclude]
