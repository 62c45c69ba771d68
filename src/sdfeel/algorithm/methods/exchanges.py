"""Exchanges for servers whose neighbours may lie: each looks at the models of its neighbours.

With c_jd the flow of Metropolis' weights, x_j what server j tells, and
clip(v, r) = v min(1, r / ||v||):

    clipped   w_d <- w_d + sum_j c_jd / m_d clip(x_j - w_d, r_jd)
    trimmed   per value, the mean of the server's own model and of those told that are left once the
              largest and the smallest `lies` of all are dropped

r_d is `factor` times the median, over the last `PERIODS` periods, of how far the server's own
clients moved it. With ends = "both" r_jd = min(r_j, r_d): both ends of a link apply the same change
with opposite sign, and the weighted mean stays to the last digits, also where something is clipped.
With ends = "own" r_jd = r_d. A liar may say that its r is what it likes.

Without rounds a server that is ready swaps with its neighbours: a clipped exchange over those links
alone, with the pace's c_jd. Trimming needs rounds: in a swap a neighbour hears one model, and of
two nothing can be dropped.

Clipping bounds what a liar does in a period; trimming ignores what lies outside, and moves the mean
even where nobody lies. See He, Karimireddy and Jaggi (2022); Gaucher, Dieuleveut, Hendrikx (2025).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.methods.method import Floats, Method, Period, Row, Rows, Told
from sdfeel.network import AVERAGERS, Averager
from sdfeel.validation import Count, Positive, checked

PERIODS = 20  # that the history of `clipped` reaches back


class Exchange(Method):
    """A rule in place of eq. (5), on Metropolis' weights: an averager that is a method.

    >>> class Deaf(sdfeel.Exchange):
    ...     def exchange(self, models, told, rows, averager, number):
    ...         return models
    >>> sdfeel.train(model, data, network=network, steps=4, averager=Deaf()).iterations
    4
    """

    needs: ClassVar[frozenset[str]] = frozenset({"rounds", "models"})

    def __call__(self, graph: nx.Graph, shares: NDArray[np.float64], alpha: int) -> Averager:
        """Return the averager on a network: what it is where nobody lies and nothing is clipped."""
        averager: Averager = AVERAGERS["metropolis"](graph, shares, alpha)
        return replace(averager, name=self.name, rule=self)


@checked("averager")
class Clipped(Exchange):
    """Take of a neighbour's model no more than clients usually move a server.

    Args:
        factor: of the usual movement, that a neighbour may move a server in an exchange.
        ends: "both", the smaller bound of a link's two ends, or "own".

    >>> averager = sdfeel.Clipped(factor=2.0)
    >>> sdfeel.train(model, data, network=network, steps=4, averager=averager).iterations
    4
    """

    needs: ClassVar[frozenset[str]] = frozenset({"models"})

    factor: Positive = 2.0
    ends: Literal["both", "own"] = "both"

    @property
    def rows(self) -> Mapping[str, Row]:
        """How far clients moved each server: the newest comes last, 0 stands for none."""
        return {"moves": Row("servers", width=PERIODS)}

    def take(self, before: Floats, after: Floats, rows: Rows, period: Period) -> Floats:
        self.remember(rows["moves"], float(np.linalg.norm(np.subtract(after, before, dtype=float))))
        return after

    def remember(self, moves: Floats, move: float) -> None:
        """Clients have moved a server so far."""
        moves[:-1] = moves[1:].copy()
        moves[-1] = move

    def exchange(
        self, models: Floats, told: Told, rows: Rows, averager: Averager, number: int
    ) -> Floats:
        weights, after = averager.exchange(number), models.copy()
        bounds = [self.bound(moves) for moves in rows["moves"]]
        for d, j in zip(*np.nonzero(weights.T), strict=True):
            if d == j:
                continue
            heard, is_liar = told(int(j), int(d))
            change = heard - models[d]
            bound = bounds[d] if self.ends == "own" or is_liar else min(bounds[j], bounds[d])
            after[d] += weights[j, d] * self.part(float(np.linalg.norm(change)), bound) * change
        return after

    @staticmethod
    def part(norm: float, bound: float) -> float:
        """How much of a change of this norm is taken."""
        return min(1.0, bound / norm) if norm > 0 else 1.0

    def bound(self, moves: Floats) -> float:
        """The largest change; without a history there is none yet, and nothing is taken."""
        known = moves[moves > 0]
        return self.factor * float(np.median(known)) if len(known) else 0.0


@checked("averager")
class Trimmed(Exchange):
    """Drop the largest and the smallest of each value before taking the mean.

    Args:
        lies: how many are dropped at either end: neighbours that may lie.

    >>> averager = sdfeel.Trimmed(lies=1)
    >>> sdfeel.train(model, data, network=network, steps=4, averager=averager).iterations
    4
    """

    lies: Count = 1

    def exchange(
        self, models: Floats, told: Told, rows: Rows, averager: Averager, number: int
    ) -> Floats:
        weights, after = averager.exchange(number), models.copy()
        for d in range(len(models)):
            near = [j for j in np.flatnonzero(weights[:, d]).tolist() if j != d]
            after[d] = self.middle(np.stack([models[d], *(told(j, d)[0] for j in near)]))
        return after

    def middle(self, models: Floats) -> Floats:
        """The mean of a server's own model and those told, without the outermost of each value."""
        known = np.sort(models, axis=0)
        dropped = min(self.lies, (len(known) - 1) // 2)
        return np.asarray(known[dropped : len(known) - dropped].mean(axis=0))


EXCHANGES: dict[str, type[Exchange]] = {"clipped": Clipped, "trimmed": Trimmed}
