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
from dataclasses import dataclass
from typing import Literal, get_args

from sdfeel.errors import InputError, closest

__all__ = ["Constants", "Lemma2", "Theorem1", "Version", "lemma2", "theorem1"]

Version = Literal["literal", "corrected"]


@dataclass(frozen=True)
class Constants:
    """What Theorem 1 asks of the problem (Assumption 1).

    smoothness  L
    variance    sigma^2, of one client's mini-batch gradient
    non_iid     kappa^2
    gap         Delta = F(w_0) - F(w*)
    """

    smoothness: float
    variance: float
    non_iid: float
    gap: float

    def __post_init__(self) -> None:
        require("smoothness", self.smoothness, above=0.0)
        require("variance", self.variance, least=0.0)
        require("non_iid", self.non_iid, least=0.0)
        require("gap", self.gap, least=0.0)


@dataclass(frozen=True)
class Lemma2:
    """What Lemma 2 needs of the schedule alone, before a learning rate is chosen.

    V1_numerator is t z^2/(1-z^2) + (t-1)/2; V1 and V2 follow once eta L is known.
    """

    tau1: int
    tau2: int
    contraction: float
    version: Version
    Lambda: float
    V1_numerator: float
    V3: float

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
    def max_eta_L(self) -> float:  # noqa: N802 - the paper's L
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


@dataclass(frozen=True)
class Theorem1:
    """Every quantity of Theorem 1 for one setting, and whether the theorem may be used there.

    V1, V2, the terms that contain them and the bound are infinite where 1 - 16 eta^2 L^2 V3 <= 0.
    Where only the other condition fails they have a value, which no proof supports.
    """

    schedule: Lemma2
    constants: Constants
    lr: float
    iterations: int
    V1: float
    V2: float
    terms: dict[str, float]
    denominator: float
    slack: float
    max_lr: float

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
        """One sentence: does the theorem apply, and if not, what would make it."""
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


def lemma2(tau1: int, tau2: int, contraction: float, version: Version = "literal") -> Lemma2:
    """Lambda, V3 and the numerator of V1; `contraction` is zeta^alpha, or any averager's own."""
    for name, value in (("tau1", tau1), ("tau2", tau2)):
        if isinstance(value, bool) or value != int(value) or value < 1:
            raise InputError(name, value, "a whole number of iterations, at least 1")
    if not (math.isfinite(contraction) and 0 <= contraction < 1):
        raise InputError(
            "contraction",
            contraction,
            "zeta^alpha must be in [0, 1): at 1 and above the servers never agree "
            "(is the graph connected?)",
        )
    if version not in get_args(Version):
        raise InputError("version", version, closest(version, get_args(Version)))
    z, t = contraction, tau1 * tau2
    squares = z**2 / (1 - z**2)
    Lambda = squares + 2 * z / (1 - z) + (z / (1 - z)) ** 2
    if version == "literal":
        inside = t * (t - 1) / 2
    else:
        inside = tau1**2 * tau2 * (tau2 - 1) / 2 + tau1 * (tau1 - 1) / 2
    V3 = t**2 * Lambda + inside * (2 - z) / (1 - z)
    return Lemma2(int(tau1), int(tau2), z, version, Lambda, t * squares + (t - 1) / 2, V3)


def theorem1(
    schedule: Lemma2, constants: Constants, lr: float, iterations: int, noise_share: float
) -> Theorem1:
    """Theorem 1 for a schedule; `noise_share` is sum_i m_i^2 (1/C for equal clients)."""
    require("lr", lr, above=0.0)
    require("iterations", iterations, least=1)
    require("noise_share", noise_share, least=0.0)
    L, variance = constants.smoothness, constants.variance
    eta_L = lr * L
    denominator = schedule.denominator(eta_L)
    V1 = schedule.V1_numerator / denominator if denominator > 0 else math.inf
    V2 = schedule.V3 / denominator if denominator > 0 else math.inf
    terms = {
        "start": 2 * constants.gap / (lr * iterations),
        "noise": eta_L * variance * noise_share,
        "noise_deviation": _product(2 * eta_L**2 * variance, V1),
        "non_iid_deviation": _product(8 * eta_L**2 * constants.non_iid, V2),
    }
    return Theorem1(
        schedule=schedule,
        constants=constants,
        lr=lr,
        iterations=int(iterations),
        V1=V1,
        V2=V2,
        terms=terms,
        denominator=denominator,
        slack=schedule.slack(eta_L),
        max_lr=schedule.max_eta_L / L,
    )


def require(
    name: str, value: float, *, least: float | None = None, above: float | None = None
) -> None:
    """A finite number that is at least `least`, or above `above`; else an error that says so."""
    good = isinstance(value, int | float) and math.isfinite(value)
    if good and least is not None:
        good = value >= least
    if good and above is not None:
        good = value > above
    if not good:
        limit = f"at least {least:g}" if least is not None else f"above {above:g}"
        raise InputError(name, value, f"a finite number {limit}")


def _product(factor: float, possibly_infinite: float) -> float:
    """0 x inf = 0: without noise the noise term is 0 whatever V1 is."""
    return factor * possibly_infinite if factor else 0.0
