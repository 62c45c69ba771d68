"""What a client may do with a gradient in compiled code: all that is affine in it."""

from __future__ import annotations

from dataclasses import dataclass

from sdfeel.errors import InputError


@dataclass(frozen=True)
class Terms:
    """Which terms of a rule a compiled network has code for; none: plain SGD."""

    decay: bool = False
    pull: bool = False
    momentum: bool = False

    def covers(self, other: Terms) -> bool:
        return (
            self.decay >= other.decay
            and self.pull >= other.pull
            and self.momentum >= other.momentum
        )


@dataclass(frozen=True)
class AffineRule:
    """g' = g + weight_decay w + prox (w - anchor) + shift; v <- momentum v + g'; w <- w - rate v.

    With `nesterov` w <- w - rate (g' + momentum v). `shifted`: there is a constant shift of each
    client. The default is plain SGD, eq. (2).
    """

    weight_decay: float = 0.0
    prox: float = 0.0
    momentum: float = 0.0
    nesterov: bool = False
    shifted: bool = False

    def __post_init__(self) -> None:
        for name in ("weight_decay", "prox", "momentum"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise InputError(name, value, "must be 0 or a positive number")
        if self.nesterov and self.momentum == 0:
            raise InputError("nesterov", True, "needs a momentum above 0")

    @property
    def terms(self) -> Terms:
        return Terms(
            decay=self.weight_decay + self.prox > 0,
            pull=self.shifted or self.prox > 0,
            momentum=self.momentum > 0,
        )
