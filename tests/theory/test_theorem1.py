"""The calculator against figures computed by hand from the paper's definitions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.theory.bound import Constants, Lemma2, Theorem1

RING = Network.ring(10, 5).zeta

# (tau1, tau2, alpha): Lambda, numerator of V1, V3, largest eta L; four digits each.
KNOWN = {
    (1, 1, 1): (34.04, 2.142, 34.04, 0.03478),
    (2, 1, 5): (1.806, 0.8453, 9.845, 0.06432),
    (3, 1, 1): (34.04, 7.426, 326.6, 0.01127),
    (20, 1, 1): (34.04, 52.34, 14898, 0.00167),
    (5, 5, 1): (34.04, 65.55, 23299, 0.00134),
    (5, 5, 10): (0.3973, 12.55, 900.1, 0.00680),
    (5, 1, 1): (34.04, 12.71, 918.5, 0.00673),
}

taus = st.integers(1, 30)
contractions = st.floats(0, 0.98)


@pytest.mark.parametrize("setting", KNOWN)
def test_the_figures_of_the_paper_s_settings(setting):
    tau1, tau2, alpha = setting
    found = Lemma2(tau1, tau2, RING**alpha)
    values = (found.Lambda, found.V1_numerator, found.V3, found.max_eta_L)
    # The expectations are printed with four digits, the last column with five decimals.
    assert values[:3] == pytest.approx(KNOWN[setting][:3], rel=5e-4)
    assert values[3] == pytest.approx(KNOWN[setting][3], abs=6e-6)


@given(taus, taus, contractions, st.sampled_from(["literal", "corrected"]))
def test_the_largest_step_is_exactly_where_a_condition_starts_to_fail(tau1, tau2, z, version):
    found = Lemma2(tau1, tau2, z, version)
    edge = found.max_eta_L
    assert found.slack(edge) >= 0
    assert found.denominator(edge) > 0
    assert found.slack(edge * (1 + 1e-9)) < 0


@given(taus, taus, contractions)
def test_the_corrected_constant_is_never_worse_and_equal_without_tau2(tau1, tau2, z):
    literal, corrected = (Lemma2(tau1, tau2, z, v) for v in ("literal", "corrected"))
    assert corrected.V3 <= literal.V3 * (1 + 1e-12)
    if tau2 == 1:
        assert pytest.approx(literal.V3) == corrected.V3


@given(taus, taus, st.floats(0, 0.9), st.sampled_from(["literal", "corrected"]))
def test_remarks_1_and_2_the_bound_grows_with_tau1_tau2_and_zeta(tau1, tau2, z, version):
    constants = Constants(smoothness=1.0, variance=2.0, non_iid=3.0, gap=1.0)
    worst = Lemma2(tau1 + 1, tau2 + 1, z + 0.05, version)
    lr = worst.max_eta_L / 2  # the conditions hold for all that are compared

    def bound(*schedule):
        return Theorem1(Lemma2(*schedule, version), constants, lr, 100, 0.02).bound

    here = bound(tau1, tau2, z)
    assert bound(tau1 + 1, tau2, z) > here
    assert bound(tau1, tau2 + 1, z) > here
    assert bound(tau1, tau2, z + 0.05) > here


def test_remark_3_everything_averaged_at_every_step_is_synchronous_sgd():
    found = Theorem1(Lemma2(1, 1, 0.0), Constants(2.0, 3.0, 5.0, 7.0), 0.1, 100, 0.02)
    assert (found.V1, found.V2) == (0, 0)
    assert found.max_lr == pytest.approx(1 / 2.0)
    assert found.bound == pytest.approx(2 * 7 / (0.1 * 100) + 0.1 * 2 * 3 * 0.02)


def test_a_violated_condition_is_said_plainly_with_what_would_hold():
    found = Theorem1(Lemma2(5, 5, RING), Constants(10.0, 1.0, 1.0, 1.0), 0.01, 100, 0.02)
    assert not found.conditions_hold
    assert math.isinf(found.bound)
    assert "violated" in found.verdict
    assert "L at most 0.1337" in found.verdict  # eta = 0.01 needs L <= .134
    held = Theorem1(found.schedule, found.constants, found.max_lr, 100, 0.02)
    assert held.conditions_hold


def test_an_infinite_v1_does_not_spoil_a_term_that_is_zero():
    found = Theorem1(Lemma2(5, 5, RING), Constants(10.0, 0.0, 0.0, 1.0), 0.1, 100, 0.02)
    assert found.terms["noise_deviation"] == 0
    assert math.isfinite(found.bound)


@pytest.mark.parametrize("z", [1.0, 1.5, -0.1, math.nan])
def test_servers_that_never_agree_are_refused(z):
    with pytest.raises(InputError, match=r"must be in \[0, 1\)"):
        Lemma2(1, 1, z)


@pytest.mark.parametrize("field", ["smoothness", "variance", "non_iid", "gap"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_negative_or_meaningless_constants_are_refused_by_name(field, value):
    good = {"smoothness": 1.0, "variance": 1.0, "non_iid": 1.0, "gap": 1.0}
    with pytest.raises(InputError, match=field):
        Constants(**(good | {field: value}))


@pytest.mark.parametrize(("tau1", "tau2"), [(0, 1), (1, 0), (1.5, 1), (True, 1)])
def test_periods_are_whole_numbers(tau1, tau2):
    with pytest.raises(InputError, match="tau"):
        Lemma2(tau1, tau2, 0.5)
