"""When a curve reaches a level: one definition, held against a dense grid and on its own terms."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sdfeel.records.curves import Curve, first_reach

steps = st.lists(st.floats(1e-3, 10), min_size=2, max_size=20)
numbers = st.floats(-5, 5)


@given(gaps=steps, climbs=steps, part=st.floats(0, 1), falling=st.booleans())
def test_it_inverts_a_monotone_curve(gaps, climbs, part, falling):
    count = min(len(gaps), len(climbs))
    at, value = np.cumsum(gaps[:count]), np.cumsum(climbs[:count])
    value = -value if falling else value
    level = float(np.interp(part, [0, 1], [value[0], value[-1]]))
    when = first_reach(at, value, level, is_falling=falling)
    assert when is not None
    assert at[0] <= when <= at[-1]
    assert np.interp(when, at, value) == pytest.approx(level, rel=1e-6, abs=1e-6)


@example(values=[1.0], level=1.0, falling=True)  # at the level is enough
@example(values=[1.0], level=np.nextafter(1.0, 0), falling=True)
@example(values=[2.0, 2.0, 1.0, 1.0], level=1.0, falling=True)
@given(values=st.lists(numbers, min_size=1, max_size=12), level=numbers, falling=st.booleans())
def test_it_is_the_first_time(values, level, falling):
    x, y = np.arange(len(values), dtype=float), np.array(values)
    when = first_reach(x, y, level, is_falling=falling)
    reached = [
        k for k, value in enumerate(values) if (value <= level if falling else value >= level)
    ]
    if not reached:
        assert when is None
    else:
        assert max(reached[0] - 1, 0) <= when <= reached[0]


@given(gaps=steps, values=st.lists(numbers, min_size=2, max_size=20), level=numbers)
def test_a_dense_grid_finds_the_same_to_its_own_spacing(gaps, values, level):
    """What verdicts used before: the first of some thousand points that is there."""
    count = min(len(gaps), len(values))
    x, y = np.cumsum(gaps[:count]), np.array(values[:count])
    when = first_reach(x, y, level, is_falling=True)
    grid = np.linspace(x[0], x[-1], 4020)
    there = np.interp(grid, x, y) <= level
    if when is None:
        assert not there.any()
    elif there.any():  # else the curve touches the level between two points
        spacing = grid[1] - grid[0]
        assert when <= grid[np.argmax(there)] + 1e-9
        after = grid[np.searchsorted(grid, when) : np.argmax(there)]
        assert (np.interp(after, x, y) > level - 1e-9).all()
        if not len(after):
            assert grid[np.argmax(there)] - when <= spacing + 1e-9


@given(values=st.lists(numbers, min_size=1, max_size=10), level=numbers)
def test_a_rising_curve_is_a_falling_one_upside_down(values, level):
    x, y = np.arange(len(values), dtype=float), np.array(values)
    assert first_reach(x, y, level, is_falling=False) == first_reach(x, -y, -level, is_falling=True)


@given(
    values=st.lists(numbers, min_size=1, max_size=10), level=numbers, at=st.integers(0, 10),
    nothing=st.sampled_from([np.nan, np.inf, -np.inf]),
)  # fmt: skip
def test_what_is_no_number_is_no_evaluation(values, level, at, nothing):
    """A run that diverged, or an evaluation that was not taken."""
    x, y = np.arange(len(values), dtype=float), np.array(values)
    row = min(at, len(values))
    more_x, more_y = np.insert(x, row, row - 0.5), np.insert(y, row, nothing)
    for falling in (True, False):
        without = first_reach(x, y, level, is_falling=falling)
        assert first_reach(more_x, more_y, level, is_falling=falling) == without
    assert first_reach(np.array([1.0]), np.array([nothing]), level, is_falling=True) is None


def test_a_curve_is_two_columns_in_order():
    table = pd.DataFrame(
        {"seconds": [3.0, 1.0, 2.0, np.nan], "train_loss": [0.5, 2.0, np.nan, 9.0], "empty": np.nan}
    )
    curve = Curve.of(table, "seconds", "train_loss")
    assert curve is not None
    assert curve.x.tolist() == [1.0, 3.0]
    assert curve.y.tolist() == [2.0, 0.5]
    assert curve.last == 3.0
    assert curve.is_falling
    assert curve.reaches(1.25) == 2.0
    assert Curve.of(table, "seconds", "empty") is None
    assert Curve.of(table, "iteration", "train_loss") is None
    named = {"test_accuracy": False, "test_error": True, "disagreement": True, "server_loss": True}
    for column, is_falling in named.items():
        frame = pd.DataFrame({"seconds": [0.0], column: [1.0]})
        assert Curve.of(frame, "seconds", column).is_falling == is_falling
        assert Curve.of(frame, "seconds", column, not is_falling).is_falling != is_falling
