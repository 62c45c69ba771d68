from __future__ import annotations

from itertools import islice

import pytest
from algorithms import algorithm_of
from hypothesis import given
from hypothesis import strategies as st
from worlds import schedules

from sdfeel import InputError, Network, Schedule


@given(schedules, st.integers(1, 60))
def test_events_are_those_of_algorithm_1(schedule: Schedule, steps: int) -> None:
    """An aggregation where k is a multiple of tau1, an exchange where it is one of tau1 tau2."""
    events = list(algorithm_of(Network.ring(3, 2), schedule=schedule).events(steps))
    ends = [k for k in range(1, steps + 1) if k % schedule.tau1 == 0 or k == steps]
    assert [event.k for event in events] == ends
    for number, event in enumerate(events):
        assert event.number == number
        assert (event.mixing is not None) == (event.k % schedule.tau == 0)
        assert event.is_short == (event.k % schedule.tau1 != 0)
        assert event.round == (event.k - 1) // schedule.tau
        for group in event.groups:
            assert group.last.tolist() == [event.k] * 2
            assert group.first.tolist() == [ends[number - 1] + 1 if number else 1] * 2


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)), min_size=5),
    st.integers(1, 5),
)
def test_numbers_may_be_functions_of_the_round(rounds: list, count: int) -> None:
    """As if each round were a schedule of its own."""
    lengths = [dict(zip(("tau1", "tau2", "alpha"), own, strict=True)) for own in rounds]
    schedule = Schedule(*(lambda n, k=k: lengths[n][k] for k in ("tau1", "tau2", "alpha")))
    k, own = 0, []
    for number in range(count):
        tau1, tau2, alpha = rounds[number]
        for turn in range(tau2):
            k += tau1
            own.append((number, k, alpha if turn == tau2 - 1 else None))
    events = islice(algorithm_of(Network.ring(4, 1), schedule=schedule).events(), len(own))
    found = [(e.round, e.k, e.mixing.exchanges if e.mixing else None) for e in events]
    assert found == own


def test_a_function_that_gives_no_count_is_named() -> None:
    with pytest.raises(InputError, match=r"tau1\(0\) = 1.5"):
        Schedule(tau1=lambda _: 1.5).at(0)


@pytest.mark.parametrize("name", ["tau1", "tau2", "alpha"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True, None])
def test_periods_are_whole_and_above_0(name: str, value: object) -> None:
    with pytest.raises(InputError) as error:
        Schedule(**{name: value})  # type: ignore[arg-type]
    assert error.value.field == f"schedule.{name}"
    assert repr(value) in str(error.value)
    assert "at least 1" in str(error.value)
