"""Races: candidates train side by side in simulated time, and losers are dropped early.

Successive halving (Jamieson and Talwalkar, AISTATS 2016) with two changes: the budget of a rung is
simulated time, which is what candidates compete for; and who stays is decided by where each is
heading, its own curve continued by the calibrated prediction, because a schedule with long periods
leads at first and then stalls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Protocol

import numpy as np

from sdfeel.algorithm.methods.codecs import Codec
from sdfeel.errors import InputError
from sdfeel.planner.candidate import Candidate
from sdfeel.validation import Count, Positive, checked, whole

if TYPE_CHECKING:
    from sdfeel.planner.pilot import PathPoint

__all__ = [
    "AS_GOOD",
    "Effort",
    "Laboratory",
    "Objective",
    "Tell",
    "race",
    "scale_of",
    "simplest",
]

# Rungs as parts of the time at which the best is expected to finish.
RUNGS = (0.4, 0.75, 1.0, 1.3, 1.7, 2.5, 4.0, 6.0)
# A candidate that is expected within this factor of the best is not dropped.
STAYS = 1.1
# Candidates within this factor of the best are as good: the simplest of them is recommended.
AS_GOOD = 1.03

Tell = Callable[[str], None]


class Laboratory(Protocol):
    """Where candidates train; all share their start and their mini-batches."""

    def advance(self, row: Candidate, iterations: int) -> None:
        """Train a candidate until `iterations` in all are done: its curve grows."""

    def measure(self, row: Candidate, sent: Mapping[str, Codec]) -> PathPoint:
        """Measure the split of kappa at its present mean model, and what these codecs owe."""


@checked()
class Effort:
    """How much a plan may cost.

    pilot            its iterations at most
    racers           candidates of the first race; half of them in later ones
    race_iterations  of all races together, where the objective is a budget: a long one is raced for
                     a part of its time, and the rest is predicted
    races            at most so many
    """

    pilot: Annotated[int, whole(10)] = 2000
    racers: Count = 8
    race_iterations: Count = 30_000
    races: Count = 4


@checked()
class Objective:
    """What to plan for: a target loss in the least time, or the least loss within a budget.

    With both, the target must be reached within the budget (simulated seconds). A target accuracy
    is a target for 1 - accuracy: set `accuracy`, and losses are 1 - accuracy everywhere.
    """

    target: Positive | None = None
    budget: Positive | None = None
    accuracy: bool = False

    def __post_init__(self) -> None:
        if self.target is None and self.budget is None:
            remedy = "needs target_loss, target_accuracy or budget (--target-loss 0.3, ...)"
            raise InputError("target", None, remedy)

    @classmethod
    def of(cls, loss: float | None, accuracy: float | None, budget: float | None) -> Objective:
        """For a target loss or accuracy, as users give them."""
        if accuracy is None:
            return cls(loss, budget)
        if loss is not None:
            raise InputError("target-accuracy", accuracy, "one target: a loss or an accuracy")
        if not isinstance(accuracy, int | float) or not 0 < accuracy < 1:
            raise InputError("target-accuracy", accuracy, "a share between 0 and 1, such as 0.9")
        return cls(1 - accuracy, budget, accuracy=True)

    @property
    def limit(self) -> float:
        """The seconds that there are."""
        return np.inf if self.budget is None else self.budget

    @property
    def highest(self) -> float:
        """The highest score that will do."""
        return np.inf if self.target is None else self.limit

    def predicted(self, row: Candidate, *, scale: float = 1.0, until: float = np.inf) -> float:
        """The score by prediction: seconds to the target, or loss at the end of the budget."""
        curve = row.predicted if scale == 1 else row.scaled(scale)
        if self.target is not None:
            return curve.seconds_to(self.target)
        return float(np.interp(min(until, self.limit), curve.seconds, curve.losses))

    def measured(self, row: Candidate, until: float = np.inf) -> float:
        """The score as measured until a second; lower is better."""
        if self.target is not None:
            return row.curve.seconds_to(self.target)
        return np.inf if row.curve.diverged else row.curve.loss_at(min(until, self.limit))

    def outlook(self, row: Candidate) -> float:
        """The score of a row that raced; where its race was cut, the loss that it heads for."""
        is_cut = self.target is None and row.dropped_at is None and not _is_whole(row, self)
        return _heading(row, self) if is_cut else self.measured(row)

    def headline(self, row: Candidate) -> tuple[float, float]:
        """Measured seconds to the target and the loss reached there; or the budget and its loss."""
        if self.target is None:
            return self.limit, self.outlook(row)
        seconds = self.measured(row)
        return seconds, row.curve.loss_at(seconds * (1 + 1e-9))

    def shown(self, loss: float) -> str:
        """A loss in the words of the objective."""
        return f"accuracy {1 - loss:.4g}" if self.accuracy else f"loss {loss:.4g}"


def race(
    rows: Sequence[Candidate],
    laboratory: Laboratory,
    objective: Objective,
    deadline: float,
    iterations: float = np.inf,
    tell: Tell = lambda _: None,
    *,
    drops: bool = True,
) -> None:
    """Train rows rung by rung until one has won; none goes on beyond `deadline`.

    The deadline is the time at which a target was reached already: later is lost. A race within a
    budget is cut where it would take more than `iterations` in all: see `Objective.outlook`. Where
    the prediction says too little of the rows, `drops` is False: only what diverges is dropped.
    """
    alive, expected = list(rows), objective.limit
    if objective.target is not None:
        expected = min(objective.predicted(row) for row in rows)
        if not np.isfinite(expected):  # by prediction none ever gets there: see how far they get
            expected = max(float(row.predicted.seconds[-1]) for row in rows)
    else:
        deadline = min(deadline, iterations / sum(1 / row.price.per_iteration for row in rows))
    for part in RUNGS:
        at = min(part * min(expected, deadline), deadline)
        tell(f"  {at:.4g} simulated s of {len(alive)}")
        for row in alive:
            laboratory.advance(row, max(1, row.price.iterations_within(at)))
            if row.curve.diverged:
                row.dropped_at = at
        alive = [row for row in alive if row.dropped_at is None] or alive
        has_won = objective.target is not None and any(
            np.isfinite(objective.measured(row)) for row in alive
        )
        if at >= deadline or has_won:
            return
        if drops:
            alive = _survivors(alive, objective, at)


def scale_of(row: Candidate, objective: Objective) -> float:
    """By which a candidate's predicted iterations are multiplied to be those that it needed."""
    if objective.target is not None:
        loss = max(objective.target, row.predicted.best)
        needed = row.curve.iterations_to(loss)
    else:
        loss = max(objective.outlook(row), row.predicted.best)
        needed = float(row.price.iterations_at(objective.limit))
    return needed / max(row.predicted.iterations_to(loss), 1.0)


def simplest(
    rows: Sequence[Candidate], score: Callable[[Candidate], float], limit: float = np.inf
) -> Candidate:
    """The best row; of those that are as good, and score at most `limit`, the simplest."""
    best = min(score(row) for row in rows)
    as_good = [row for row in rows if score(row) <= max(best, min(best * AS_GOOD, limit))]
    return min(as_good, key=lambda row: (row.complexity, score(row)))


def _is_whole(row: Candidate, objective: Objective) -> bool:
    """Whether the run lasted for the whole budget: its next evaluation would fall behind it."""
    iterations = row.curve.iterations
    left = row.price.iterations_within(objective.limit) - iterations[-1]
    return bool(left < max(row.tau1, int(np.diff(iterations[-2:]).sum())))


def _survivors(alive: list[Candidate], objective: Objective, at: float) -> list[Candidate]:
    heading = np.array([_heading(row, objective) for row in alive])
    order = np.argsort(heading, kind="stable")
    count = max(2, (len(alive) + 1) // 2)
    limit = heading[order[0]] * STAYS if np.isfinite(heading[order[0]]) else np.inf
    stay = {int(place) for place in order[:count]} | set(np.flatnonzero(heading <= limit).tolist())
    for place, row in enumerate(alive):
        if place not in stay:
            row.dropped_at = at
    return [row for place, row in enumerate(alive) if place in stay]


def _heading(row: Candidate, objective: Objective) -> float:
    """Seconds to the target, or loss at the budget, if the run goes on as predicted.

    A run that took r times as long as predicted to where it is takes r times as long from here.
    """
    if row.curve.diverged:
        return np.inf
    predicted, made = row.predicted, float(row.curve.iterations[-1])
    here = float(np.interp(-row.curve.best, -predicted.losses, predicted.iterations))
    ratio = max(made, 1.0) / max(here, 1.0)
    if objective.target is not None:
        ahead = predicted.iterations_to(objective.target) - here
        iterations = made + ratio * max(ahead, 0.0)
        return float(row.price.seconds_of(iterations)) if np.isfinite(ahead) else np.inf
    final = float(row.price.iterations_at(objective.limit))
    loss = np.interp(here + (final - made) / ratio, predicted.iterations, predicted.losses)
    return min(float(loss), row.curve.best)
