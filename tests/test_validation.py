"""A mistake is named by its field, however the value was given."""

from __future__ import annotations

import pytest

import sdfeel
from sdfeel.errors import InputError, closest, located
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


def test_a_mistake_says_where_it_was_made() -> None:
    with pytest.raises(InputError) as caught, located("graphs[2]: "):
        Thing(size=-1.0)
    mistake = caught.value
    assert str(mistake) == "graphs[2]: thing.size = -1.0: a finite number above 0"
    assert (mistake.field, mistake.value) == ("graphs[2]: thing.size", -1.0)


def test_an_unknown_name_is_answered_with_a_short_list() -> None:
    """Fifty names are a wall: the nearest are named, and where all of them can be read."""
    names = [f"setting_{number}" for number in range(50)]
    said = closest("setting_7x", names, "docs/settings.md")
    assert said.startswith("did you mean 'setting_7'? ")
    assert said.count("setting_") < 10
    assert said.endswith("and 44 more, see docs/settings.md")
    assert closest("x", ["a", "b"], "docs/settings.md") == "known: a, b"
    assert sdfeel.SCHEMES.keys() <= set(closest("", sdfeel.SCHEMES).replace(",", "").split())
