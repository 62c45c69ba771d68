"""Optimizers: what a client does with a gradient between two aggregations.

With g the gradient of the mean batch loss at w, w_d(0) the server's model at the start of the
upload period and s what corrections add, every optimizer takes

    g  <- g min(1, c / (||g|| + 1e-6))               c: clip, as `torch.nn.utils.clip_grad_norm_`
    g' = g + lambda w + mu (w - w_d(0)) + s          lambda: weight decay, mu: FedProx

and then, with the rate eta_k,

    sgd        w <- w - eta_k g'                                                       eq. (2)
    momentum   v <- beta v + g';  w <- w - eta_k v   (nesterov: w - eta_k (g' + beta v))
    adam       m <- beta1 m + (1 - beta1) g';  q <- beta2 q + (1 - beta2) g'^2;
               w <- w - eta_k (m / (1 - beta1^t)) / (sqrt(q / (1 - beta2^t)) + eps)
    adamw      w <- w - eta_k lambda w, without lambda in g'; then as adam

as `torch.optim` does it; t counts the steps since m and q began. An optimizer of your own is a
subclass with `rows` and `gradient`; see examples/own_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

from sdfeel.algorithm.methods.method import Affine, InNumbers, Method, Row, Rows, Step
from sdfeel.validation import BelowOne, Flag, NotNegative, Positive, checked

if TYPE_CHECKING:
    from torch import Tensor

# What clip_grad_norm_ adds to a norm before it divides by it.
CLIP_EPSILON = 1e-6


@checked("optimizer", kw_only=True)
class Optimizer(Method):
    """What a client does with a gradient.

    Args:
        weight_decay: lambda.
        prox: mu, which pulls towards the model that the period began with (FedProx).
        clip: c, the largest norm of a client's whole gradient; None for any.
        memory: "reset": what a client remembers is new in every upload period; "keep": in the run.

    >>> isinstance(sdfeel.SGD(prox=0.1), sdfeel.Optimizer)
    True
    """

    weight_decay: NotNegative = 0.0
    prox: NotNegative = 0.0
    clip: Positive | None = None
    memory: Literal["reset", "keep"] = "reset"

    keeps: ClassVar[Mapping[str, Row]] = {}  # rows of clients by name, whatever `memory` says
    is_decoupled: ClassVar[bool] = False  # `gradient` sees to weight decay, and g' is without it

    @property
    def rows(self) -> Mapping[str, Row]:
        is_new = self.memory == "reset"
        return {name: replace(row, new_each_period=is_new) for name, row in self.keeps.items()}

    @property
    def breaks(self) -> frozenset[str]:
        words = {"affine"} if self.affine is None else set()
        return frozenset(words | ({"fresh"} if self.keeps and self.memory == "keep" else set()))

    @property
    def affine(self) -> Affine | None:
        if self.clip is not None or self.has("gradient"):
            return None
        return Affine(decay=self.weight_decay, prox=self.prox)

    @property
    def in_numbers(self) -> InNumbers | None:
        """Return what compiled code needs to know of it; None for an optimizer of the user's own.

        More than `affine`: clipping and Adam are no affine functions of the gradient.
        """
        return None

    def _numbers(self, **more: Any) -> InNumbers | None:
        """Return decay, prox and clip with `more`, unless it is a subclass."""
        if type(self) not in OPTIMIZERS.values():
            return None
        decay = 0.0 if self.is_decoupled else self.weight_decay
        return InNumbers(Affine(decay, self.prox), self.clip, **more)

    @final
    def conditioned(self, g: Tensor, w: Tensor, step: Step) -> Tensor:
        """Clip g, and add weight decay and FedProx: what comes before corrections."""
        if self.clip is not None:
            norms = g.square().sum(dim=-1, keepdim=True).sqrt()
            g = g * (self.clip / (norms + CLIP_EPSILON)).clamp(max=1.0)
        if self.weight_decay and not self.is_decoupled:
            g = g.add(w, alpha=self.weight_decay)
        if self.prox:
            g = g.add(w - step.anchor, alpha=self.prox)
        return g


@checked("optimizer")
class SGD(Optimizer):
    """w <- w - eta_k g', the paper's optimizer.

    >>> sdfeel.SGD(weight_decay=1e-4, prox=0.1).prox
    0.1
    """

    @property
    def in_numbers(self) -> InNumbers | None:
        return self._numbers()


@checked("optimizer")
class Momentum(Optimizer):
    """v <- beta v + g';  w <- w - eta_k v, or with `nesterov` w - eta_k (g' + beta v).

    >>> sdfeel.train(
    ...     model, data, network=network, steps=4, optimizer=sdfeel.Momentum(0.9)
    ... ).iterations
    4
    """

    momentum: BelowOne = 0.9
    nesterov: Flag = False

    keeps: ClassVar[Mapping[str, Row]] = {"velocity": Row()}

    def gradient(self, g: Tensor, w: Tensor, rows: Rows, step: Step) -> Tensor:
        velocity: Tensor = rows["velocity"].mul_(self.momentum).add_(g)
        return g.add(velocity, alpha=self.momentum) if self.nesterov else velocity

    @property
    def affine(self) -> Affine | None:
        if self.clip is not None:
            return None
        return self._affine

    @property
    def _affine(self) -> Affine:
        is_nesterov = self.nesterov and self.momentum > 0
        return Affine(self.weight_decay, self.prox, None, self.momentum, is_nesterov)

    @property
    def in_numbers(self) -> InNumbers | None:
        numbers = self._numbers()
        return None if numbers is None else replace(numbers, affine=self._affine)


@checked("optimizer")
class Adam(Optimizer):
    """`torch.optim.Adam`: steps of about eta_k in every coordinate. Not affine in the gradient.

    >>> sdfeel.Adam(beta1=0.8, clip=1.0).clip
    1.0
    """

    beta1: BelowOne = 0.9
    beta2: BelowOne = 0.999
    eps: NotNegative = 1e-8

    keeps: ClassVar[Mapping[str, Row]] = {"first": Row(), "second": Row(), "steps": Row(width=1)}

    def gradient(self, g: Tensor, w: Tensor, rows: Rows, step: Step) -> Tensor:
        first, second = rows["first"], rows["second"]
        t = rows["steps"].add_(1).double()
        first.lerp_(g, 1 - self.beta1)
        second.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
        root = (1 - self.beta2**t).sqrt().to(w.dtype)
        size = (1 - self.beta1**t).to(w.dtype)
        moved: Tensor = (first / size).div_(second.sqrt().div_(root).add_(self.eps))
        return moved

    @property
    def in_numbers(self) -> InNumbers | None:
        decoupled = self.weight_decay if self.is_decoupled else 0.0
        betas = (self.beta1, self.beta2)
        return self._numbers(betas=betas, eps=self.eps, decoupled=decoupled)


@checked("optimizer")
class AdamW(Adam):
    """`torch.optim.AdamW`: weight decay acts on w itself, not through the gradient.

    >>> sdfeel.AdamW().weight_decay
    0.01
    """

    weight_decay: NotNegative = field(default=0.01, kw_only=True)

    is_decoupled: ClassVar[bool] = True

    def gradient(self, g: Tensor, w: Tensor, rows: Rows, step: Step) -> Tensor:
        return super().gradient(g, w, rows, step).add_(w, alpha=self.weight_decay)


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "adam": Adam,
    "adamw": AdamW,
}


def reach(affine: Affine, etas: Sequence[float]) -> float:
    """Return how far a constant gradient of 1 moves w, with these rates and nothing remembered.

    For SGD the sum of the rates.
    """
    velocity = total = 0.0
    for eta in etas:
        velocity = affine.momentum * velocity + 1
        total += eta * (1 + affine.momentum * velocity if affine.nesterov else velocity)
    return total
