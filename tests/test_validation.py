"""A mistake is named by its field, however the value was given."""

from __future__ import annotations

import pytest

import sdfeel
from sdfeel.errors import InputError
from sdfeel.validation import Count, Positive, checked


@checked("thing")
class Base:
    size: Positive = 1.0


@checked("thing")
class Thing(Base):
    count: Count = 1


@pytest.mark.parametrize(
    ("arguments", "given", "field"),
    [
        ((), {"size": -1.0}, "thing.size"),
        ((-1.0,), {}, "thing.size"),
        ((1.0, 0), {}, "thing.count"),
        ((1.0, 1), {"cuont": 1}, "thing.cuont"),
    ],
)
def test_a_mistake_by_position_is_named_like_one_by_name(
    arguments: tuple[object, ...], given: dict[str, object], field: str
) -> None:
    with pytest.raises(InputError) as caught:
        Thing(*arguments, **given)
    assert caught.value.field == field


def test_fields_that_need_their_names_are_not_counted() -> None:
    """`Momentum` inherits settings that are given by name only, and stand before its own."""
    with pytest.raises(InputError, match=r"optimizer\.momentum = 2\.0"):
        sdfeel.Momentum(2.0)


def test_one_argument_too_many_is_an_error_that_can_be_read() -> None:
    with pytest.raises(InputError, match="unexpected positional argument"):
        Thing(1.0, 1, 2)
