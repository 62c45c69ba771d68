"""What a client may do with a gradient in compiled code."""

from __future__ import annotations

from dataclasses import dataclass

from sdfeel.errors import InputError


@dataclass(frozen=True)
class Terms:
    """Which terms of a rule a compiled network has code for; none: plain SGD."""

    decay: bool = False
    pull: bool = False
    momentum: bool = False
    clip: bool = False
    adam: bool = False

    def covers(self, other: Terms) -> bool:
        """Return whether the code for these does the others as well."""
        return (
            self.decay >= other.decay
            and self.pull >= other.pull
            and self.momentum >= other.momentum
            and (self.clip, self.adam) == (other.clip, other.adam)
        )


@dataclass(frozen=True)
class AdamNumbers:
    """m <- beta1 m + (1 - beta1) g';  q <- beta2 q + (1 - beta2) g'^2;

    w <- w - rate ((m / (1 - beta1^t)) / (sqrt(q / (1 - beta2^t)) + eps) + decoupled w)
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decoupled: float = 0.0

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise InputError("eps", self.eps, "must be above 0 in compiled code")


@dataclass(frozen=True)
class Rule:
    """g' = g + weight_decay w + prox (w - anchor) + shift; v <- momentum v + g'; w <- w - rate v.

    With `nesterov` w <- w - rate (g' + momentum v). `shifted`: there is a constant shift of each
    client. With `clip` g is scaled down first, to that norm; `adam` takes the place of momentum.
    The default is plain SGD, eq. (2).
    """

    weight_decay: float = 0.0
    prox: float = 0.0
    momentum: float = 0.0
    nesterov: bool = False
    shifted: bool = False
    clip: float = 0.0
    adam: AdamNumbers | None = None

    def __post_init__(self) -> None:
        for name in ("weight_decay", "prox", "momentum", "clip"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise InputError(name, value, "must be 0 or a positive number")
        if self.nesterov and self.momentum == 0:
            raise InputError("nesterov", True, "needs a momentum above 0")
        if self.adam and self.momentum:
            raise InputError("momentum", self.momentum, "is no part of adam")

    @property
    def terms(self) -> Terms:
        return Terms(
            decay=self.weight_decay + self.prox > 0,
            pull=self.shifted or self.prox > 0,
            momentum=self.momentum > 0,
            clip=self.clip > 0,
            adam=self.adam is not None,
        )
