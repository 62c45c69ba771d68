"""The losses that compiled code computes, and what of torch means each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .errors import Unsupported

IGNORED = -100  # the label that torch's cross-entropy leaves out where nobody says another


@dataclass(frozen=True)
class LossForm:
    """A loss in numbers, the mean over a batch.

    kind       "cross-entropy", "mse", "bce" (with logits), "smooth-l1", "huber" or "l1"
    smoothing  of labels
    ignore     the label that is left out; None: every label counts
    weights    of classes, or of the positive targets of each output; none: 1
    scales     of each output of "bce"; none: 1
    beta       where "smooth-l1" and "huber" turn into a straight line
    """

    kind: str
    smoothing: float = 0.0
    ignore: int | None = None
    weights: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    beta: float = 1.0

    @property
    def has_labels(self) -> bool:
        """Return whether targets are class numbers."""
        return self.kind == "cross-entropy"

    @property
    def is_weighted(self) -> bool:
        """Return whether the mean is one by weights, or of some samples only."""
        return self.has_labels and bool(self.weights or self.ignore is not None)

    def check(self, outputs: int) -> None:
        """Raise Unsupported unless it suits a network of so many outputs."""
        for name in ("weights", "scales"):
            if len(getattr(self, name)) not in (0, outputs):
                raise Unsupported(f"a loss with {len(getattr(self, name))} {name}, {outputs} used")

    def whole(self, targets: Tensor) -> float:
        """Return what the sum of all losses is divided by: the samples, or their weights."""
        if not self.is_weighted:
            return float(len(targets))
        labels = targets.reshape(-1)
        if self.ignore is not None:
            labels = labels[labels != self.ignore]
        if not self.weights:
            return float(len(labels))
        return float(torch.tensor(self.weights, dtype=torch.float64)[labels].sum())

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss as torch computes it: what the compiled one is compared with."""

        def tensor(values: tuple[float, ...]) -> Tensor | None:
            return torch.tensor(values, dtype=outputs.dtype) if values else None

        if self.kind == "cross-entropy":
            ignore = IGNORED if self.ignore is None else self.ignore
            return functional.cross_entropy(
                outputs, targets, tensor(self.weights), None, ignore, None, "mean", self.smoothing
            )
        targets = targets.reshape(outputs.shape)
        if self.kind == "bce":
            return functional.binary_cross_entropy_with_logits(
                outputs, targets, tensor(self.scales), pos_weight=tensor(self.weights)
            )
        if self.kind == "smooth-l1":
            return functional.smooth_l1_loss(outputs, targets, beta=self.beta)
        if self.kind == "huber":
            return functional.huber_loss(outputs, targets, delta=self.beta)
        return (functional.l1_loss if self.kind == "l1" else functional.mse_loss)(outputs, targets)


def _numbers(value: Any) -> tuple[float, ...]:
    """Return weights as plain numbers; of a vector only, since others are broadcast."""
    if value is None:
        return ()
    if not isinstance(value, Tensor) or value.ndim > 1:
        raise Unsupported("weights of a loss that are no vector")
    return tuple(value.detach().double().reshape(-1).tolist())


def _cross_entropy(
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = IGNORED,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> LossForm:
    _check_mean(size_average, reduce, reduction)
    ignore = None if ignore_index == IGNORED else ignore_index
    return LossForm("cross-entropy", float(label_smoothing), ignore, _numbers(weight))


def _bce(
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: Any = None,
) -> LossForm:
    _check_mean(size_average, reduce, reduction)
    return LossForm("bce", weights=_numbers(pos_weight), scales=_numbers(weight))


def _smooth_l1(
    size_average: Any = None, reduce: Any = None, reduction: str = "mean", beta: float = 1.0
) -> LossForm:
    _check_mean(size_average, reduce, reduction)
    return LossForm("smooth-l1" if beta > 0 else "l1", beta=float(beta) if beta > 0 else 1.0)


def _huber(reduction: str = "mean", delta: float = 1.0, weight: Any = None) -> LossForm:
    _check_mean(None, weight, reduction)
    return LossForm("huber", beta=float(delta))


def _plain(kind: str) -> Callable[..., LossForm]:
    def make(
        size_average: Any = None, reduce: Any = None, reduction: str = "mean", weight: Any = None
    ) -> LossForm:
        _check_mean(size_average, reduce if weight is None else weight, reduction)
        return LossForm(kind)

    return make


def _check_mean(size_average: Any, reduce: Any, reduction: str) -> None:
    if size_average is not None or reduce is not None or reduction != "mean":
        raise Unsupported(f"a loss with reduction {reduction!r} or options out of use")


# What a name, a function or a module of torch means. A function takes its arguments by name, as
# `functools.partial` gives them; a module has attributes of the same names.
_MEANINGS: tuple[tuple[Callable[..., LossForm], *tuple[Any, ...]], ...] = (
    (_cross_entropy, "cross-entropy", functional.cross_entropy, nn.CrossEntropyLoss),
    (_plain("mse"), "mse", functional.mse_loss, nn.MSELoss),
    (_bce, functional.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss),
    (_smooth_l1, functional.smooth_l1_loss, nn.SmoothL1Loss),
    (_huber, functional.huber_loss, nn.HuberLoss),
    (_plain("l1"), functional.l1_loss, nn.L1Loss),
)
_MAKERS = {key: make for make, *keys in _MEANINGS for key in keys}
_ATTRIBUTES = ("weight", "ignore_index", "reduction", "label_smoothing", "pos_weight", "beta")


def loss_form(loss: object) -> LossForm:
    """Return a loss in numbers: a name, a function or module of torch, or a partial of a function.

    Raises Unsupported for others: they are computed by torch (`outer`).
    """
    if isinstance(loss, LossForm):
        return loss
    given: dict[str, Any] = {}
    if isinstance(loss, partial) and not loss.args:
        given, loss = loss.keywords, loss.func
    elif isinstance(loss, nn.Module):
        names = (*_ATTRIBUTES, "delta")
        given = {name: getattr(loss, name) for name in names if hasattr(loss, name)}
        loss = type(loss)
    make = _MAKERS.get(loss) if isinstance(loss, str) or callable(loss) else None
    if make is None:
        raise Unsupported(f"loss {getattr(loss, '__name__', loss)!r} is not supported")
    try:
        return make(**given)
    except TypeError as error:
        raise Unsupported(f"loss {getattr(loss, '__name__', loss)!r}: {error}") from None
