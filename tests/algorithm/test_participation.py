from __future__ import annotations

import numpy as np
import pytest
from algorithms import algorithm_of
from hypothesis import given
from hypothesis import strategies as st

from sdfeel import InputError, Network
from sdfeel.algorithm import participation as room
from sdfeel.algorithm.participation import Participation


def plan_feel(scheme: str, network: Network, beta: float = 1.0) -> Participation:
    return algorithm_of(network, scheme=scheme, participation=beta).participation


@given(st.integers(0, 2**64 - 1), st.floats(0.05, 1), st.integers(0, 10_000))
def test_who_is_present_is_a_function_of_seed_and_period(
    seed: int, beta: float, period: int
) -> None:
    one, two = (Participation(clients=30, seed=seed, beta=beta) for _ in range(2))
    for other in (3, 7, period + 1):
        two.present(other)
    np.testing.assert_array_equal(one.present(period), two.present(period))


@pytest.mark.parametrize("beta", [0.1, 0.5, 0.9])
def test_each_client_comes_with_probability_beta(beta: float) -> None:
    participation = Participation(clients=40, seed=5, beta=beta)
    present = np.stack([participation.present(period) for period in range(1000)])
    spread = 4.5 * np.sqrt(beta * (1 - beta) / 1000)
    assert np.abs(present.mean(axis=0) - beta).max() < spread  # no client is favoured
    assert np.abs(present.mean() - beta) < spread / 6
    between = np.corrcoef(present[:, 0], present[:, 1])[0, 1]
    assert abs(between) < 0.15  # and they come independently


def test_with_beta_1_everyone_comes() -> None:
    assert Participation(clients=5, seed=0).present(17).all()


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_feel_draws_exactly_five_of_those_it_reaches(seed: int, period: int) -> None:
    for reach in (None, tuple(range(3, 15))):
        present = Participation(clients=50, seed=seed, drawn=5, reach=reach).present(period)
        assert present.sum() == 5
        assert set(np.flatnonzero(present)) <= set(reach or range(50))


def test_feel_draws_everyone_equally_often() -> None:
    participation = Participation(clients=20, seed=1, drawn=5)
    counts = sum(participation.present(period).astype(int) for period in range(2000))
    assert np.abs(counts / 2000 - 0.25).max() < 0.05


def test_equal_numbers_do_not_draw_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers have 32 bits: among many clients two are equal now and then."""
    monkeypatch.setattr(room, "uniforms", lambda *_: np.full(12, 0.25))
    assert Participation(clients=12, seed=0, drawn=5).present(0).sum() == 5


def test_reach_of_feel_is_the_first_cluster_and_of_feel_all_everybody() -> None:
    network = Network.ring(10, 5)
    narrow, wide = plan_feel("feel", network), plan_feel("feel-all", network)
    for period in range(30):
        assert np.flatnonzero(narrow.present(period)).tolist() == [0, 1, 2, 3, 4]
        assert wide.present(period).sum() == 5
    seen = np.any([wide.present(period) for period in range(100)], axis=0)
    assert seen.all()


def test_feel_reaches_a_large_cluster_but_draws_five_of_it() -> None:
    network = Network([[9, 1, 2, 3, 4, 5, 6, 7], [0, 8]], "ring")
    present = [plan_feel("feel", network).present(period) for period in range(40)]
    assert {int(p.sum()) for p in present} == {5}
    assert set(np.flatnonzero(np.any(present, axis=0))) == {1, 2, 3, 4, 5, 6, 7, 9}


def test_a_draw_from_those_who_come() -> None:
    """With beta below 1 fewer than five may be there; never more are drawn."""
    drawn = Participation(clients=10, seed=3, beta=0.3, drawn=5)
    free = Participation(clients=10, seed=3, beta=0.3)
    for period in range(50):
        there, chosen = free.present(period), drawn.present(period)
        assert (chosen <= there).all()
        assert chosen.sum() == min(5, there.sum())


@pytest.mark.parametrize("beta", [0, -0.5, 1.01, float("nan")])
def test_beta_is_a_probability_above_0(beta: float) -> None:
    with pytest.raises(InputError, match="in \\(0, 1\\]") as error:
        Participation(clients=3, seed=0, beta=beta)
    assert error.value.field == "participation"


def test_nobody_cannot_be_drawn() -> None:
    with pytest.raises(InputError, match="at least one"):
        Participation(clients=3, seed=0, drawn=0)


@given(st.integers(0, 99), st.sampled_from([0.4, 1.0]), st.sampled_from([None, 3]), st.data())
def test_some_are_asked_for_what_all_are_told(seed: int, beta: float, drawn, data) -> None:
    """Who is present among some clients costs what those are, and is the same."""
    own = Participation(12, seed, beta, drawn)
    some = np.array(data.draw(st.lists(st.integers(0, 11), unique=True)), dtype=int)
    period = data.draw(st.integers(0, 50))
    np.testing.assert_array_equal(own.among(some, period), own.present(period)[some])
