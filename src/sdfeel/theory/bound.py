"""Theorem 1 and Lemma 2 as a calculator.

With z the contraction of one inter-cluster aggregation (zeta^alpha for the paper's exchanges) and
t = tau1 tau2,

    Lambda = z^2/(1-z^2) + 2z/(1-z) + z^2/(1-z)^2
    V3     = t^2 Lambda + N (2-z)/(1-z)
    V1     = (t z^2/(1-z^2) + (t-1)/2) / (1 - 16 eta^2 L^2 V3)
    V2     = V3 / (1 - 16 eta^2 L^2 V3)

and, if 1 - eta L - 8 eta^2 L^2 V2 >= 0 and 1 - 16 eta^2 L^2 V3 > 0 (eq. 14), the mean squared
gradient over K iterations is at most (eq. 15)

    2 Delta/(eta K) + eta L sigma^2 sum_i m_i^2 + 2 eta^2 L^2 V1 sigma^2 + 8 eta^2 L^2 V2 kappa^2.

Two versions share every line of this and differ in N and in what is claimed:

`literal`    N = t (t-1)/2, as printed. The proof uses the plain operator norm, in which its Lemma
             on H_2 is false as soon as clusters differ in size.
`corrected`  N = tau1^2 tau2 (tau2-1)/2 + tau1 (tau1-1)/2, and the m-weighted norm, in which the
             proof holds for clusters of any size. kappa^2 may then be the m-weighted mean of
             ||grad F_i - grad F||^2 in the place of its maximum.

docs/theory.md derives both.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Literal

from sdfeel.validation import Count, NotNegative, Positive, Share, checked, real

Version = Literal["literal", "corrected"]
Contraction = Annotated[
    float,
    real(
        lambda z: 0 <= z < 1,
        "zeta^alpha must be in [0, 1): at 1 and above the servers never agree "
        "(is the graph connected?)",
    ),
]


@checked("")
class Constants:
    """The constants that Theorem 1 asks of the problem (Assumption 1).

    Attributes:
        smoothness: L.
        variance: sigma^2, of one client's mini-batch gradient.
        non_iid: kappa^2.
        gap: Delta = F(w_0) - F(w*).
    """

    smoothness: Positive
    variance: NotNegative
    non_iid: NotNegative
    gap: NotNegative


@checked("")
class Lemma2:
    """The constants that Lemma 2 needs of the schedule alone, before a learning rate is chosen.

    `contraction` is zeta^alpha, or any averager's own.

    Example:
        >>> from sdfeel.theory import Lemma2
        >>> round(Lemma2(tau1=5, tau2=1, contraction=0.5).V3, 1)
        113.3
    """

    tau1: Count
    tau2: Count
    contraction: Contraction
    version: Version = "literal"

    @property
    def _t(self) -> int:
        return self.tau1 * self.tau2

    @property
    def _squares(self) -> float:
        """z^2 + z^4 + z^6 + ..."""
        return self.contraction**2 / (1 - self.contraction**2)

    @property
    def Lambda(self) -> float:  # noqa: N802 - as in the paper, also below
        z = self.contraction
        return self._squares + 2 * z / (1 - z) + (z / (1 - z)) ** 2

    @cached_property
    def V3(self) -> float:  # noqa: N802
        z, t, tau1, tau2 = self.contraction, self._t, self.tau1, self.tau2
        inside = t * (t - 1) / 2
        if self.version == "corrected":
            inside = tau1**2 * tau2 * (tau2 - 1) / 2 + tau1 * (tau1 - 1) / 2
        return t**2 * self.Lambda + inside * (2 - z) / (1 - z)

    @property
    def V1_numerator(self) -> float:  # noqa: N802
        """T z^2/(1-z^2) + (t-1)/2; V1 and V2 follow once eta L is known."""
        return self._t * self._squares + (self._t - 1) / 2

    def denominator(self, eta_L: float) -> float:
        """1 - 16 eta^2 L^2 V3: must be above 0."""
        return 1 - 16 * eta_L**2 * self.V3

    def slack(self, eta_L: float) -> float:
        """1 - eta L - 8 eta^2 L^2 V2: must not be below 0; -inf where V2 has no meaning."""
        denominator = self.denominator(eta_L)
        if denominator <= 0:
            return -math.inf
        return 1 - eta_L - 8 * eta_L**2 * self.V3 / denominator

    @property
    def max_eta_L(self) -> float:  # noqa: N802
        """The largest eta L for which both conditions of eq. (14) hold.

        The slack falls from 1 at 0, so this is its only zero below 1 / (4 sqrt V3): bisection.
        """
        if self.V3 == 0:
            return 1.0
        low, high = 0.0, min(1.0, 1 / (4 * math.sqrt(self.V3)))
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if self.slack(middle) >= 0 else (low, middle)
        return low


@checked("")
class Theorem1:
    """Every quantity of Theorem 1 for one setting, and whether the theorem may be used there.

    V1, V2, the terms that contain them and the bound are infinite where 1 - 16 eta^2 L^2 V3 <= 0.
    Where only the other condition fails they have a value, which no proof supports.

    Attributes:
        noise_share: sum_i m_i^2 (1/C for equal clients).
        moving, selection: of partial participation, see `sdfeel.theory.participation`.

    Example:
        >>> from sdfeel.theory import Constants, Lemma2, Theorem1
        >>> constants = Constants(smoothness=1, variance=1, non_iid=1, gap=1)
        >>> Theorem1(Lemma2(5, 1, 0.5), constants, 0.001, 1000, noise_share=0.02).dominant
        'start'
    """

    schedule: Lemma2
    constants: Constants
    lr: Positive
    iterations: Count
    noise_share: NotNegative
    moving: Share = 1.0
    selection: NotNegative = 0.0

    @property
    def _eta_L(self) -> float:  # noqa: N802
        return self.lr * self.constants.smoothness

    @property
    def denominator(self) -> float:
        return self.schedule.denominator(self._eta_L)

    @property
    def slack(self) -> float:
        return self.schedule.slack(self._eta_L)

    @property
    def max_lr(self) -> float:
        """The largest learning rate for which both conditions hold."""
        return self.schedule.max_eta_L / self.constants.smoothness

    @property
    def V1(self) -> float:  # noqa: N802
        return self.schedule.V1_numerator / self.denominator if self.denominator > 0 else math.inf

    @property
    def V2(self) -> float:  # noqa: N802
        return self.schedule.V3 / self.denominator if self.denominator > 0 else math.inf

    @cached_property
    def terms(self) -> dict[str, float]:
        """The four terms of eq. (15), by name."""
        eta_L, constants = self._eta_L, self.constants
        noise = constants.variance * self.noise_share
        noise += self.schedule.tau1 * constants.non_iid * self.selection
        return {
            "start": 2 * constants.gap / (self.lr * self.iterations) / self.moving,
            "noise": eta_L * noise,
            "noise_deviation": _product(2 * eta_L**2 * constants.variance, self.V1),
            "non_iid_deviation": _product(8 * eta_L**2 * constants.non_iid, self.V2),
        }

    @property
    def bound(self) -> float:
        """The right-hand side of eq. (15)."""
        return sum(self.terms.values())

    @property
    def conditions_hold(self) -> bool:
        return self.denominator > 0 and self.slack >= 0

    @property
    def dominant(self) -> str:
        """The name of the largest term."""
        return max(self.terms, key=lambda name: self.terms[name])

    @property
    def deviation(self) -> dict[str, float]:
        """Lemma 2: sigma^2's and kappa^2's part of the mean deviation, and the factor of mean J."""
        squared = self.lr**2
        return {
            "noise": _product(2 * squared * self.constants.variance, self.V1),
            "drift": _product(8 * squared * self.constants.non_iid, self.V2),
            "per_J": _product(8 * squared, self.V2),
        }

    @property
    def verdict(self) -> str:
        """Say in one sentence whether the theorem applies, and if not, what would make it."""
        if self.conditions_hold:
            return (
                f"both step-size conditions hold: Theorem 1 applies "
                f"(up to a learning rate of {self.max_lr:.4g})"
            )
        which = "1 - eta L - 8 eta^2 L^2 V2 >= 0"
        if self.denominator <= 0:
            which = "1 - 16 eta^2 L^2 V3 > 0"
        return (
            f"the step-size condition {which} is violated: Theorem 1 is qualitative only here; "
            f"it would need a learning rate of at most {self.max_lr:.4g} "
            f"(or L at most {self.schedule.max_eta_L / self.lr:.4g} at this learning rate)"
        )


def _product(factor: float, possibly_infinite: float) -> float:
    """0 x inf = 0: without noise the noise term is 0 whatever V1 is."""
    return factor * possibly_infinite if factor else 0.0
