"""What an edge makes of its clients' models: eq. (3), without what cannot be an honest update."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.events import Group
from sdfeel.algorithm.methods.averaging import PROTECTED, AveragingRule, Rule, scales
from sdfeel.algorithm.methods.method import Period
from sdfeel.algorithm.methods.rates import rates
from sdfeel.deploy.facts import facts
from sdfeel.deploy.model.vectors import (
    Block,
    Change,
    NotFinite,
    Vector,
    as_vector,
    merge,
    norm,
)
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.waiting import offload

__all__ = ["ClusterMean", "Upload", "normalised"]

Floats = NDArray[np.float64]
Rows = Mapping[str, NDArray[np.float32]]
REMEMBERED = 64


@dataclass(frozen=True)
class Upload:
    """A client's model, and how far it is from the one it was given: ||w_i - w_d(0)||.

    steps   theta_i: without rounds as the client says, else tau1
    period  whose work it is
    begun   the model it was given
    epoch, learned  of its correction, as the client says
    """

    vector: Vector
    moved: float
    steps: int = 0
    period: int = 0
    begun: Vector | None = None
    epoch: int = 0
    learned: int = 0

    def since(self, start: Vector, folder: Path) -> Upload:
        """The same update, of a client that had begun with `start`. Raises NotFinite."""
        if self.begun is None or self.begun.sha256 == start.sha256:
            return self
        vector = Change.towards(self.begun, start, 1.0).applied(self.vector, folder)
        return replace(self, vector=vector, begun=start)


def normalised(weights: Floats, steps: NDArray[np.int64]) -> Floats:
    """What each client's change counts: m-hat_i thetabar_d / theta_i."""
    if len(weights) and (steps != steps[0]).any():
        weights = weights * (weights * steps).sum() / steps  # `@` would wake BLAS' threads
    return weights


@dataclass
class ClusterMean:
    """Of one edge.

    rule    of the table: block by block. Another one of the user's gets whole models: all of a
            period's lie in memory together
    bound   an update that is so many times as large as the others' is left out; 0: none is
    tell    takes the facts of the rule
    rows    what the rule remembers, by the names that it has in a checkpoint
    """

    topology: Topology
    edge: str
    rule: AveragingRule
    bound: float
    folder: Path
    tell: Callable[[facts.Fact], None]
    rows: dict[str, Vector]
    _usual: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def warning(self, clients: int) -> str:
        """What an operator should know of the rule at an edge with so many clients; may be ""."""
        if self.rule.name != "history-clip" or clients >= PROTECTED:
            return ""
        return (
            f"averaging.rule = {self.rule.name!r} does not protect a cluster of {clients}: "
            f"it takes {PROTECTED} clients to bound what one of them can do"
        )

    def too_large(self, uploads: dict[str, Upload], start: Vector, period: int) -> dict[str, str]:
        """Who is left out, and why.

        Compared with the median of the other clients of the period and with that of the last
        ones; an update that is no larger than the model itself is always let in.
        """
        found: dict[str, str] = {}
        if not self.bound:
            return found
        mean = self.mean_steps(uploads, period)
        moved = {name: each.moved * mean / each.steps for name, each in uploads.items()}
        for name in uploads:
            others = [other for peer, other in moved.items() if peer != name]
            if not others:
                continue  # the only client there is nothing to be compared with
            usual = [statistics.median(known) for known in (others, self._usual) if known]
            limit = self.bound * max(usual, default=0.0)
            if moved[name] > limit and moved[name] > (limit := max(limit, norm(start))) > 0:
                found[name] = f"an update of norm {moved[name]:.3g}, at most {limit:.3g} is usual"
        self._usual += [each for name, each in moved.items() if name not in found]
        return found

    @property
    def usual(self) -> float:
        """The median norm of the last updates."""
        return statistics.median(self._usual) if self._usual else 0.0

    def mean_steps(self, uploads: Mapping[str, Upload], period: int) -> float:
        """thetabar_d."""
        weights = self.topology.at(period).weights([*uploads]) if uploads else []
        return sum(w * each.steps for w, each in zip(weights, uploads.values(), strict=True))

    def _of_the_users(
        self,
        uploads: Mapping[str, Upload],
        begun: Vector,
        shares: Floats,
        weights: Floats,
        firsts: NDArray[np.int64],
        period: int,
    ) -> Vector:
        """One model of all. Raises NotFinite, also if it is of another shape."""
        members, held = self.topology.at(period), begun.array()
        models = np.stack([upload.vector.array() for upload in uploads.values()])
        steps = np.array([upload.steps for upload in uploads.values()])
        stretch = None if weights is shares else weights / shares
        if stretch is not None:
            models = held + stretch.astype(models.dtype)[:, None] * (models - held)
        server = members.edges.index(self.edge)
        clients = np.array([members.order[name] for name in uploads])
        lasts = firsts + steps - 1
        k = period * self.topology.tau1
        group = Group(server, server, k, clients, firsts, lasts, shares, stretch)
        rows, named = self._named_rows()
        of_period = Period(group, self.topology.algorithm)
        mean = self.rule.combine(models, shares.astype(models.dtype), held, named, of_period)
        vector = as_vector(np.asarray(mean), self.folder)
        if vector.size != begun.size or not np.isfinite(mean).all():
            raise NotFinite
        self._remember(rows)
        return vector

    def _named_rows(self) -> tuple[dict[str, Block], dict[str, Block]]:
        """Copies of the rows: by their names in a checkpoint, and as the rule calls them."""
        rows = {name: row.array().copy() for name, row in self.rows.items()}
        return rows, {name.partition(".")[2]: row for name, row in rows.items()}

    def _scales(
        self, rule: Rule, order: list[str], norms: Floats, period: int, length: float
    ) -> tuple[Floats, Rows]:
        """How much each update counts, given how far it goes; and the rows after this period."""
        rows, named = self._named_rows()
        limit = rule.take_limit(norms, named, length)
        for name, norm_ in zip(order, norms.tolist(), strict=True):
            if rule.is_clip and norm_ > limit:
                self.tell(facts.Clipped(client=name, period=period, norm=norm_, most=limit))
        return scales(norms, limit), rows

    def _length(self, first: int, last: int) -> float:
        """The sum of eta_k over these iterations."""
        return float(rates(self.topology.deployment.lr, first, last).sum())

    def _remember(self, rows: Rows) -> None:
        self.rows = {name: as_vector(row) for name, row in rows.items()}

    async def move(
        self,
        uploads: Mapping[str, Upload],
        begun: Vector,
        scale: float,
        period: int,
        made: Mapping[str, int],
    ) -> Change:
        """Scale sum_i weights_i (w_i - h), of clients that began with h and had made so many steps.

        A rule other than the mean is asked for the models that clients would have, had all made as
        many steps: h + (thetabar_d / theta_i) (w_i - h).
        """
        order = list(uploads)
        shares = np.array(self.topology.at(period).weights(order))
        steps = np.array([upload.steps for upload in uploads.values()])
        weights = normalised(shares, steps)
        vectors = tuple(upload.vector for upload in uploads.values())
        total = float(weights.sum()) if weights is not shares else 1.0
        if self.rule.name == "mean":
            counted = (float(scale * weight) for weight in weights)
            return Change((begun, *vectors), (-scale * total, *counted))
        stretch = weights / shares
        begins = [made[name] + 1 for name in order]
        sums = [
            self._length(first, first + count - 1)
            for first, count in zip(begins, steps.tolist(), strict=True)
        ]
        if not isinstance(self.rule, Rule):
            firsts = np.array(begins)
            own = partial(self._of_the_users, uploads, begun, shares, weights, firsts, period)
            return Change((begun, await offload(begun.is_large, own)), (-scale, scale))
        rule, length = self.rule, float((weights * sums).sum() / shares.sum())
        moved = stretch * np.array([upload.moved for upload in uploads.values()])
        counted_for, rows_after = self._scales(rule, order, moved, period, length)

        def apply(blocks: list[Block], _offset: int) -> Any:
            *models, before = blocks
            rows = np.stack(models)
            if weights is not shares:
                rows = before + stretch[:, None] * (rows - before)
            return rule.on_block(rows, shares, before, counted_for)

        parts = [*vectors, begun]
        mean = await offload(begun.is_large, lambda: merge(parts, apply, self.folder))
        self._remember(rows_after)
        return Change((begun, mean), (-scale, scale))
