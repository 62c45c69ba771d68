"""Rates: the shapes are those of torch's schedulers, and a function of k alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

import sdfeel
from sdfeel.algorithm.methods.rates import RATES, Given, RateTable, ShapedRate, rates

ETA = 0.3


def of_torch(scheduler: type, steps: int, **options: object) -> list[float]:
    """The rate with which torch makes its 1st, 2nd, ... step."""
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=ETA)
    own, found = scheduler(optimiser, **options), []
    for _ in range(steps):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        own.step()
    return found


@pytest.mark.parametrize("every", [1, 4, 9, 10, 11, 50])
def test_steps_are_those_of_torch(every: int) -> None:
    truth = of_torch(lr_scheduler.StepLR, 10, step_size=every, gamma=0.5)
    own = sdfeel.Step(ETA, every=every, factor=0.5)
    assert rates(own, 1, 10) == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_a_cosine_is_that_of_torch_and_stays_at_its_floor(floor: float) -> None:
    truth = of_torch(lr_scheduler.CosineAnnealingLR, 13, T_max=12, eta_min=floor)
    own = sdfeel.Cosine(ETA, over=12, floor=floor)
    assert rates(own, 1, 13) == pytest.approx(truth, rel=1e-9, abs=1e-15)
    assert own(13) == own(14) == own(1000) == floor


def test_an_inverse_rate_is_half_at_k0() -> None:
    own = sdfeel.Inverse(ETA, k0=40)
    assert own(40) == pytest.approx(ETA / 2)
    assert own(120) == pytest.approx(ETA / 4)


shapes = st.one_of(
    st.builds(sdfeel.Constant, st.just(ETA)),
    st.builds(sdfeel.Step, st.just(ETA), every=st.integers(1, 20), factor=st.floats(0.1, 1)),
    st.builds(sdfeel.Cosine, st.just(ETA), over=st.integers(1, 40), floor=st.floats(0, ETA)),
    st.builds(sdfeel.Inverse, st.just(ETA), k0=st.floats(1, 100)),
)


@given(shapes, st.integers(1, 12))
def test_a_warm_up_rises_linearly_and_then_leaves_it_alone(own: ShapedRate, warmup: int) -> None:
    from dataclasses import replace

    warm = replace(own, warmup=warmup)
    for k in range(1, 30):
        part = min(1.0, k / warmup)
        assert warm(k) == pytest.approx(part * own(k), rel=1e-12)
        assert math.isfinite(warm(k))
        assert warm(k) >= 0
    assert type(own) in RATES.values()  # every shape of the table was meant to be drawn


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 40)), min_size=1, max_size=12))
def test_a_table_of_rates_asks_for_each_iteration_once(asked: list[tuple[int, int]]) -> None:
    """In whatever order clusters come, and where they lie apart: also what lies between."""
    calls: list[int] = []

    def eta(k: int) -> float:
        calls.append(k)
        return 1 / k

    table = RateTable(Given(eta))
    for first, more in asked:
        found = table.between(first, first + more)
        assert found.tolist() == [1 / k for k in range(first, first + more + 1)]
    least, most = min(first for first, _ in asked), max(first + more for first, more in asked)
    assert sorted(calls) == list(range(least, most + 1))
