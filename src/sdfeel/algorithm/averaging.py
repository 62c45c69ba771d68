"""Averaging rules inside a cluster: the paper's weighted mean, and three that bear a poisoner.

With w_i the models of those who take part, m-hat_i their weights and c the model they started from:

    mean     sum_i m-hat_i w_i                                              eq. (3)
    clip     c + sum_i m-hat_i min(1, limit / ||w_i - c||) (w_i - c)        norm clipping
    trimmed  per coordinate, without the `trim` share of models at either end, weights renormalised
    median   per coordinate, the weighted median

A mean can be moved anywhere by one client. Clipping bounds how far one client moves it; trimming
and the median ignore what lies outside, as long as the honest hold the majority.

A rule needs all models of some coordinates at a time and, for clipping, one norm per model before;
so it can go over models that do not fit in memory together (`Rule.combine` on blocks). `average`
takes them at once, and a `Rule` itself is what `sdfeel.train(averaging_rule=...)` asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sdfeel.errors import InputError, closest

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RULES", "AveragingRule", "Rule", "average"]

Array = NDArray[np.floating]
RULES = ("mean", "clip", "trimmed", "median")

# From the models of a cluster's present clients (n x M), their weights (n, sum 1) and the server's
# own model before (M): its model after. None stands for the weighted mean of eq. (3).
AveragingRule = Callable[..., Any]


@dataclass(frozen=True)
class Rule:
    """One of `RULES` with its parameters.

    limit  of `clip`: the largest ||w_i - c|| that counts in full
    trim   of `trimmed`: the share of models left out at either end, below one half; of three and
           four models one is, of fewer none can be
    """

    name: Literal["mean", "clip", "trimmed", "median"] = "mean"
    limit: float = 10.0
    trim: float = 0.2

    def __post_init__(self) -> None:
        if self.name not in RULES:
            raise InputError("averaging rule", self.name, closest(self.name, RULES))
        if not self.limit > 0:
            raise InputError("limit", self.limit, "the norm to clip at, above 0")
        if not 0 <= self.trim < 0.5:
            raise InputError("trim", self.trim, "a share of the models at either end, below 0.5")

    def __call__(self, models: Tensor, weights: Tensor, before: Tensor) -> Tensor:
        """What an engine calls on the models (n x M) of a cluster's present clients."""
        import torch

        w, m, c = (tensor.detach().cpu().numpy() for tensor in (models, weights, before))
        return torch.from_numpy(np.asarray(average(w, m, c, self))).to(before)

    def scales(self, norms: Array) -> NDArray[np.float64]:
        """How much of each model's distance from the start counts, given that distance."""
        norms = np.asarray(norms, dtype=np.float64)
        if self.name != "clip":
            return np.ones_like(norms)
        return np.minimum(1.0, self.limit / np.maximum(norms, np.finfo(float).tiny))

    def _cut(self, count: int) -> int:
        """How many of `count` models are left out at either end: one at least, if one is left."""
        return min(max(int(self.trim * count), 1 if self.trim else 0), (count - 1) // 2)

    def combine(self, models: Array, weights: Array, centre: Array, scales: Array) -> Array:
        """The average of `models` (n x coordinates), in double precision."""
        models = models.astype(np.float64)
        weights = weights.astype(np.float64)
        if self.name == "mean":
            return np.asarray(weights @ models)
        if self.name == "clip":
            return np.asarray(centre + (weights * scales) @ (models - centre))
        order = np.argsort(models, axis=0, kind="stable")
        ranked = np.take_along_axis(models, order, axis=0)
        shares = weights[order]
        if self.name == "trimmed":
            cut = self._cut(len(models))
            kept = slice(cut, len(models) - cut)
            return np.asarray((ranked[kept] * shares[kept]).sum(0) / shares[kept].sum(0))
        return _weighted_median(ranked, shares)


def average(models: Array, weights: Array, centre: Array, rule: Rule) -> Array:
    """The whole models (n x M) at once; weights sum to 1."""
    norms = np.linalg.norm(np.asarray(models, dtype=np.float64) - centre, axis=1)
    return rule.combine(models, weights, centre, rule.scales(norms))


def _weighted_median(ranked: Array, shares: Array) -> Array:
    """The first value with half of the weight at or below it; the middle of two if exactly half."""
    below = np.cumsum(shares, axis=0)
    half = below[-1] / 2
    slack = 1e-12 * below[-1]
    low = (below >= half - slack).argmax(axis=0)
    high = (below > half + slack).argmax(axis=0)
    columns = np.arange(ranked.shape[1])
    return np.asarray((ranked[low, columns] + ranked[high, columns]) / 2)
