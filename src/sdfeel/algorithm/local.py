"""Local rules: what a client does with a gradient between two aggregations.

With g the gradient of the mean batch loss at w, w_d(0) the server's model at the start of the
upload period and s a shift that is constant within it (a correction), every rule takes

    g  <- g min(1, c / (||g|| + 1e-6))               c: clip, as `torch.nn.utils.clip_grad_norm_`
    g' = g + lambda w + mu (w - w_d(0)) + s          lambda: weight decay, mu: FedProx

and then, with the rate eta_k,

    sgd        w <- w - eta_k g'                                                       eq. (2)
    momentum   v <- beta v + g';  w <- w - eta_k v   (nesterov: w - eta_k (g' + beta v))
    adam       m <- beta1 m + (1 - beta1) g';  q <- beta2 q + (1 - beta2) g'^2;
               w <- w - eta_k (m / (1 - beta1^t)) / (sqrt(q / (1 - beta2^t)) + eps)
    adamw      w <- w - eta_k lambda w, without lambda in g'; then as adam

as `torch.optim` does it; t counts the steps since m and q began. A rule of one's own is a subclass
with `keeps` and `step`; see examples/own_rule.py.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, final

from sdfeel.algorithm.tables import by_name
from sdfeel.errors import InputError, closest

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "LOCAL_RULES",
    "SGD",
    "Adam",
    "AdamW",
    "Affine",
    "LocalRule",
    "Momentum",
    "Rows",
    "local_rule",
]

# A whole number may be larger than any float.
LARGEST = sys.float_info.max
# What clip_grad_norm_ adds to a norm before it divides by it.
CLIP_EPSILON = 1e-6

# Named rows: a matrix with one row for each client or server, or some of its rows.
Rows = dict[str, "Tensor"]
Memory = Literal["reset", "keep"]


@dataclass(frozen=True)
class Affine:
    """A rule that is affine in the gradient, in the numbers that compiled code needs.

    With `momentum` the rule keeps one row, v of the formulas above.
    """

    momentum: float = 0.0
    nesterov: bool = False


@dataclass(frozen=True, kw_only=True)
class LocalRule(ABC):
    """What a client does with a gradient.

    weight_decay  lambda
    prox          mu: pulls towards the model that the period began with (FedProx)
    clip          c: the largest norm of a client's whole gradient; None for any
    memory        what a client remembers is new in every upload period, or only in the run
    """

    weight_decay: float = 0.0
    prox: float = 0.0
    clip: float | None = None

    keeps: ClassVar[tuple[str, ...]] = ()  # names of the rows that a client remembers
    decoupled: ClassVar[bool] = False  # `step` sees to weight decay, and g' is without it
    memory: Memory = "reset"  # rows begin at zero in every upload period, or in the run

    def __post_init__(self) -> None:
        for name in ("weight_decay", "prox"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= LARGEST:
                raise InputError(f"local.{name}", value, "a finite number, not below 0")
        if self.clip is not None:
            real = isinstance(self.clip, int | float) and not isinstance(self.clip, bool)
            if not real or not 0 < self.clip <= LARGEST:
                raise InputError("local.clip", self.clip, "the largest norm of a gradient, above 0")
        if self.memory not in ("reset", "keep"):
            raise InputError(
                "local.memory", self.memory, closest(str(self.memory), ("reset", "keep"))
            )

    @abstractmethod
    def step(self, w: Tensor, g: Tensor, kept: Rows, eta: float) -> None:
        """Change `w` (..., M), and the rows of `kept`, in place, given g' and eta_k.

        Called with one client's vectors, or with many clients' as rows: what it does must be
        element by element.
        """

    @property
    def affine(self) -> Affine | None:
        """The rule for the fast engine, if it is affine; it must do the same as `step`."""
        return None

    @final
    @property
    def remembers(self) -> bool:
        """Whether anything is kept for each client between two upload periods."""
        return bool(self.keeps) and self.memory == "keep"

    @final
    def reach(self, etas: Sequence[float]) -> float:
        """By how much a constant g' of 1 moves w, with these rates and what is remembered new.

        For SGD the sum of the rates. Of affine rules only.
        """
        affine = self.affine
        if affine is None:
            raise InputError("local", self, "is not affine: its reach depends on the gradients")
        velocity = total = 0.0
        for eta in etas:
            velocity = affine.momentum * velocity + 1
            total += eta * (1 + affine.momentum * velocity if affine.nesterov else velocity)
        return total

    @final
    def clipped(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """The pieces of one gradient, (..., n) each, scaled down to the norm `clip` in all."""
        if self.clip is None:
            return gradients
        squares = sum(g.square().sum(dim=-1, keepdim=True) for g in gradients)
        assert not isinstance(squares, int)  # noqa: S101 - a gradient has a piece
        scale = (self.clip / (squares.sqrt() + CLIP_EPSILON)).clamp(max=1.0)
        return [g * scale for g in gradients]

    @final
    def update(
        self,
        w: Tensor,
        g: Tensor,
        kept: Rows,
        eta: float,
        anchor: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> None:
        """From g, which is `clipped`, to g', then `step`. anchor: w_d(0), which `prox` needs."""
        if self.weight_decay and not self.decoupled:
            g = g.add(w, alpha=self.weight_decay)
        if self.prox and anchor is not None:
            g = g.add(w - anchor, alpha=self.prox)
        if shift is not None:
            g = g + shift
        done: object = self.step(w, g, kept, eta)
        if done is not None:
            raise InputError("local", self, "its step must change w in place and return nothing")


@dataclass(frozen=True)
class SGD(LocalRule):
    """w <- w - eta_k g', the paper's rule."""

    def step(self, w: Tensor, g: Tensor, kept: Rows, eta: float) -> None:  # noqa: ARG002
        w.sub_(g, alpha=eta)

    @property
    def affine(self) -> Affine:
        return Affine()


@dataclass(frozen=True)
class Momentum(LocalRule):
    """v <- beta v + g';  w <- w - eta_k v, or with `nesterov` w - eta_k (g' + beta v)."""

    momentum: float = 0.9
    nesterov: bool = False

    keeps: ClassVar[tuple[str, ...]] = ("velocity",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.momentum, int | float) or not 0 <= self.momentum < 1:
            raise InputError("local.momentum", self.momentum, "beta, from 0 to below 1")
        if not isinstance(self.nesterov, bool):  # "no" would be true
            raise InputError("local.nesterov", self.nesterov, "true or false")

    def step(self, w: Tensor, g: Tensor, kept: Rows, eta: float) -> None:
        velocity = kept["velocity"].mul_(self.momentum).add_(g)
        w.sub_(g.add(velocity, alpha=self.momentum) if self.nesterov else velocity, alpha=eta)

    @property
    def affine(self) -> Affine:
        return Affine(self.momentum, self.nesterov)


@dataclass(frozen=True)
class Adam(LocalRule):
    """`torch.optim.Adam`: steps of about eta_k in every coordinate. Not affine in the gradient."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    # The row of t holds one number for a client; a row, because vectors may come in pieces.
    keeps: ClassVar[tuple[str, ...]] = ("first_moment", "second_moment", "moment_steps")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < 1:
                raise InputError(f"local.{name}", value, "from 0 to below 1")
        real = isinstance(self.eps, int | float)
        if not real or not 0 <= self.eps <= LARGEST:
            raise InputError("local.eps", self.eps, "a finite number, not below 0")

    def step(self, w: Tensor, g: Tensor, kept: Rows, eta: float) -> None:
        first, second = kept["first_moment"], kept["second_moment"]
        t = kept["moment_steps"].add_(1)[..., :1].double()
        first.lerp_(g, 1 - self.beta1)
        second.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
        size = eta / (1 - self.beta1**t)
        root = (1 - self.beta2**t).sqrt()
        below = second.sqrt().div_(root.to(w.dtype)).add_(self.eps)
        w.sub_((first / below).mul_(size.to(w.dtype)))


@dataclass(frozen=True)
class AdamW(Adam):
    """`torch.optim.AdamW`: weight decay acts on w itself, not through the gradient."""

    weight_decay: float = field(default=0.01, kw_only=True)

    decoupled: ClassVar[bool] = True

    def step(self, w: Tensor, g: Tensor, kept: Rows, eta: float) -> None:
        w.mul_(1 - eta * self.weight_decay)
        super().step(w, g, kept, eta)


LOCAL_RULES: dict[str, type[LocalRule]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "adam": Adam,
    "adamw": AdamW,
}


def local_rule(rule: str | LocalRule) -> LocalRule:
    """A rule by its name in `LOCAL_RULES`, with its defaults; or the user's own."""
    return by_name("local", rule, LOCAL_RULES, LocalRule)
