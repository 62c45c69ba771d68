from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import schedules

from sdfeel import InputError, Schedule


@given(schedules, st.integers(1, 100))
def test_a_schedule_is_what_algorithm_1_says(schedule: Schedule, k: int) -> None:
    assert schedule.is_intra(k) == (k % schedule.tau1 == 0)
    assert schedule.is_inter(k) == (k % (schedule.tau1 * schedule.tau2) == 0)
    after = schedule.next_intra(k)
    assert after > k
    assert [j for j in range(k + 1, after + 1) if schedule.is_intra(j)] == [after]
    aggregations_before = sum(schedule.is_intra(j) for j in range(1, k))
    assert schedule.period(k) == aggregations_before


@pytest.mark.parametrize("name", ["tau1", "tau2", "alpha"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True, None])
def test_periods_are_whole_and_above_0(name: str, value: object) -> None:
    with pytest.raises(InputError) as error:
        Schedule(**{name: value})  # type: ignore[arg-type]
    assert error.value.field == name
    assert repr(value) in str(error.value)
    assert "at least 1" in str(error.value)
