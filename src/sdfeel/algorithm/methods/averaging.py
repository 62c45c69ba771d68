"""Averaging rules inside a cluster: the paper's weighted mean, and four robust to a poisoner.

With w_i the models of those who take part, brought to one number of steps, m-hat_i their shares and
h the model they started from:

    mean     sum_i m-hat_i w_i                                              eq. (3)
    clip     h + sum_i m-hat_i min(1, limit / ||w_i - h||) (w_i - h)        norm clipping
    trimmed  per coordinate, without the `trim` share of models at either end, shares renormalised
    median   per coordinate, the weighted median
    history-clip    as clip, with limit = factor r e

A mean can be moved anywhere by one client. Clipping bounds how far one client moves it; trimming
and the median ignore what lies outside, as long as the honest hold the majority.

e is the sum of the rates eta_k over the period, so a rate that is not constant changes nothing. r
of `history-clip` is the server's own: the median over its last `PERIODS` periods of

    min(median_i ||w_i - h|| / e, r of that period)

Without a history r is the period's own median. What enters the history was limited by it, so
liars cannot raise r over time, and what enters too small stays: so a period with fewer than
`PROTECTED` clients, where one alone decides the median, adds nothing. Neither does one in which
most clients do not move.

A rule needs all models of some coordinates at a time and, for clipping, one norm per model before;
so an edge server can apply it to models that do not fit in memory together (`Rule.on_block`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.methods.method import Floats, Method, Period, Row, Rows
from sdfeel.errors import InputError
from sdfeel.validation import Anything, BelowHalf, Positive, checked

Name = Literal["mean", "clip", "trimmed", "median", "history-clip"]
RULES: tuple[str, ...] = get_args(Name)
PERIODS = 20  # that the history of `history-clip` reaches back
PROTECTED = 3  # clients at least, of which one may lie


class AveragingRule(Method):
    """A rule in place of a cluster's mean.

    Yours is a subclass with `combine`, or a function (models, shares, held).

    >>> result = sdfeel.train(model, data, network=network, steps=4, averaging_rule="median")
    >>> result.iterations
    4
    """

    needs: ClassVar[frozenset[str]] = frozenset({"clusters", "servers"})
    breaks: ClassVar[frozenset[str]] = frozenset({"mean"})


@checked("averaging_rule")
class Rule(AveragingRule):
    """A rule of `RULES` with its parameters.

    Args:
        name: "mean", "clip", "trimmed", "median" or "history-clip".
        limit: of `clip`, the largest ||w_i - h|| that counts in full.
        trim: of `trimmed`, the share of models left out at either end; of three and four models one
            is, of fewer none can be.
        factor: of `history-clip`, the largest ||w_i - h|| that counts in full, in r e.
    """

    name: Name = "mean"
    limit: Positive = 10.0
    trim: BelowHalf = 0.2
    factor: Positive = 1.0

    @property
    def rows(self) -> Mapping[str, Row]:
        """Return the history of `history-clip`: the newest norm comes last, 0 stands for none."""
        return {"norms": Row("servers", width=PERIODS)} if self.name == "history-clip" else {}

    def combine(
        self, models: Floats, shares: Floats, held: Floats, rows: Rows, period: Period
    ) -> Floats:
        norms = np.linalg.norm(models.astype(np.float64) - held, axis=1)
        length = period.length if self.name == "history-clip" else 0.0
        limit = self.take_limit(norms, rows, length)
        return self.on_block(models, shares, held, scales(norms, limit))

    def take_limit(self, norms: Floats, rows: Rows, length: float) -> float:
        """Return the largest distance that counts in full in this period, given all distances.

        Args:
            norms: ||w_i - h|| of those who take part.
            rows: of the server; the period enters the history, if it has enough clients.
            length: e, the sum of the rates over the period.
        """
        if self.name == "clip":
            return self.limit
        if self.name != "history-clip":
            return np.inf
        history, usual = rows["norms"], float(np.median(norms))
        known = history[history > 0].astype(np.float64)
        limit = length * float(np.median(known)) if len(known) else usual
        if usual > 0 and length > 0 and len(norms) >= PROTECTED:
            history[:-1] = history[1:].copy()
            history[-1] = min(usual, limit) / length
        return self.factor * limit

    def on_block(self, models: Floats, shares: Floats, held: Floats, scales: Floats) -> Floats:
        """The average of some coordinates of the models (clients, coordinates), in float64."""
        models, shares = models.astype(np.float64), shares.astype(np.float64)
        if self.name == "mean":
            return np.asarray(shares @ models)
        if self.is_clip:
            return np.asarray(held + (shares * scales) @ (models - held))
        order = np.argsort(models, axis=0, kind="stable")
        ranked, ranked_shares = np.take_along_axis(models, order, axis=0), shares[order]
        if self.name == "trimmed":
            cut = self._cut(len(models))
            middle = slice(cut, len(models) - cut)
            total = ranked_shares[middle].sum(0)
            return np.asarray((ranked[middle] * ranked_shares[middle]).sum(0) / total)
        return _weighted_median(ranked, ranked_shares)

    @property
    def is_clip(self) -> bool:
        """Whether the rule scales models, by their distance from the start."""
        return self.name in ("clip", "history-clip")

    def _cut(self, count: int) -> int:
        """Return how many of `count` models are left out at either end: at least one."""
        return min(max(int(self.trim * count), 1 if self.trim else 0), (count - 1) // 2)


@checked("averaging_rule")
class GivenRule(AveragingRule):
    """A function of the user's: (models, shares, held) -> model, arrays of numpy."""

    function: Anything

    def combine(
        self, models: Floats, shares: Floats, held: Floats, rows: Rows, period: Period
    ) -> Floats:
        function: Callable[..., Any] = self.function
        mean = np.asarray(function(models, shares, held))
        if mean.shape != held.shape:
            remedy = f"must give back an array of {len(held)} values"
            raise InputError("averaging_rule", list(mean.shape), remedy)
        return mean


def scales(norms: Floats, limit: float) -> NDArray[np.float64]:
    """Return how much of each model's distance from the start counts, given that distance."""
    norms = np.asarray(norms, dtype=np.float64)
    return np.divide(limit, norms, out=np.ones_like(norms), where=norms > limit)


def _weighted_median(ranked: Floats, shares: Floats) -> Floats:
    """The first value with half of the share at or below it; the middle of two if exactly half."""
    below = np.cumsum(shares, axis=0)
    half = below[-1] / 2
    slack = 1e-12 * below[-1]
    low = (below >= half - slack).argmax(axis=0)
    high = (below > half + slack).argmax(axis=0)
    columns = np.arange(ranked.shape[1])
    return np.asarray((ranked[low, columns] + ranked[high, columns]) / 2)
